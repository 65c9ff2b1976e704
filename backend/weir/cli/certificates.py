"""The proxy's certificate, and the installation's own CA that signs it where the operator gives none.

Private keys are in `secrets/`, for their owner alone; certificates are in `tls/`, for everybody: clients need the one
of the CA.
A crash between two files leaves a pair that does not fit, which the next call replaces as a whole.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from weir.cli.errors import CliError
from weir.cli.files import write_whole
from weir.kit import certificates
from weir.kit.certificates import Pair

CA_DAYS = 3650
SERVER_DAYS = 365
# What has less than this left is made again: between two `weir up` there can be many months.
RENEW_CA_DAYS = 730
RENEW_SERVER_DAYS = 180
# A given certificate with less left is worth a word.
WARN_DAYS = 21
# The clock of a client can be behind.
_EARLIER = dt.timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """Of one installation. `given`: certificate and private key of the operator's own, in place of ours."""

    home: Path
    given: tuple[Path, Path] | None = None

    @property
    def ca(self) -> Path:
        return self.home / "tls" / "ca.pem"

    @property
    def ca_key(self) -> Path:
        return self.home / "secrets" / "proxy_ca.key"

    @property
    def certificate(self) -> Path:
        return self.given[0] if self.given else self.home / "tls" / "proxy.pem"

    @property
    def key(self) -> Path:
        return self.given[1] if self.given else self.home / "secrets" / "proxy.key"


def prepare(files: Files, names: list[str], now: dt.datetime) -> list[str]:
    """Makes what is missing, ends soon or is for other names; answers with what the operator should know."""
    if files.given:
        return _check_given(files, now)
    files.ca.parent.mkdir(mode=0o755, exist_ok=True)
    said: list[str] = []
    authority = _pair(files.ca, files.ca_key)
    if authority is None or _days_left(authority[0], now) < RENEW_CA_DAYS:
        if authority is not None:
            said.append(f"the CA in {files.ca} ends soon and was made again: give clients the new file")
        authority = _new_authority(files, now)
    server = _pair(files.certificate, files.key)
    if server is None or not _still_good(server[0], authority[0], names, now):
        _new_server(files, authority, names, now)
    return said


def _pair(certificate: Path, key: Path) -> Pair | None:
    """None when a file is missing or makes no sense, or when they do not fit each other."""
    try:
        return certificates.parse_pair(certificate.read_bytes(), key.read_bytes())
    except FileNotFoundError:
        return None


def _days_left(certificate: x509.Certificate, now: dt.datetime) -> int:
    return (certificate.not_valid_after_utc - now).days


def _still_good(server: x509.Certificate, ca: x509.Certificate, names: list[str], now: dt.datetime) -> bool:
    return certificates.is_of(server, ca, names) and _days_left(server, now) >= RENEW_SERVER_DAYS


def _new_authority(files: Files, now: dt.datetime) -> Pair:
    made = certificates.authority(now - _EARLIER, now + dt.timedelta(days=CA_DAYS))
    _write(files.ca_key, files.ca, made)
    return made


def _new_server(files: Files, authority: Pair, names: list[str], now: dt.datetime) -> None:
    until = now + dt.timedelta(days=SERVER_DAYS)
    _write(files.key, files.certificate, certificates.issue(authority, names, now - _EARLIER, until))


def _write(key_path: Path, path: Path, made: Pair) -> None:
    certificate, key = made
    write_whole(key_path, certificates.key_text(key), 0o600)
    write_whole(path, certificates.certificate_text(certificate), 0o644)


def _check_given(files: Files, now: dt.datetime) -> list[str]:
    """The operator's own files: what cannot work is refused before anything is started."""
    try:
        chain = x509.load_pem_x509_certificates(files.certificate.read_bytes())
        private = serialization.load_pem_private_key(files.key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise CliError(
            f"The proxy's certificate {files.certificate} or its private key {files.key} cannot be used: {error} "
            "(PEM, the key without a password; certificate and private_key of [proxy] in weir.toml)."
        ) from None
    spki = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*spki) != chain[0].public_key().public_bytes(*spki):
        raise CliError(f"The private key {files.key} is not that of the first certificate in {files.certificate}.")
    left = _days_left(chain[0], now)
    if left < 0:
        raise CliError(f"The certificate {files.certificate} has ended on {chain[0].not_valid_after_utc:%Y-%m-%d}.")
    return [f"the certificate {files.certificate} ends in {left} days"] if left < WARN_DAYS else []
