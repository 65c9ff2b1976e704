"""`[security] tls`: what services, control plane and Prometheus are told of it, and what `weir certificates` says."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from weir.cli import installation as installations
from weir.cli import prometheus_files, proofs
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.main import cli
from weir.cli.services import services, supervisor_config
from weir.cli.system import Process
from weir.config import Settings
from weir.fleet.service import targets
from weir.tls import authority, parts

SETTING = re.compile(r"\ntls = (true|false)")
OFF, ON = "\ntls = false", "\ntls = true"
PART_OPTION = ("--tls", "/somewhere/secrets/parts/computes/ep-a.pem")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("temporal", "process-compose", "prometheus"):
        (tools / name).touch()
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_TOOLS_DIR", str(tools))
    monkeypatch.setenv("WEIR_BIN_DIR", str(tools))
    return switched(installations.create(tmp_path / "home", 17400), ON)


@pytest.fixture
def plain(made: Installation) -> Installation:
    """The same installation once its operator has switched TLS between parts off; `made` is as it was before."""
    return switched(made, OFF)


def switched(installation: Installation, setting: str) -> Installation:
    text, count = SETTING.subn(setting, installation.config_file.read_text())
    assert count == 1
    installation.config_file.write_text(text)
    return installations.load(installation.home)


def test_an_installation_of_before_the_setting_keeps_what_it_has_and_is_told(made: Installation):
    assert made.has_tls
    before, _, behind = made.config_file.read_text().partition("[security]")
    made.config_file.write_text(before + behind[behind.index("[storage]") :])
    older = installations.load(made.home)
    assert not older.has_tls
    # `weir up` of a newer version changes nothing of it.
    assert not installations.create(made.home, None).has_tls
    (said,) = proofs.unproven(older)
    assert str(made.config_file) in said
    assert proofs.unproven(made) == []


def process(pid: int, *words: str) -> Process:
    return Process(pid, "worker", 1, " ".join(words))


def test_computes_that_were_started_before_the_setting_was_changed_are_told_from_the_others(
    made: Installation, plain: Installation
):
    agent = ("/opt/weir/weir-compute", "--spec", "/somewhere/spec.json", "--dir", "/somewhere")
    running = [
        process(1, *agent),
        process(2, *agent, *PART_OPTION),
        process(3, "/opt/weir/weir-safekeeper", "--id", "1"),
        process(4, "postgres: writer --spec"),
        process(5),
    ]
    assert proofs.left_behind(made, running) == [1]
    assert proofs.left_behind(plain, running) == [2]
    # Whoever stops them has to speak as they do.
    assert not proofs.as_started(made, running[:1]).has_tls
    assert "WEIR_TLS_FILE" not in proofs.as_started(made, running[:1]).environment()
    assert proofs.as_started(plain, running[1:]).environment()["WEIR_PAGESERVER_HTTP"].startswith("https://")
    assert proofs.as_started(made, running[1:]) is made
    assert proofs.as_started(plain, [running[0], *running[2:]]) is plain


def test_no_service_can_hold_up_the_renewal_of_certificates(made: Installation):
    """Who could open the lock's file could lock it."""
    proofs.prepare(made)
    (authority.tls_dir(made.home) / ".lock").chmod(0o644)
    proofs.prepare(made)
    files = [path for path in authority.tls_dir(made.home).rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_without_it_nobody_is_told_anything_of_tls(plain: Installation):
    assert not plain.has_tls
    told = supervisor_config(plain, services(plain)) + prometheus_files.config(plain)
    assert not [
        word
        for word in ("--tls", "WEIR_TLS", "https://127", "tls_config", "weir-probe", "--web.config")
        if word in told
    ]
    proofs.prepare(plain)
    assert not authority.tls_dir(plain.home).exists()
    result = CliRunner().invoke(cli, ["certificates", "list"], env={"WEIR_HOME": str(plain.home)})
    assert result.exit_code != 0


def test_each_part_is_told_its_own_file_and_asked_by_a_probe(made: Installation):
    proofs.prepare(made)
    by_name = {service.name: service for service in services(made)}
    for name in ("pageserver", "safekeeper-1", "safekeeper-2", "safekeeper-3"):
        service = by_name[name]
        file = service.command[list(service.command).index("--tls") + 1]
        assert file == str(parts.service_file(made.home, name))
        assert Path(file).is_file()
        assert not isinstance(service.health, str)
        kind = name.partition("-")[0]
        assert service.health[0].endswith("/weir-probe")
        assert service.health[1:] == [kind, made.address(service.ports[1]), "--tls", file]
    environment = made.environment()
    control = str(parts.control_file(made.home))
    assert environment["WEIR_TLS_FILE"] == control
    addresses = [environment["WEIR_PAGESERVER_HTTP"], *environment["WEIR_SAFEKEEPERS_HTTP"].split(",")]
    assert all(address.startswith("https://127.0.0.1:") for address in addresses)
    # The API, and what belongs to no part, as before.
    assert environment["WEIR_API_URL"].startswith("http://")
    # No secret is where others can read it.
    told = supervisor_config(made, services(made)) + prometheus_files.config(made)
    for file in authority.tls_dir(made.home).rglob("*.pem"):
        if file != parts.authorities_file(made.home):
            assert file.read_text().splitlines()[1] not in told


def test_prometheus_lets_nobody_in_without_a_certificate(made: Installation):
    proofs.prepare(made)
    (prometheus,) = [service for service in services(made) if service.name == "prometheus"]
    assert f"--web.config.file={prometheus_files.web_file(made)}" in prometheus.command
    file = str(parts.service_file(made.home, "prometheus"))
    assert prometheus.health[-4:] == ["prometheus", made.address("prometheus"), "--tls", file]
    server = json.loads(prometheus_files.web_config(made))["tls_server_config"]
    # Any other word asks for a certificate and takes none as well.
    assert server["client_auth_type"] == "RequireAndVerifyClientCert"
    assert server["min_version"] == "TLS13"
    assert all(Path(server[name]).is_file() for name in ("cert_file", "key_file", "client_ca_file"))
    # Its own folder, where Prometheus writes, is no place for what root reads or writes.
    assert prometheus_files.web_file(made).parent == made.run_dir
    assert made.environment()["WEIR_PROMETHEUS_URL"].startswith("https://")


def test_prometheus_asks_parts_and_itself_by_tls_and_the_others_as_before(made: Installation):
    (weir, itself, *others) = json.loads(prometheus_files.config(made))["scrape_configs"]
    assert weir["tls_config"]["server_name"] == parts.ANY_PORT
    # Without the word a Prometheus of 2.42 shows the token behind nothing, which the API takes for none.
    (discovery,) = weir["http_sd_configs"]
    assert discovery["authorization"] == {
        "type": "Bearer",
        "credentials_file": str(made.token_file("prometheus")),
    }
    assert (itself["scheme"], itself["tls_config"]["server_name"]) == ("https", "prometheus")
    assert weir["tls_config"]["min_version"] == itself["tls_config"]["min_version"] == "TLS13"
    assert all("tls_config" not in job and "scheme" not in job for job in others)
    environment = made.environment()
    settings = Settings(
        tls_file=Path(environment["WEIR_TLS_FILE"]),
        pageserver_http=environment["WEIR_PAGESERVER_HTTP"],
        safekeepers_http=environment["WEIR_SAFEKEEPERS_HTTP"],
    )
    scheme = {group.labels["job"]: group.labels.get("__scheme__", "http") for group in targets([], settings)}
    assert scheme == {"api": "http", "worker": "http", "pageserver": "https", "safekeeper": "https"}


@pytest.mark.parametrize("value", ['"yes"', "1", '""', "[]"])
def test_what_is_neither_true_nor_false_is_refused(plain: Installation, value: str):
    plain.config_file.write_text(plain.config_file.read_text().replace(OFF, f"\ntls = {value}"))
    with pytest.raises(CliError, match="true or false"):
        installations.load(plain.home)


def test_the_environment_decides_over_the_file_and_a_simulated_fleet_has_none(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    assert made.has_tls
    monkeypatch.setenv("WEIR_TLS", "false")
    assert not installations.load(made.home).has_tls
    monkeypatch.setenv("WEIR_TLS", "true")
    monkeypatch.setenv("WEIR_COMPUTE_RUNTIME", "simulated")
    simulated = installations.load(made.home)
    assert not simulated.has_tls
    assert proofs.unproven(simulated) == []


def test_the_command_lists_and_replaces_cas(made: Installation, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(authority, "READ_SECONDS", 0.01)
    proofs.prepare(made)

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, ["certificates", *words], env={"WEIR_HOME": str(made.home)})
        assert result.exit_code == 0, result.output
        return result.output

    def listed() -> list[dict[str, str]]:
        return json.loads(run("list", "--json"))

    (first,) = listed()
    assert first["does"] == "signs"
    run("rotate")
    second, old = listed()
    assert (second["does"], old["does"], old["ca"]) == ("signs", "signed before", first["ca"])
    assert second["ca"] != first["ca"]
    run("rotate", "--at-once")
    (third,) = listed()
    assert third["ca"] not in {first["ca"], second["ca"]}
    shown = run("list")
    assert third["ca"] in shown
    assert "PRIVATE" not in shown
