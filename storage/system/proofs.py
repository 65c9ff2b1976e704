"""Certificates for an engine whose parts speak TLS with each other, made as an installation makes them."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

from weir.kit.certificates import BOTH, Pair, certificate_text, issue, key_text
from weir.tls import authority, client, parts


class Proofs:
    def __init__(self, root: Path, safekeepers: int = 3) -> None:
        self.root = root
        self.services = parts.services(root, range(1, safekeepers + 1))
        self.computes: list[parts.Part] = []
        self.renew()

    def renew(self) -> None:
        parts.tend(self.root, [*self.services, *self.computes])

    def options(self, name: str) -> list[str]:
        """Of `pageserver` or `safekeeper-N`."""
        return ["--tls", str(parts.service_file(self.root, name))]

    def options_of_compute(self, compute_id: str) -> list[str]:
        part = parts.compute(self.root, compute_id)
        self.computes.append(part)
        self.renew()
        return ["--tls", str(part.file)]

    def context(self) -> ssl.SSLContext:
        """As the control plane connects."""
        return client.caller(parts.control_file(self.root)).context()

    def authority(self) -> authority.Authority:
        found = authority.read(self.root)
        assert found is not None
        return found

    def write(self, name: str, pair: Pair) -> Path:
        """A file of a test's own, which trusts whom the installation trusts."""
        path = self.root / f"{name}.pem"
        trusted = "".join(certificate_text(one) for one in self.authority().trusted)
        path.write_text(key_text(pair[1]) + certificate_text(pair[0]) + trusted)
        path.chmod(0o600)
        return path

    def forge(self, name: str, names: list[str], *, ca: Pair | None = None, hours: tuple[int, int] = (-1, 1)) -> Path:
        """A file with these names, signed by `ca` or the installation's own CA, valid from and until so many hours
        from now."""
        now = dt.datetime.now(dt.UTC)
        begins, ends = (now + dt.timedelta(hours=each) for each in hours)
        return self.write(name, issue(ca or self.authority().signs, names, begins, ends, BOTH))
