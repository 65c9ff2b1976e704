"""Certificates of parts: who gets which, when they are made anew, and how the CA changes without a gap."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from cryptography import x509

from weir.clients.connections import Connections
from weir.clients.http import JsonClient, RemoteError
from weir.kit.certificates import certificate_text
from weir.tls import authority, parts
from weir.tls.authority import CA_SECONDS, LEEWAY_SECONDS, PART_SECONDS, READ_SECONDS, Authority
from weir.tls.client import UnprovenError, caller
from weir.tls.parts import Part
from weir.tokens.keys import KeyFileError

NOW = 1_800_000_000.0
DAY = 86_400


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir(mode=0o700)
    return tmp_path


def all_parts(home: Path) -> list[Part]:
    return [*parts.services(home, (1, 2, 3)), parts.compute(home, "ep-calm-bay-123")]


def certificates_in(file: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(file.read_bytes())


def names_in(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName)


def current(home: Path) -> Authority:
    found = authority.read(home)
    assert found is not None
    return found


def test_each_part_gets_a_certificate_of_its_own_names_and_nobody_else_can_read_it(home: Path) -> None:
    assert parts.tend(home, all_parts(home), NOW) == 1 + 7
    wanted = {
        "control": ["control"],
        "prometheus": ["prometheus"],
        "pageserver": ["pageserver", "part"],
        "safekeeper-2": ["safekeeper-2", "safekeeper", "part"],
        "computes/ep-calm-bay-123": ["ep-calm-bay-123.compute", "compute", "part"],
    }
    folder = authority.tls_dir(home)
    assert folder.stat().st_mode & 0o777 == 0o700
    seen: set[int] = set()
    for name, own in wanted.items():
        file = folder / f"{name}.pem"
        assert file.stat().st_mode & 0o777 == 0o600
        certificate, *trusted = certificates_in(file)
        assert names_in(certificate) == own
        assert trusted == current(home).trusted
        certificate.verify_directly_issued_by(trusted[0])
        assert certificate.not_valid_after_utc.timestamp() == NOW + PART_SECONDS
        seen.add(certificate.serial_number)
    assert len(seen) == len(wanted)
    assert certificates_in(parts.authorities_file(home)) == current(home).trusted
    assert "PRIVATE" not in parts.authorities_file(home).read_text()


def test_a_certificate_stays_until_half_of_its_time_is_over(home: Path) -> None:
    here = all_parts(home)
    parts.tend(home, here, NOW)
    before = parts.control_file(home).read_text()
    assert parts.tend(home, here, NOW + PART_SECONDS / 2 - 60) == 0
    assert parts.control_file(home).read_text() == before
    assert parts.tend(home, here, NOW + PART_SECONDS / 2 + 60) == len(here)
    assert parts.control_file(home).read_text() != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "nonsense",
        lambda text: text[: len(text) // 2],
        lambda text: text.partition("-----BEGIN CERTIFICATE")[0],
    ],
)
def test_what_is_damaged_or_anothers_is_made_again(home: Path, damage: Callable[[str], str]) -> None:
    here = all_parts(home)
    parts.tend(home, here, NOW)
    file = parts.service_file(home, "pageserver")
    file.write_text(damage(file.read_text()))
    assert parts.tend(home, here, NOW) == 1
    file.write_text(parts.service_file(home, "safekeeper-1").read_text())
    assert parts.tend(home, here, NOW) == 1
    assert names_in(certificates_in(file)[0]) == ["pageserver", "part"]
    # A clock that was set back makes certificates those of later, and the CA too.
    assert parts.tend(home, here, NOW - DAY) >= len(here)


def serial(it: Authority) -> int:
    return it.signs[0].serial_number


def test_a_ca_past_its_half_is_replaced_in_steps_that_leave_nobody_out(home: Path) -> None:
    here = all_parts(home)
    parts.tend(home, here, NOW)
    old = current(home)
    at = NOW + CA_SECONDS / 2 + 60
    # The next CA counts for everybody before it signs for anybody.
    parts.tend(home, here, at)
    coming = current(home).next
    assert coming is not None
    assert coming.known_since == at
    assert serial(current(home)) == serial(old)
    for part in here:
        own, *trusted = certificates_in(part.file)
        own.verify_directly_issued_by(old.signs[0])
        assert trusted == [old.signs[0], coming.pair[0]]
    parts.tend(home, here, at + READ_SECONDS - 1)
    assert serial(current(home)) == serial(old)
    parts.tend(home, here, at + READ_SECONDS + 1)
    new = current(home)
    assert serial(new) == coming.pair[0].serial_number
    assert new.next is None
    for part in here:
        own, *trusted = certificates_in(part.file)
        own.verify_directly_issued_by(new.signs[0])
        assert trusted == [new.signs[0], old.signs[0]]
    # The old one counts for as long as a certificate of it can.
    until = new.replaced[0].until
    assert until >= at + PART_SECONDS + LEEWAY_SECONDS
    parts.tend(home, here, until - 1)
    assert len(current(home).trusted) == 2
    parts.tend(home, here, until + 1)
    assert current(home).trusted == [new.signs[0]]
    assert certificates_in(here[0].file)[1:] == [new.signs[0]]


def test_a_next_ca_that_parts_were_not_told_of_signs_nothing_however_old_it_is(home: Path) -> None:
    """A crash between the CA's file and those of the parts."""
    here = all_parts(home)
    parts.tend(home, here, NOW)
    old = current(home)
    authority.write(home, authority.prepared(old, NOW))
    parts.tend(home, here, NOW + 3600)
    assert serial(current(home)) == serial(old)
    assert all(len(certificates_in(part.file)) == 3 for part in here)
    parts.tend(home, here, NOW + 3600 + READ_SECONDS + 1)
    assert serial(current(home)) != serial(old)


class BrokenOffError(Exception):
    pass


def test_a_rotation_that_breaks_off_anywhere_leaves_certificates_that_count_and_can_be_repeated(home: Path) -> None:
    here = all_parts(home)
    time = [NOW]

    def pause(seconds: float) -> None:
        time[0] += seconds

    def run(steps: int) -> None:
        """Breaks off at the given call of what renews."""
        left = [steps]

        def renew(it: Authority) -> None:
            left[0] -= 1
            for part in here:
                if left[0] < 0 and part is here[2]:
                    raise BrokenOffError
                parts.renew(it, home, [part], time[0])

        authority.rotate(home, renew, lambda: time[0], pause, at_once=True)

    parts.tend(home, here, NOW)
    first = serial(current(home))
    for steps in (0, 1, 2):
        with pytest.raises(BrokenOffError):
            run(steps)
        if steps < 2:
            # Each part believes each other: whoever signed its certificate is among those whom the others trust.
            for one in here:
                own = certificates_in(one.file)[0]
                for other in here:
                    issuers = [ca for ca in certificates_in(other.file)[1:] if ca.subject == own.issuer]
                    assert issuers, f"{other.file.name} does not believe {one.file.name} after step {steps}"
    run(9)
    assert serial(current(home)) != first
    assert len(current(home).trusted) == 1
    assert all(certificates_in(part.file)[1:] == current(home).trusted for part in here)


def test_a_ca_that_others_can_read_or_that_is_none_is_refused(home: Path) -> None:
    parts.tend(home, [], NOW)
    file = authority.tls_dir(home) / "authority.json"
    whole = file.read_text()
    file.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        parts.tend(home, [], NOW)
    file.chmod(0o600)
    other = json.loads(whole)
    other["signs"]["certificate"] = certificate_text(authority.first(NOW).signs[0])
    for text in ("", "{}", "[]", whole[:-20], json.dumps(other)):
        file.write_text(text)
        with pytest.raises(KeyFileError, match="is no CA") as refused:
            parts.tend(home, [], NOW)
        assert "PRIVATE" not in str(refused.value)
    file.unlink()
    with pytest.raises(KeyFileError, match="weir up"):
        parts.make(home, parts.compute(home, "ep-calm-bay-123"))


# The control plane's end, with real sockets.


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()
    writer.close()


async def _serve(file: Path) -> tuple[asyncio.Server, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]


@pytest.fixture(name="connections")
async def _connections(home: Path) -> AsyncGenerator[Connections]:
    parts.tend(home, all_parts(home))
    async with Connections(proof=parts.control_file(home)) as connections:
        yield connections


async def test_the_control_plane_speaks_with_the_part_that_it_means_and_no_other(
    home: Path, tmp_path_factory: pytest.TempPathFactory, connections: Connections
) -> None:
    foreign = tmp_path_factory.mktemp("foreign")
    parts.tend(foreign, all_parts(foreign))

    async def ask(file: Path, part: str) -> None:
        server, port = await _serve(file)
        async with server:
            client = JsonClient("the part", f"https://127.0.0.1:{port}", connections, part=part)
            assert await client.call("GET", "/", timeout=5) == {}

    await ask(parts.service_file(home, "safekeeper-2"), "safekeeper-2")
    await ask(parts.compute_file(home, "ep-calm-bay-123"), "ep-calm-bay-123.compute")
    for file, part in (
        (parts.service_file(home, "safekeeper-2"), "safekeeper-1"),
        (parts.service_file(home, "safekeeper-2"), "pageserver"),
        (parts.compute_file(home, "ep-calm-bay-123"), "ep-other.compute"),
        (parts.service_file(foreign, "safekeeper-2"), "safekeeper-2"),
    ):
        with pytest.raises(RemoteError) as refused:
            await ask(file, part)
        assert refused.value.status is None
        assert not refused.value.nobody_listens
        assert f"is not proven to be {part}" in refused.value.message


async def test_a_certificate_that_is_made_anew_is_used_from_then_on(home: Path, connections: Connections) -> None:
    del connections
    known = caller(parts.control_file(home))
    before = known.context()
    assert known.context() is before
    parts.control_file(home).unlink()
    parts.tend(home, all_parts(home))
    assert known.context() is not before
    parts.control_file(home).write_text("torn")
    after = known.context()
    assert after is known.context()
    with pytest.raises(UnprovenError, match="weir up"):
        caller(home / "nothing.pem").context()
