"""What the images promise, of a whole Weir of containers wired as docker/compose.yaml says: `make test-images`."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import time
from typing import LiteralString
from urllib.parse import urlsplit

import httpx
import psycopg
from boards import names, promql
from boards.all import DASHBOARDS
from containers import run
from cryptography import x509
from running import DOCKER, Installation
from weirbench.api import push_down

NOT_ROOT = (
    *("safekeeper-1", "pageserver", "proxy", "api", "s3", "temporal", "postgres", "prometheus", "tokens", "traces"),
)


def _query(weir: Installation, uri: str, query: LiteralString) -> tuple[object, ...]:
    """The first row."""
    with weir.connect(uri) as connection:
        found = connection.execute(query).fetchone()
    assert found is not None
    return found


def _rows(weir: Installation, uri: str) -> tuple[object, ...]:
    return _query(weir, uri, "SELECT count(*), sum(n) FROM story")


def _database(weir: Installation, name: str) -> tuple[str, str]:
    """A new project and where its database is."""
    made = weir.api.request("POST", "/projects", {"project": {"name": name}})
    weir.api.wait_operations(made["operations"])
    return made["project"]["id"], made["connection_uris"][0]["connection_uri"]


def test_a_database_survives_a_safekeeper_and_its_computes_container(weir: Installation) -> None:
    _, uri = _database(weir, "shop")
    assert urlsplit(uri).hostname == "localhost"
    with weir.connect(uri) as connection:
        connection.execute("CREATE TABLE story AS SELECT n FROM generate_series(1, 1000) AS n")
        # A lost safekeeper costs no commit: two of three are a majority.
        weir.containers.kill("safekeeper-2")
        connection.execute("INSERT INTO story SELECT n FROM generate_series(1001, 2000) AS n")
    assert _rows(weir, uri) == (2000, 2001000)
    weir.containers.start("safekeeper-2")
    weir.containers.wait("safekeeper-2", 60)
    # The compute dies with the container that it runs in; what should run is stored, and starts again.
    weir.containers.kill("worker")
    weir.containers.start("worker")
    weir.containers.wait("worker", 120)
    deadline = time.monotonic() + 120
    while True:
        try:
            assert _rows(weir, uri) == (2000, 2001000)
            break
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
    # What it wrote is in the bucket, since layers are nowhere else for good.
    status, said = weir.containers.execute("s3", "find", "/var/lib/weir/objects/weir/layers", "-type", "f")
    assert status == 0
    assert said.strip()


def test_pushdown_is_switched_by_a_rollout_and_the_pageserver_makes_the_images_then(weir: Installation) -> None:
    """Promise: a rollout switches full page writes off on a running compute, a killed pageserver loses nothing, and
    pages that a compute does not hold any more come from it as they were written."""
    project, uri = _database(weir, "rolled-out")
    with weir.connect(uri) as connection:
        connection.execute("CREATE TABLE story AS SELECT n FROM generate_series(1, 5000) AS n")
        assert _query(weir, uri, "SHOW full_page_writes") == ("on",)
        ended = push_down(weir.api, project, "images move to storage", 120)
        assert ended["status"] == "completed", ended["status_reason"]
        # The same session: nothing was restarted.
        assert connection.execute("SHOW full_page_writes").fetchone() == ("off",)
        # More versions of each page than the threshold of a chain, so that images are due.
        for _ in range(12):
            connection.execute("UPDATE story SET n = n + 1")
    weir.containers.kill("pageserver")
    with weir.connect(uri) as connection:
        connection.execute("INSERT INTO story SELECT n FROM generate_series(1, 1000) AS n")
    weir.containers.start("pageserver")
    weir.containers.wait("pageserver", 120)
    expected = (6000, 5000 * 5001 // 2 + 12 * 5000 + 1000 * 1001 // 2)
    assert _rows(weir, uri) == expected
    # A compute that starts again holds no pages: it reads each from the pageserver.
    endpoint = weir.api.get(f"/projects/{project}/endpoints")["endpoints"][0]["id"]
    restarted = weir.api.request("POST", f"/projects/{project}/endpoints/{endpoint}/restart")
    weir.api.wait_operations(restarted["operations"])
    assert _rows(weir, uri) == expected


def test_what_is_for_the_installations_own_parts_is_refused_from_outside(weir: Installation) -> None:
    token = (weir.secrets / "proxy_token").read_text().strip()
    for path in ("/internal/prometheus/targets", "/internal/proxy/endpoints/ep-no-such-12345678"):
        address = weir.public("api")
        answer = httpx.get(f"http://{address}:7400{path}", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 403, path
        inside = weir.inside("api")
        answer = httpx.get(f"http://{inside}:7400{path}", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200, path


def test_prometheus_scrapes_every_part(weir: Installation) -> None:
    url = f"{weir.prometheus}/api/v1/targets"
    wanted = {"api", "worker", "proxy", "pageserver", "safekeeper", "temporal", "prometheus"}
    deadline = time.monotonic() + 60
    while True:
        active = httpx.get(url).json()["data"]["activeTargets"]
        up = {target["labels"]["job"] for target in active if target["health"] == "up"}
        if wanted <= up:
            return
        assert time.monotonic() < deadline, f"not scraped: {wanted - up}; {[t['lastError'] for t in active]}"
        time.sleep(1)


def test_every_metric_that_a_panel_asks_for_is_there(weir: Installation) -> None:
    """Of Temporal, whose metrics are a list and not read out of a source. Errors come when there are some."""
    weir.api.wait_operations(weir.api.request("POST", "/projects", {"project": {"name": "measured"}})["operations"])
    url = f"{weir.prometheus}/api/v1/label/__name__/values"
    asked = {
        name
        for board in DASHBOARDS
        for panel in board.panels
        for query in panel.queries
        for name in promql.names(query.expr)
    }
    of_temporal = {name for name in asked if not name.startswith(("weir", "ALERTS", "up"))}
    wanted = {name for name in of_temporal if not re.search("error|failed|timeout|terminate", name)}
    assert len(wanted) > 3
    wanted |= {"weir_operations_ended_total", "weir_proxy_certificate_not_after_timestamp_seconds", "weir_compute_up"}
    deadline = time.monotonic() + 60
    while not wanted <= (there := set(httpx.get(url, timeout=30).json()["data"])):
        assert time.monotonic() < deadline, sorted(wanted - there)
        time.sleep(2)
    # What the programs say is what their sources were read to say; Python's library says of each when it was made.
    said = {name for name in there if name.startswith("weir_") and not name.endswith("_created")}
    unknown = sorted(said - names.series())
    assert not unknown, f"in no source as docker/grafana/boards/names.py reads them: {unknown}"


def test_prometheus_has_the_alerts_and_none_fires_on_what_is_well(weir: Installation) -> None:
    rules = httpx.get(f"{weir.prometheus}/api/v1/rules?type=alert", timeout=30).json()["data"]["groups"]
    states = {rule["name"]: (rule["health"], rule["state"]) for group in rules for rule in group["rules"]}
    assert len(states) > 25
    assert {health for health, _ in states.values()} <= {"ok", "unknown"}
    assert not {name for name in ("WeirPortOpen", "WeirCertificateExpires") if states[name][1] == "firing"}


def test_the_proxy_says_when_its_certificate_expires(weir: Installation) -> None:
    certificate = x509.load_pem_x509_certificate((weir.secrets / "proxy_certificate").read_bytes())
    text = httpx.get(f"http://{weir.inside('proxy')}:7433/metrics", timeout=30).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    said = dt.datetime.fromtimestamp(float(lines["weir_proxy_certificate_not_after_timestamp_seconds"]), dt.UTC)
    assert said == certificate.not_valid_after_utc


def test_traces_of_the_programs_lie_in_the_collectors_file(weir: Installation) -> None:
    weir.api.request("GET", "/projects")
    path = weir.containers.volume("traces") / "traces.jsonl"
    wanted = {"weir-api", "weir-worker", "weir-pageserver"}
    deadline = time.monotonic() + 60
    while True:
        found = {
            attribute["value"]["stringValue"]
            for line in (path.read_text().splitlines() if path.exists() else [])
            for resource in json.loads(line)["resourceSpans"]
            for attribute in resource["resource"]["attributes"]
            if attribute["key"] == "service.name"
        }
        if wanted <= found:
            return
        assert time.monotonic() < deadline, f"no traces of {wanted - found}"
        time.sleep(1)


def test_programs_are_no_root_on_a_root_that_they_cannot_write(weir: Installation) -> None:
    for name in NOT_ROOT:
        status, said = weir.containers.execute(name, "id", "-u")
        assert status == 0
        assert said.strip() != "0", name
    for name in (*NOT_ROOT, "worker"):
        status, said = weir.containers.execute(name, "touch", "/etc/weir-was-here", "/usr/bin/weir-was-here")
        assert status != 0
        assert "Read-only file system" in said or "Permission denied" in said, name


def test_no_image_holds_a_compiler_or_a_secret(weir: Installation) -> None:
    values = [path.read_text().strip() for path in weir.secrets.iterdir() if path.name != "proxy_certificate"]
    commit = run("git", "-C", DOCKER, "rev-parse", "HEAD").strip()
    for service in weir.containers.services.values():
        root, config = weir.containers.image(service)
        for compiler in ("gcc", "cc", "clang", "rustc", "cargo", "go", "node", "make", "uv"):
            for folder in ("usr/bin", "usr/local/bin", "opt/weir/bin"):
                assert not (root / folder / compiler).exists(), (service.image, compiler)
        assert not list((root / "etc/ssl/private").glob("*")), f"{service.image} has a key that all its users share"
        labels = config["Labels"]
        assert labels["org.opencontainers.image.revision"] == commit, f"{service.image}: build the images again"
        assert labels["org.opencontainers.image.version"] == "0.1.0"
        spec = (weir.containers.folder / service.name / "config.json").read_text()
        log = weir.containers.log(service.name)
        assert not [value for value in values if value in spec or value in log], service.name


def test_the_control_plane_in_the_images_is_this_checkouts(weir: Installation) -> None:
    for name in ("api", "worker"):
        root, _ = weir.containers.image(weir.containers.services[name])
        (packages,) = root.glob("opt/weir/lib/python3*/site-packages")
        for folder in ("backend/weir", "workflows/weir_workflows"):
            sources = [path for path in (DOCKER.parent / folder).rglob("*.py") if path.is_file()]
            assert sources
            for path in sources:
                inside = packages / path.relative_to((DOCKER.parent / folder).parent)
                assert inside.read_bytes() == path.read_bytes(), f"{path}: build the images again"


def test_a_program_without_an_address_says_which_one_is_missing(weir: Installation) -> None:
    root, _ = weir.containers.image(weir.containers.services["api"])
    result = subprocess.run(
        [
            "chroot",
            str(root),
            "/usr/bin/env",
            "-i",
            "WEIR_DEPLOYMENT=services",
            "/opt/weir/bin/weir-admin",
            "migrate",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode != 0
    assert "WEIR_PAGESERVER_HTTP" in result.stderr
    assert "WEIR_SAFEKEEPERS_WAL" in result.stderr
