"""Parts that ask for tokens: what is open outlives its token, what asks anew needs a good one, and a renewed one is
enough to go on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from credentials import Credentials, Managing
from harness import Compute, Engine, engine, lsn, metric, wait_for

from weir.tokens import parts


@pytest.fixture
def guarded() -> Generator[Engine]:
    # Below /tmp, because Postgres runs unprivileged and must be able to reach it.
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root, credentials=Credentials(root)) as running:
        yield running


def rotate(running: Engine) -> None:
    """All other keys are gone at once, and nobody has renewed a token."""
    credentials = running.credentials
    assert credentials is not None
    credentials.files.rotate(time.time, lambda _: None)
    credentials.files.forget_others()
    # Parts look at the key set twice a second.
    time.sleep(1.5)


def renew(running: Engine, compute: Compute) -> None:
    assert running.credentials is not None
    spec: dict[str, Any] = {"compute_id": compute.process.name, "tenant_id": compute.timeline.tenant}
    spec["timeline_id"] = compute.timeline.id
    running.credentials.renew(parts.compute(compute.directory, spec))


def refusals(running: Engine, reason: str) -> float:
    return metric(running.storage, "weir_token_refusals_total", reason=reason)


def test_what_is_open_outlives_its_token_and_a_renewed_one_heals(guarded: Engine):
    timeline = guarded.create_timeline()
    compute = guarded.compute(timeline)
    compute.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 10000) AS n")
    assert httpx.get(f"http://127.0.0.1:{guarded.pageserver_http_port}/v1/tenant", timeout=5).status_code == 401
    assert compute.http.get("/status").json()["authentication"] == "tokens"

    rotate(guarded)
    # Commits go to a majority on the connections that are open.
    for _ in range(3):
        compute.sql("INSERT INTO t SELECT 0")
    assert compute.http.get("/status").json()["state"] == "running"
    wait_for("questions with the old key to be refused", lambda: refusals(guarded, "unknown_key"), 30)

    # What breaks off does not come back by itself: the pageserver has nobody to read from, and says nothing wrong.
    guarded.pageserver.kill9()
    guarded.pageserver.start()
    compute.sql("INSERT INTO t SELECT 0")
    renew(guarded, compute)
    wait_for("reads to go on", lambda: compute.sql("SELECT count(*) FROM t")[0][0] == 10004, 60)
    status = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"
    end = compute.http.get("/status").json()["commit_lsn"]

    def ingested() -> bool:
        answer = guarded.storage.get(status)
        return answer.is_success and lsn(answer.json()["last_record_lsn"]) >= lsn(end)

    wait_for("ingest to go on", ingested, 60)


def test_a_part_that_is_to_ask_for_tokens_does_not_start_without_keys(tmp_path: Path):
    running = Engine(tmp_path, credentials=Credentials(tmp_path))
    assert running.credentials is not None
    running.credentials.files.public.write_text('{"keys": []}')
    try:
        with pytest.raises((AssertionError, RuntimeError, TimeoutError)):
            running.start()
        assert "token-keys" in (tmp_path / "safekeeper-1.log").read_text()
    finally:
        running.close()


def test_a_part_without_keys_says_that_it_authenticates_nobody(tmp_path: Path):
    running = Engine(tmp_path)
    try:
        running.start()
        assert running.storage.get("/healthz").json()["authentication"] == "none"
        keeper = httpx.get(f"http://127.0.0.1:{running.http_ports[0]}/healthz", timeout=5).text
        assert "authentication: none" in keeper
        for name in ("pageserver", "safekeeper-1"):
            assert "authenticates NOBODY" in (tmp_path / f"{name}.log").read_text()
    finally:
        running.close()


@pytest.mark.parametrize("part", ["pageserver", "safekeeper"])
def test_tokens_of_a_tool_are_for_one_part(guarded: Engine, part: str):
    """The helper of these tests asks as a stranger would where it has the wrong name."""
    port = guarded.pageserver_http_port if part == "pageserver" else guarded.http_ports[0]
    path = "/v1/tenant" if part == "pageserver" else "/v1/timelines"
    other = {"pageserver": "safekeeper", "safekeeper": "pageserver"}[part]
    url = f"http://127.0.0.1:{port}{path}"
    assert httpx.get(url, auth=Managing(guarded.credentials, part), timeout=5).status_code == 200
    assert httpx.get(url, auth=Managing(guarded.credentials, other), timeout=5).status_code == 401
