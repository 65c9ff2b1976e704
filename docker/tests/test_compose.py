"""docker/compose.yaml is what Compose reads, and says nothing that the programs do not know."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from build import targets
from composed import COMPOSE, Service, document, services
from jsonschema.validators import validator_for

from weir.computes import recorded
from weir.config import ADDRESSES, Settings
from weir.tokens import parts
from weir.tokens.keys import key_set_file, signing_key_file

DOCKER = COMPOSE.parent
CRATES = DOCKER.parent / "storage" / "crates"
# The programs of the engine that a service runs, and where their arguments are declared.
PROGRAMS = {
    "weir-safekeeper": CRATES / "safekeeper/src/bin/weir-safekeeper.rs",
    "weir-pageserver": CRATES / "pageserver/src/main.rs",
    "weir-proxy": CRATES / "proxy/src/bin/weir-proxy.rs",
    "weir-compute": CRATES / "compute/src/main.rs",
}
COMPOSED = document()
SERVICES = services(COMPOSED, {"observe"})
_LOOPBACK = re.compile(r"localhost|127\.0\.0\.|\[?::1\]?:")
_ARGUMENT = re.compile(r"#\[arg\(((?:[^()]|\([^()]*\))*)\)\]\s*(?:pub )?(\w+):", re.DOTALL)


# Of the containers.
CREDENTIALS = Path("/var/lib/weir/credentials")


def source_of(program: Path) -> str:
    """Where the program declares its options; those for tokens are declared once for all."""
    text = program.read_text()
    return text + (CRATES / "token/src/options.rs").read_text() if "TokenOptions" in text else text


def tokens_of_parts() -> dict[str, Path]:
    return {part.grant.subject: part.file for part in parts.services_apart(CREDENTIALS)}


def arguments_of(source: str) -> dict[str, str]:
    """Options of a program by its `clap` declarations: the name of the option's variable, or nothing."""
    found: dict[str, str] = {}
    for about, field in _ARGUMENT.findall(source):
        if "long" in about:
            variable = re.search(r'env = "(\w+)"', about)
            found[f"--{field.replace('_', '-')}"] = variable[1] if variable else ""
    return found


def required_of(source: str) -> set[str]:
    """Options without which the program does not start: they have no default and are no `Option`, or say so."""
    found: set[str] = set()
    for match in _ARGUMENT.finditer(source):
        about, field = match.groups()
        kind = source[match.end() :].split(",\n", 1)[0]
        optional = "default" in about or re.match(r"\s*(Option|Vec)<|\s*bool$", kind)
        if "long" in about and ("required = true" in about or not optional):
            found.add(f"--{field.replace('_', '-')}")
    return found


def program_of(service: Service) -> str:
    """The engine's program that the service runs; empty for others."""
    name = f"weir-{service.image.removeprefix('weir/').partition(':')[0]}"
    return name if name in PROGRAMS and name != "weir-compute" else ""


def test_it_is_a_compose_file_by_the_published_schema() -> None:
    package = find_spec("check_jsonschema")
    assert package is not None
    assert package.origin is not None
    vendored = Path(package.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text())
    validator = validator_for(schema)(schema)
    assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(COMPOSED)] == []
    broken = {**COMPOSED, "services": {"api": {"image": "weir/control", "read_only": "perhaps", "comand": []}}}
    assert not validator.is_valid(broken)


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_every_service_is_hardened_and_pinned(service: Service) -> None:
    raw = service.raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in raw["security_opt"]
    assert "privileged" not in raw
    ours, digest = r"weir/[a-z0-9]+:\d+\.\d+\.\d+", r"[a-z0-9./-]+:\d+\.\d+\.\d+@sha256:[0-9a-f]{64}"
    assert re.fullmatch(f"{ours}|{digest}", service.image), service.image
    assert service.health or raw["restart"] == "on-failure", "a service that stays has a health check"
    assert set(service.networks) <= set(COMPOSED["networks"])
    if raw.get("user") or raw.get("cap_add"):
        assert service.name == "worker", "the worker alone is root"


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_no_service_looks_for_another_one_on_loopback(service: Service) -> None:
    says = {**service.environment, **dict(enumerate([*service.command, *service.health]))}
    # What clients are told of the proxy is theirs, not a peer's address.
    says.pop("WEIR_PROXY_HOST", None)
    assert not {key: text for key, text in says.items() if _LOOPBACK.search(text)}
    # And every host that is named is a service.
    for text in says.values():
        for host in re.findall(r"(?:^|[/@,=])([a-z][a-z0-9-]*):\d{4,5}\b", text):
            assert host in SERVICES, (host, text)


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_secrets_are_files_and_nothing_else(service: Service) -> None:
    for name in service.secrets:
        assert set(COMPOSED["secrets"][name]) == {"file"}, name
    for name, value in service.environment.items():
        if re.search(r"PASSWORD|SECRET|TOKEN|KEY", name):
            assert value in service.secrets.values(), f"{name} has to name a secret's file"
    used = {*service.environment.values(), *(word.partition("=")[2] for word in service.command)}
    for path in (path for path in used if path.startswith("/run/secrets/")):
        assert path in service.secrets.values(), path


def test_no_secret_is_left_over_and_make_secrets_makes_each() -> None:
    used = {name for service in SERVICES.values() for name in service.secrets}
    assert used == set(COMPOSED["secrets"])
    made = set(re.findall(r"\| write (\S+)|write (\S+) <", (DOCKER / "make-secrets").read_text()))
    names = {one or other for one, other in made}
    text = (DOCKER / "make-secrets").read_text()
    names |= set(re.findall(r"\\\n    \| write (\S+)", text))
    assert {Path(secret["file"]).name for secret in COMPOSED["secrets"].values()} == names


def test_each_volume_is_written_by_one_service() -> None:
    written = [
        mount.source
        for service in SERVICES.values()
        for mount in service.mounts
        if mount.is_volume and not mount.read_only
    ]
    assert sorted(written) == sorted(COMPOSED["volumes"])
    for service in SERVICES.values():
        for mount in service.mounts:
            assert mount.source in written or (mount.read_only and (DOCKER / mount.source).is_dir()), mount


def mounted(volume: str) -> set[str]:
    return {name for name, service in SERVICES.items() for mount in service.mounts if mount.source == volume}


def test_keys_and_tokens_are_where_they_are_needed_and_nowhere_else() -> None:
    assert mounted("signing-key") == {"tokens", "api", "worker"}
    keepers = {"safekeeper-1", "safekeeper-2", "safekeeper-3"}
    assert mounted("public-keys") == {"tokens", "worker", "pageserver"} | keepers
    assert mounted("pageserver-token") == {"tokens", "pageserver"}
    assert mounted("safekeeper-token") == {"tokens"} | keepers
    assert mounted("prometheus-token") == {"tokens", "prometheus"}
    # Who has the key that signs everything is asked by nobody.
    assert SERVICES["tokens"].networks == []
    assert SERVICES["tokens"].raw["network_mode"] == "none"


@pytest.mark.parametrize("name", ["safekeeper-1", "safekeeper-2", "safekeeper-3", "pageserver"])
def test_a_part_of_storage_checks_tokens_and_shows_its_own(name: str) -> None:
    service = SERVICES[name]
    options = dict(word.split("=", 1) for word in service.command)
    part = name.partition("-")[0]
    assert options["--token-keys"] == str(key_set_file(CREDENTIALS))
    assert options["--token"] == str(tokens_of_parts()[part])
    targets = {mount.target for mount in service.mounts}
    assert {str(Path(options[option]).parent) for option in ("--token-keys", "--token")} <= targets
    assert service.after["tokens"] == "service_healthy"


def test_prometheus_shows_its_token_and_the_control_plane_finds_the_key() -> None:
    text = (DOCKER / "prometheus" / "prometheus.yml").read_text()
    assert f"credentials_file: {tokens_of_parts()['prometheus']}" in text
    for name in ("api", "worker", "tokens"):
        service = SERVICES[name]
        assert service.environment["WEIR_CREDENTIALS_DIR"] == str(CREDENTIALS)
        assert str(signing_key_file(CREDENTIALS).parent) in {mount.target for mount in service.mounts}
    # What a compute's token is for is noted below the worker's own home, which is read-only but for this.
    assert f"{CREDENTIALS.parent}/secrets/computes:mode=0700" in SERVICES["worker"].raw["tmpfs"]


def test_what_is_mounted_over_a_folder_of_an_image_has_its_owner() -> None:
    """A volume gets owner and mode of the folder at its place in the image that mounts it first."""
    stages = re.split(r"(?m)^(?=FROM )", (DOCKER / "Dockerfile").read_text())
    by_image = {found[1]: stage for stage in stages if (found := re.match(r"FROM \S+ AS (\S+)", stage))}
    for service in SERVICES.values():
        for mount in service.mounts:
            if mount.target.startswith(str(CREDENTIALS)):
                stage = by_image[service.image.removeprefix("weir/").partition(":")[0]].replace("\\\n", " ")
                made = re.findall(r"install -d -o weir -g weir -m 0700 ([^&\n]+)", stage)
                assert mount.target in " ".join(made).split(), (service.name, mount.target)


def test_only_three_services_can_be_reached_from_outside() -> None:
    assert COMPOSED["networks"]["weir"]["internal"] is True
    assert {name for name, service in SERVICES.items() if service.raw.get("ports")} == {"api", "proxy", "grafana"}
    assert {name for name, service in SERVICES.items() if "public" in service.networks} == {"api", "proxy", "grafana"}
    # Two of them as long as nobody says otherwise.
    assert set(services(COMPOSED)) == set(SERVICES) - {"traces", "grafana"}
    subnet = COMPOSED["networks"]["weir"]["ipam"]["config"][0]["subnet"]
    assert {service.environment.get("WEIR_INTERNAL_NETWORKS", subnet) for service in SERVICES.values()} == {subnet}


def test_every_image_is_a_target_of_the_dockerfile_and_every_target_is_used() -> None:
    used = {service.image for service in SERVICES.values() if service.image.startswith("weir/")}
    assert {image.removeprefix("weir/").partition(":")[0] for image in used} == set(targets())


def test_the_control_plane_is_given_every_address() -> None:
    for name in ("api", "worker", "migrate", "namespace"):
        environment = SERVICES[name].environment
        assert not {f"WEIR_{field.upper()}" for field in ADDRESSES} - set(environment), name
        # And settings take them.
        assert Settings.model_fields.keys() >= {
            key.removeprefix("WEIR_").lower() for key in environment if key.startswith("WEIR_")
        }


@pytest.mark.parametrize(
    "service", [service for service in SERVICES.values() if program_of(service)], ids=lambda service: service.name
)
def test_a_program_is_given_options_that_it_has_and_all_it_needs(service: Service) -> None:
    source = source_of(PROGRAMS[program_of(service)])
    given = {word.partition("=")[0] for word in service.command}
    assert given <= set(arguments_of(source))
    assert required_of(source) <= given


def test_the_declarations_are_read_as_clap_reads_them() -> None:
    """So that the checks above cannot pass on nothing."""
    found = {name: (arguments_of(source_of(path)), required_of(source_of(path))) for name, path in PROGRAMS.items()}
    assert found["weir-safekeeper"][1] == {"--id", "--listen-wal", "--listen-http", "--data-dir"}
    assert found["weir-pageserver"][1] == {"--data-dir", "--object-store"}
    assert found["weir-pageserver"][0]["--pg-bin-dir"] == "WEIR_PG_BIN_DIR"
    assert {"--listen", "--certificate", "--mock-secret"} <= found["weir-proxy"][1]
    assert "--pool-discard" not in found["weir-proxy"][1]
    assert found["weir-compute"][0]["--cache-mib"] == "WEIR_COMPUTE_CACHE_MIB"


def test_dependencies_are_services_and_end() -> None:
    waiting = {name: set(service.after) for name, service in SERVICES.items()}
    while ready := {name for name, after in waiting.items() if not after & set(waiting)}:
        waiting = {name: after for name, after in waiting.items() if name not in ready}
    assert waiting == {}
    assert {other for service in SERVICES.values() for other in service.after} <= set(SERVICES)


def _table(text: str, heading: str) -> dict[str, str]:
    """The first column of the table below a heading, in backticks, and the second one."""
    section = re.split(r"(?m)^#+ ", text.split(heading, 1)[1])[0]
    return dict(re.findall(r"(?m)^\| `([^`]+)` \| ([^|]*?) \|", section))


def test_the_table_of_variables_is_that_of_the_code() -> None:
    text = (DOCKER / "README.md").read_text()
    control = _table(text, "## Variables of the control plane")
    assert set(control) == {f"WEIR_{name.upper()}" for name in Settings.model_fields}
    programs = _table(text, "## Variables of the other programs")
    from_code = {name for path in PROGRAMS.values() for name in arguments_of(source_of(path)).values() if name}
    scripts = "".join(path.read_text() for path in (DOCKER / "bin").iterdir())
    from_code |= set(re.findall(r"\bWEIR_[A-Z_0-9]+\b", scripts)) - {"WEIR_"}
    telemetry = "".join(path.read_text() for path in (CRATES / "telemetry/src").rglob("*.rs"))
    from_code |= set(re.findall(r'"(WEIR_[A-Z_]+|OTEL_EXPORTER_[A-Z_]+)"', telemetry))
    assert from_code <= set(programs), from_code - set(programs)
    # What libraries read, and no source of ours names.
    others = {"RUST_LOG", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "SSL_CERT_FILE"}
    assert set(programs) - others == from_code


def test_every_variable_of_a_service_is_in_a_table() -> None:
    text = (DOCKER / "README.md").read_text()
    headings = ("## Variables of the control plane", "## Variables of the other programs")
    known = {name for heading in headings for name in _table(text, heading)}
    for service in SERVICES.values():
        # Those of Grafana are Grafana's, and in its documentation.
        assert {name for name in service.environment if not name.startswith("GF_")} <= known, service.name


def components(section: str) -> set[str]:
    """What weir-collector is built with, by the names that its configuration calls them."""
    source = (DOCKER / "collector" / "main.go").read_text()
    found = set(re.findall(rf'"\S+/{section}/(\w+){section}"', source))
    return {"memory_limiter" if name == "memorylimiter" else str(name) for name in found}


def test_the_collectors_configuration_uses_what_it_is_built_with() -> None:
    config = yaml.safe_load((DOCKER / "collector" / "config.yaml").read_text())
    assert components("exporter") == {"file", "debug", "otlphttp"}
    for section in ("receiver", "processor", "exporter"):
        assert set(config[f"{section}s"]) <= components(section)
    (pipeline,) = config["service"]["pipelines"].values()
    for section in ("receivers", "processors", "exporters"):
        assert set(pipeline[section]) == set(config[section]), f"each of the {section} is used"
    path = Path(config["exporters"]["file"]["path"])
    assert [mount.target for mount in SERVICES["traces"].mounts] == [str(path.parent)]


def test_the_collector_listens_where_programs_are_told_to_send() -> None:
    text = (DOCKER / "README.md").read_text()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://traces:4318" in text
    config = yaml.safe_load((DOCKER / "collector" / "config.yaml").read_text())
    assert config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")


def test_the_api_is_served_as_weir_up_has_it_served() -> None:
    assert '\nCMD ["python", "-m", "weir.serve", "--host", "0.0.0.0", ' in (DOCKER / "Dockerfile").read_text()


def test_rules_of_prometheus_are_those_of_the_code() -> None:
    text = (DOCKER / "prometheus" / "prometheus.yml").read_text()
    assert "scrape_interval: 1s" in text
    assert Settings.model_fields["scrape_interval_seconds"].default == 1
    written: Mapping[str, Any] = json.loads((DOCKER / "prometheus" / "rules.yml").read_text())
    assert written == json.loads(recorded.rules(1))


def test_files_that_the_python_packages_link_to_are_copied_beside_them() -> None:
    """A wheel cannot be built over a link that leads nowhere."""
    repo, text = DOCKER.parent, (DOCKER / "Dockerfile").read_text()
    links = [path for folder in ("backend/weir", "workflows/weir_workflows") for path in (repo / folder).rglob("*")]
    linked = {path.resolve().relative_to(repo).as_posix() for path in links if path.is_symlink()}
    assert linked
    assert not [target for target in linked if f"COPY {target} " not in text]


def test_bases_are_pinned_and_the_same_everywhere() -> None:
    written = [line for path in DOCKER.glob("*Dockerfile") for line in path.read_text().splitlines()]
    bases = {line for line in written if line.startswith("ARG BASE=")}
    assert len(bases) == 1
    assert re.fullmatch(r"ARG BASE=docker\.io/library/debian:bookworm-slim@sha256:[0-9a-f]{64}", bases.pop())
    for path in DOCKER.glob("*Dockerfile"):
        for source in re.findall(r"(?m)^FROM (\S+)", path.read_text()):
            assert re.fullmatch(r"\$\{[A-Z]+\}|scratch|plain|with-postgres", source), (path.name, source)
