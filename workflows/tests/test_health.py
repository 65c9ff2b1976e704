"""What the worker answers on its port: whether it takes work, and its metrics."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import httpx
import pytest
from weir_testing.programs import free_port

from weir.tokens import parts
from weir.tokens.check import Checker
from weir.tokens.keys import KeyFiles, read_signing_key
from weir.tokens.mint import sign
from weir_workflows.common.health import Health


async def test_the_worker_is_healthy_once_it_polls_and_its_metrics_are_there_before() -> None:
    port = free_port()
    async with Health(port) as health, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        starting = await client.get("/healthz")
        assert (starting.status_code, starting.json()["code"]) == (503, "STARTING")
        health.ready = True
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        metrics = await client.get("/metrics?name=unread")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert "# TYPE" in metrics.text
        missing = await client.get("/elsewhere")
        assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/healthz")


async def test_its_figures_are_for_prometheus_where_there_are_keys(tmp_path: Path) -> None:
    port, files = free_port(), KeyFiles(tmp_path)
    for name in ("run", "secrets"):
        (tmp_path / name).mkdir(mode=0o700)
    async with (
        Health(port, checker=Checker(tmp_path)),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/metrics")).status_code == 200, "nobody has tokens without keys"
        files.prepare(time.time())
        (grant,) = [part.grant for part in parts.services(tmp_path) if part.grant.subject == "prometheus"]
        token = sign(read_signing_key(files.private), grant, time.time(), 300)
        refused = await client.get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHORIZED")
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})).status_code == 200
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {token}x"})).status_code == 401
        # Who looks whether it is well has no token.
        assert (await client.get("/healthz")).status_code == 503


async def test_the_worker_answers_where_its_host_leads() -> None:
    port = free_port()
    async with Health(port, "localhost"), httpx.AsyncClient() as client:
        assert (await client.get(f"http://localhost:{port}/healthz")).status_code == 503
    with pytest.raises(OSError, match=r"not known|resolution"):
        await Health(port, "no-such-host.invalid").__aenter__()


async def test_a_port_that_is_taken_is_an_error() -> None:
    port = free_port()
    async with Health(port):
        with pytest.raises(OSError, match="in use"):
            await Health(port).__aenter__()


async def test_signals_stay_with_the_worker() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with Health(free_port()):
        await asyncio.sleep(0.1)
        assert signal.getsignal(signal.SIGTERM) is before


async def test_a_connection_outlives_a_client_s_pause_of_six_seconds() -> None:
    """A server that closes one just as a request is sent on it costs a scrape, or a probe of the worker's health."""
    port = free_port()
    async with Health(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for pause in (0, 6):
            await asyncio.sleep(pause)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: worker\r\n\r\n")
            assert (await reader.read(4096)).startswith(b"HTTP/1.1 503 ")
        writer.close()
        await writer.wait_closed()


async def test_its_end_waits_for_no_idle_connection_and_frees_the_port() -> None:
    port = free_port()
    loop = asyncio.get_running_loop()
    async with Health(port):
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        began = loop.time()
    assert loop.time() - began < 10
    silent.close()
    async with Health(port):
        pass
