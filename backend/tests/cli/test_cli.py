"""What `weir` promises an operator: checked settings, services in order and on loopback, readable answers."""

import gzip
import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from weir.cli import installation as installations
from weir.cli import prometheus_files, system
from weir.cli.api_section import API_SETTINGS
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.logs import KEEP_OLD, last_lines, rotate
from weir.cli.main import cli
from weir.cli.metadata import forget_stale_lock
from weir.cli.output import span, table
from weir.cli.services import COMPLETED, services, supervisor_config
from weir.config import Settings


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("temporal", "process-compose", "prometheus"):
        (tools / name).touch()
    # Other tests of the session run a control plane, which is configured by the environment too.
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_TOOLS_DIR", str(tools))
    monkeypatch.setenv("WEIR_BIN_DIR", str(tools))
    return installations.create(tmp_path / "home", 17400)


def test_the_first_up_writes_settings_and_a_later_one_leaves_them_alone(made: Installation):
    assert made.ports["api"] == 17400
    assert made.ports["pageserver_http"] == 17601
    assert made.compute_ports == "17700-17899"
    text = made.config_file.read_text().replace("api = 17400", "api = 18000")
    made.config_file.write_text(text)
    password = made.postgres_password()
    again = installations.create(made.home, None)
    assert again.ports["api"] == 18000
    assert again.postgres_password() == password
    assert made.config_file.read_text() == text
    with pytest.raises(CliError, match="first"):
        installations.create(made.home, 19400)


def test_secrets_are_for_their_owner_only(made: Installation):
    secrets = made.home / "secrets"
    assert secrets.stat().st_mode & 0o077 == 0
    assert (secrets / "postgres_password").stat().st_mode & 0o077 == 0


def test_the_environment_overrides_a_port(made: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEIR_PORT_API", "18123")
    assert installations.load(made.home).ports["api"] == 18123


def test_the_pageserver_is_started_with_the_limits_in_the_settings(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    def command() -> list[str]:
        return [word for s in services(installations.load(made.home)) if s.name == "pageserver" for word in s.command]

    assert "--memory-mib=2048" in command()
    made.config_file.write_text(made.config_file.read_text().replace("memory_mib = 2048", "memory_mib = 512"))
    assert "--memory-mib=512" in command()
    monkeypatch.setenv("WEIR_PAGESERVER_MEMORY_MIB", "64")
    assert "--memory-mib=64" in command()


def test_the_settings_file_says_what_the_api_does_without_it(made: Installation):
    usual = Settings()
    told = made.api
    assert told
    for variable, text in told.items():
        assert text == str(getattr(usual, variable.removeprefix("WEIR_").lower())).lower(), variable
    assert {variable.removeprefix("WEIR_").lower() for variable in told} == set(API_SETTINGS)


def test_the_api_is_told_its_hosts_rates_and_quotas(made: Installation, monkeypatch: pytest.MonkeyPatch):
    def environment() -> dict[str, str]:
        return installations.load(made.home).environment()

    text = made.config_file.read_text()
    text = text.replace('allowed_hosts = ""', 'allowed_hosts = "weir.example.org"')
    text = text.replace("behind_tls = false", "behind_tls = true").replace('quotas = ""', 'quotas = "projects=3"')
    made.config_file.write_text(text)
    assert environment()["WEIR_ALLOWED_HOSTS"] == "weir.example.org"
    assert environment()["WEIR_BEHIND_TLS"] == "true"
    assert environment()["WEIR_QUOTAS"] == "projects=3"
    monkeypatch.setenv("WEIR_RATE_READS", "off")
    assert environment()["WEIR_RATE_READS"] == "off"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('allowed_hosts = ""', 'allowed_hosts = "http://weir"', "is no host"),
        ("behind_tls = false", 'behind_tls = "maybe"', "must be true or false"),
        ("max_body_bytes = 1048576", "max_body_bytes = 1", "must be a number of bytes from 1024"),
        ("api_processes = 1", "api_processes = 0", "must be a number of processes from 1 to 32"),
        ('rate_sql = "600/300"', 'rate_sql = "lots"', "is no rate"),
        ('quotas = ""', 'quotas = "things=1"', "is no quota"),
        ('quotas = ""', 'quota = ""', "has no setting 'quota'"),
    ],
)
def test_what_makes_no_sense_to_the_api_is_refused_before_it_starts(
    made: Installation, before: str, after: str, says: str
):
    text = made.config_file.read_text()
    assert before in text
    made.config_file.write_text(text.replace(before, after))
    with pytest.raises(CliError, match=says):
        installations.load(made.home)


def test_services_are_told_which_levels_of_durability_are_forbidden(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    def told() -> str:
        return installations.load(made.home).environment()["WEIR_DURABILITY_FORBID"]

    assert told() == ""
    made.config_file.write_text(made.config_file.read_text().replace("forbid = []", 'forbid = ["off", "receive"]'))
    assert told() == "off,receive"
    monkeypatch.setenv("WEIR_DURABILITY_FORBID", "off")
    assert told() == "off"
    # As it was written before there was the section.
    made.config_file.write_text("")
    monkeypatch.delenv("WEIR_DURABILITY_FORBID")
    assert told() == ""


def test_safekeepers_offload_to_the_installations_object_store_unless_told_not_to(made: Installation):
    def commands() -> list[list[str]]:
        of = services(installations.load(made.home))
        return [list(service.command) for service in of if service.name.startswith("safekeeper")]

    assert [command[-2:] for command in commands()] == [["--object-store", f"file://{made.home / 'objects'}"]] * 3
    made.config_file.write_text(made.config_file.read_text().replace("offload = true", "offload = false"))
    assert not any("--object-store" in command for command in commands())


def test_the_control_plane_is_told_after_how_long_a_sick_safekeeper_is_replaced(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    def told() -> str:
        return installations.load(made.home).environment()["WEIR_SAFEKEEPERS_REPLACE_AFTER_MINUTES"]

    assert told() == "0"
    text = made.config_file.read_text().replace("replace_after_minutes = 0", "replace_after_minutes = 30")
    made.config_file.write_text(text)
    assert told() == "30"
    monkeypatch.setenv("WEIR_SAFEKEEPERS_REPLACE_AFTER_MINUTES", "45")
    assert told() == "45"


def test_safekeepers_are_told_how_much_wal_a_branch_may_keep(made: Installation, monkeypatch: pytest.MonkeyPatch):
    def limits() -> list[list[str]]:
        of = services(installations.load(made.home))
        words = [service.command for service in of if service.name.startswith("safekeeper")]
        return [[word for word in command if "-mib=" in word] for command in words]

    assert limits() == [["--wal-quota-mib=16384", "--disk-reserve-mib=2048"]] * 3
    text = made.config_file.read_text()
    # The settings of an installation that was made before there were any.
    made.config_file.write_text(text.replace("wal_quota_mib = 16384\n", "").replace("disk_reserve_mib = 2048\n", ""))
    assert limits() == [["--wal-quota-mib=16384", "--disk-reserve-mib=2048"]] * 3
    made.config_file.write_text(text.replace("wal_quota_mib = 16384", "wal_quota_mib = 64"))
    assert limits() == [["--wal-quota-mib=64", "--disk-reserve-mib=2048"]] * 3
    monkeypatch.setenv("WEIR_SAFEKEEPERS_DISK_RESERVE_MIB", "0")
    assert limits() == [["--wal-quota-mib=64", "--disk-reserve-mib=0"]] * 3


def test_computes_are_told_how_much_disk_their_cache_may_take(made: Installation, monkeypatch: pytest.MonkeyPatch):
    def told() -> str:
        return installations.load(made.home).environment()["WEIR_COMPUTE_CACHE_MIB"]

    assert told() == "8192"
    # The settings of an installation that was made before there was one.
    text = made.config_file.read_text()
    made.config_file.write_text(text.replace("\ncache_mib = 8192", "", 1))
    assert told() == "8192"
    made.config_file.write_text(text.replace("\ncache_mib = 8192", "\ncache_mib = 100", 1))
    assert told() == "100"
    monkeypatch.setenv("WEIR_COMPUTE_CACHE_MIB", "0")
    assert told() == "0"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("offload = true", 'offload = "yes"', "true or false"),
        ("replace_after_minutes = 0", "replace_after_minutes = -1", "0 \\(never\\) to"),
        ("replace_after_minutes = 0", "replace_after_minutes = 1.5", "0 \\(never\\) to"),
        ("replace_after_minutes = 0", 'replace_after_minutes = "soon"', "0 \\(never\\) to"),
        ("wal_quota_mib = 16384", "wal_quota_mib = 63", "64 or more, or 0 for no limit"),
        ("wal_quota_mib = 16384", "wal_quota_mib = -1", "64 or more, or 0 for no limit"),
        ("wal_quota_mib = 16384", "wal_quota_mib = true", "64 or more, or 0 for no limit"),
        ("disk_reserve_mib = 2048", 'disk_reserve_mib = "2 GB"', "number of MiB"),
        ("cache_mib = 8192", "cache_mib = -1", "0 for no limit"),
        ("cache_mib = 8192", 'cache_mib = "much"', "0 for no limit"),
        ("max_cu = 1", "max_cu = 0", "whole number from 1 to 64"),
        ("max_cu = 1", "max_cu = 1.5", "whole number from 1 to 64"),
        ("api = 17400", "api = 70000", "1-65535"),
        ("api = 17400", 'api = "x"', "1-65535"),
        ("api = 17400", "api = 17402", "both"),
        ("[ports]", "[ports", "not valid TOML"),
        ("[ports]", "ports = 3\n[other]", "must be a table"),
        ("memory_mib = 2048", "memory_mib = 8", "16 or more"),
        ("memory_mib = 2048", 'memory_mib = "2 GB"', "number of MiB"),
        ("memory_mib = 2048", "memory = 2048", "no setting 'memory'"),
        ("forbid = []", 'forbid = ["flush"]', "must be a list of off, receive"),
        ("forbid = []", 'forbid = "off"', "must be a list of off, receive"),
        ("forbid = []", "forbid = [1]", "must be a list of off, receive"),
        ("forbid = []", "forbids = []", "no setting 'forbids'"),
    ],
)
def test_senseless_settings_are_refused_with_the_file_named(
    made: Installation, before: str, after: str, message: str
):
    made.config_file.write_text(made.config_file.read_text().replace(before, after, 1))
    with pytest.raises(CliError, match=message) as refused:
        installations.load(made.home)
    assert str(made.config_file) in str(refused.value)


def test_every_service_waits_for_what_it_needs_and_is_restarted(made: Installation):
    entries = json.loads(supervisor_config(made, services(made)))["processes"]
    assert entries["api"]["depends_on"]["migrate"]["condition"] == COMPLETED
    assert set(entries["worker"]["depends_on"]) >= {"temporal", "pageserver", "migrate", "safekeeper-1"}
    for name, entry in entries.items():
        assert str(made.log_file(name)) in entry["entrypoint"]
        if name not in {"migrate", "logs"}:
            assert entry["availability"]["restart"] == "always", name
            assert entry["readiness_probe"], name


def test_nothing_listens_beyond_loopback(made: Installation):
    text = supervisor_config(made, services(made)) + prometheus_files.config(made)
    assert "0.0.0.0" not in text  # noqa: S104  that is what must not be there
    for service in services(made):
        if isinstance(service.health, str) and service.health:
            assert service.health.startswith("127.0.0.1:"), service.name


def test_a_lock_file_of_a_dead_postmaster_is_removed_and_that_of_a_stranger_too(made: Installation):
    made.postgres_data.mkdir()
    lock = made.postgres_data / "postmaster.pid"
    lock.write_text("1\n")  # lives, but is no postmaster of this directory
    assert forget_stale_lock(made)
    assert not lock.exists()
    assert not forget_stale_lock(made)


def test_a_taken_port_is_named_with_who_has_it():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not system.port_is_free(port)
        assert f"pid {os.getpid()} " in (system.holder_of(port) or "")
    assert system.port_is_free(port)


def test_the_last_lines_of_a_long_log_are_read_from_its_end(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    assert last_lines(log, 3) == ["line 19997", "line 19998", "line 19999"]
    assert last_lines(log, 0) == []
    log.write_text("no newline")
    assert last_lines(log, 5) == ["no newline"]


def test_a_long_log_is_packed_away_and_its_writer_goes_on(made: Installation):
    log = made.log_file("api")
    with log.open("ab") as writer:  # as services do: opened once, appending
        for generation in range(KEEP_OLD + 2):
            writer.write(f"generation {generation}\n".encode() * 100)
            writer.flush()
            rotate(made.home, limit=1000)
            assert log.stat().st_size == 0
        writer.write(b"after\n")
    assert log.read_text() == "after\n"
    packed = sorted(made.log_dir.glob("api.log.*.gz"))
    assert [path.name for path in packed] == [f"api.log.{n}.gz" for n in range(1, KEEP_OLD + 1)]
    assert gzip.decompress(packed[0].read_bytes()).startswith(f"generation {KEEP_OLD + 1}\n".encode())


def test_help_teaches_and_a_missing_installation_is_explained(tmp_path: Path):
    runner = CliRunner()
    top = runner.invoke(cli, ["--help"])
    assert top.exit_code == 0
    for command in ("up", "down", "status", "logs", "doctor"):
        assert command in top.output
        assert runner.invoke(cli, [command, "--help"]).exit_code == 0
    for command in ("down", "status", "logs", "env"):
        answer = runner.invoke(cli, ["--home", str(tmp_path), command])
        assert answer.exit_code == 1, command
        assert "`weir up` creates it" in answer.output


def test_tables_align_and_spans_are_short():
    assert table(("A", "LONGER"), (("wide cell", "x"),)).splitlines() == ["A          LONGER", "wide cell  x"]
    assert [span(s) for s in (5, 65, 3700, 90_000)] == ["5s", "1m05s", "1h01m", "1d01h"]
