"""The proxy of an installation: its settings, its certificates, and how it is started."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from weir.cli import certificates
from weir.cli import installation as installations
from weir.cli.certificates import Files
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.sections import Proxy
from weir.cli.services import HEALTHY, services

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = Proxy(domain="db.example.com").names


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    (tmp_path / "tools").mkdir()
    for name in ("temporal", "process-compose", "prometheus"):
        (tmp_path / "tools" / name).touch()
    monkeypatch.setenv("WEIR_TOOLS_DIR", str(tmp_path / "tools"))
    return installations.create(tmp_path / "home", 17400)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "secrets").mkdir(mode=0o700)
    return Files(tmp_path)


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _names(path: Path) -> list[str]:
    found = _certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def _content(files: Files) -> list[bytes]:
    return [path.read_bytes() for path in (files.ca, files.ca_key, files.certificate, files.key)]


def _change(made: Installation, before: str, after: str) -> Installation:
    made.config_file.write_text(made.config_file.read_text().replace(before, after, 1))
    return installations.load(made.home)


def _command(made: Installation) -> list[str]:
    return [word for service in services(made) if service.name == "proxy" for word in service.command]


def test_the_certificate_is_of_our_ca_for_all_names_and_its_keys_are_private(files: Files):
    assert certificates.prepare(files, NAMES, NOW) == []
    _certificate(files.certificate).verify_directly_issued_by(_certificate(files.ca))
    assert _names(files.certificate) == ["localhost", "127.0.0.1", "::1", "db.example.com", "*.db.example.com"]
    for key in (files.ca_key, files.key):
        assert key.stat().st_mode & 0o777 == 0o600
        assert key.parent.stat().st_mode & 0o077 == 0
    for public in (files.ca, files.certificate):
        assert public.stat().st_mode & 0o777 == 0o644
        assert b"PRIVATE" not in public.read_bytes()
    authority = _certificate(files.ca).extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (authority.ca, authority.path_length) == (True, 0)


def test_a_later_up_changes_nothing_until_the_end_comes_near(files: Files):
    certificates.prepare(files, NAMES, NOW)
    before = _content(files)
    soon = dt.timedelta(days=certificates.SERVER_DAYS - certificates.RENEW_SERVER_DAYS)
    assert certificates.prepare(files, NAMES, NOW + soon - dt.timedelta(days=1)) == []
    assert _content(files) == before
    certificates.prepare(files, NAMES, NOW + soon + dt.timedelta(days=1))
    after = _content(files)
    assert after[:2] == before[:2], "clients trust the CA: it stays"
    assert after[2:] != before[2:]
    left = _certificate(files.certificate).not_valid_after_utc - NOW - soon
    assert left.days >= certificates.SERVER_DAYS - 1


def test_a_ca_that_ends_is_made_again_and_said(files: Files):
    certificates.prepare(files, NAMES, NOW)
    before = files.ca.read_bytes()
    late = NOW + dt.timedelta(days=certificates.CA_DAYS - certificates.RENEW_CA_DAYS + 1)
    said = certificates.prepare(files, NAMES, late)
    assert [str(files.ca) in line for line in said] == [True]
    assert files.ca.read_bytes() != before
    _certificate(files.certificate).verify_directly_issued_by(_certificate(files.ca))


def test_other_names_get_another_certificate_of_the_same_ca(files: Files):
    certificates.prepare(files, Proxy().names, NOW)
    ca, before = files.ca.read_bytes(), files.certificate.read_bytes()
    certificates.prepare(files, NAMES, NOW)
    assert (files.ca.read_bytes(), files.certificate.read_bytes() == before) == (ca, False)
    assert "*.db.example.com" in _names(files.certificate)


@pytest.mark.parametrize("lost", ["certificate", "key", "ca", "ca_key"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN"])
def test_what_a_crash_left_half_is_made_again(files: Files, lost: str, content: bytes | None):
    certificates.prepare(files, NAMES, NOW)
    path: Path = getattr(files, lost)
    path.unlink() if content is None else path.write_bytes(content)
    certificates.prepare(files, NAMES, NOW)
    server, ca = _certificate(files.certificate), _certificate(files.ca)
    server.verify_directly_issued_by(ca)
    for certificate, key in ((server, files.key), (ca, files.ca_key)):
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        assert private.public_key() == certificate.public_key()


def test_a_given_certificate_is_checked_and_never_written(files: Files, tmp_path: Path):
    certificates.prepare(files, NAMES, NOW)
    own = Files(tmp_path / "other", (files.certificate, files.key))
    before = _content(files)
    assert certificates.prepare(own, NAMES, NOW) == []
    ends = NOW + dt.timedelta(days=certificates.SERVER_DAYS)
    assert "ends in 9 days" in certificates.prepare(own, NAMES, ends - dt.timedelta(days=9, hours=12))[0]
    with pytest.raises(CliError, match="has ended"):
        certificates.prepare(own, NAMES, ends + dt.timedelta(days=1))
    with pytest.raises(CliError, match="is not that of"):
        certificates.prepare(Files(tmp_path, (files.certificate, files.ca_key)), NAMES, NOW)
    with pytest.raises(CliError, match="cannot be used"):
        certificates.prepare(Files(tmp_path, (tmp_path / "none.pem", files.key)), NAMES, NOW)
    assert _content(files) == before
    assert not (tmp_path / "other").exists()


def test_the_proxy_waits_for_the_api_and_listens_where_it_is_told(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    proxy = next(service for service in services(made) if service.name == "proxy")
    assert proxy.after == {"api": HEALTHY}
    assert proxy.health == "127.0.0.1:17433/healthz"
    command = " ".join(_command(made))
    assert "--listen 127.0.0.1:17432 " in command
    assert "--domain" not in command
    for name in ("proxy_token", "proxy_mock_secret"):
        path = made.home / "secrets" / name
        assert path.stat().st_mode & 0o077 == 0
        assert path.read_text().strip() not in command
    open_to_all = _change(made, 'listen = "127.0.0.1"', 'listen = "::"')
    assert "--listen [::]:17432 " in " ".join(_command(open_to_all))
    monkeypatch.setenv("WEIR_PROXY_DOMAIN", "DB.Example.com")
    assert "--domain db.example.com " in " ".join(_command(installations.load(made.home)))


def test_settings_of_the_pooler_reach_the_proxy(made: Installation, monkeypatch: pytest.MonkeyPatch):
    usual = " ".join(_command(made))
    assert (
        "--pool-size 20 --pool-database-connections 80 --pool-statements 200 --pool-queue-timeout-ms 60000"
        " --pool-idle-ms 60000 --pool-lifetime-ms 3600000"
    ) in usual
    assert "--pool-discard" not in usual
    changed = _change(made, "pool_discard = false", "pool_discard = true")
    assert "--pool-discard" in _command(changed)
    assert "--pool-size 7" in " ".join(_command(_change(made, "pool_size = 20", "pool_size = 7")))
    monkeypatch.setenv("WEIR_PROXY_POOL_IDLE_MS", "1500")
    assert "--pool-idle-ms 1500" in " ".join(_command(installations.load(made.home)))
    # A file of before the pooler has none of them.
    lines = [line for line in made.config_file.read_text().splitlines() if not line.startswith("pool_")]
    made.config_file.write_text("\n".join(lines))
    monkeypatch.delenv("WEIR_PROXY_POOL_IDLE_MS")
    assert " ".join(_command(installations.load(made.home))) == usual


def test_a_port_for_load_balancers_is_there_when_it_is_asked_for(made: Installation):
    assert "--listen-behind" not in _command(made)
    limits = "--max-endpoint-connections 5000 --max-role-connections 5000"
    assert limits in " ".join(_command(made))
    before = 'behind_port = 0\ntrusted_senders = ""'
    changed = _change(made, before, 'behind_port = 17434\ntrusted_senders = "10.0.0.0/8, 192.0.2.7"')
    expected = "--listen-behind 127.0.0.1:17434 --trusted-senders 10.0.0.0-10.255.255.255,192.0.2.7-192.0.2.7"
    assert expected in " ".join(_command(changed))


def test_secrets_of_the_proxy_stay_what_they_were(made: Installation):
    paths = [made.home / "secrets" / name for name in ("proxy_token", "proxy_mock_secret")]
    before = [path.read_text() for path in paths]
    assert all(len(text.strip()) >= 32 for text in before)
    installations.create(made.home, None)
    assert [path.read_text() for path in paths] == before


def test_the_api_is_told_of_the_proxy_only_when_there_is_one(made: Installation):
    environment = made.environment()
    assert (environment["WEIR_PROXY_HOST"], environment["WEIR_PROXY_PORT"]) == ("localhost", "17432")
    assert environment["WEIR_PROXY_CA"] == str(made.proxy_files.ca)
    given = replace(made, proxy=replace(made.proxy, given=(Path("/c.pem"), Path("/k.pem"))))
    assert "WEIR_PROXY_CA" not in given.environment()
    for off in (_change(made, "enabled = true", "enabled = false"), _change(made, '"local"', '"simulated"')):
        assert _command(off) == []
        assert "WEIR_PROXY_PORT" not in off.environment()


def test_settings_of_before_the_proxy_get_ports_beside_their_own(made: Installation):
    lines = [line for line in made.config_file.read_text().splitlines() if not line.startswith("proxy")]
    made.config_file.write_text("\n".join(lines))
    ports = installations.load(made.home).ports
    assert (ports["proxy"], ports["proxy_http"]) == (17432, 17433)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('listen = "127.0.0.1"', 'listen = "localhost"', "must be an address"),
        ('host = "localhost"', 'host = "no host"', "must be a host name"),
        ('host = "localhost"', "host = 5", "must be a text"),
        ('domain = ""', 'domain = "*.example.com"', "must be a host name"),
        ('domain = ""', 'domain = "10.0.0.1"', "must be a host name"),
        ('certificate = ""', 'certificate = "/etc/one.pem"', "go together"),
        ('certificate = ""\nprivate_key = ""', 'certificate = "a"\nprivate_key = "b"', "absolute"),
        ("enabled = true", 'enabled = "perhaps"', "true or false"),
        ("pool_discard = false", "pool_discard = 1", "pool_discard is 1; it must be true or false"),
        ("pool_size = 20", "pool_size = 0", "pool_size is 0; it must be a whole number from 1 to 10000"),
        ("pool_size = 20", "pool_size = 2.5", "whole number"),
        ("pool_idle_ms = 60000", "pool_idle_ms = true", "whole number"),
        ("pool_idle_ms = 60000", "pool_idle_ms = 86400001", "from 1 to 86400000"),
        ("enabled = true", "enable = true", "no setting 'enable'"),
        ("behind_port = 0", "behind_port = 17434", "go together"),
        ("behind_port = 0", "behind_port = 65536", "must be 0"),
        ('trusted_senders = ""', 'trusted_senders = "10.0.0.0/8"', "go together"),
        ('trusted_senders = ""', 'trusted_senders = "10.0.0.0/33"', "10.0.0.0/33"),
    ],
)
def test_senseless_settings_of_the_proxy_are_refused(made: Installation, before: str, after: str, message: str):
    with pytest.raises(CliError, match=message) as refused:
        _change(made, before, after)
    assert str(made.config_file) in str(refused.value)
