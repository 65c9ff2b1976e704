"""What the worker answers on its port: whether it takes work, and its metrics."""

from __future__ import annotations

import asyncio
import signal

import httpx
import pytest
from weir_testing.programs import free_port

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
