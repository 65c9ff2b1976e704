"""`/healthz` and `/metrics` of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Self

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS
from weir.tokens.check import Checker, Refused
from weir.tokens.mint import Right


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """The worker handles its signals itself: it finishes its activities before this server ends."""
        yield


class Health:
    """Answers 503 until `ready` is set: the worker polls for work then. Raises OSError when the port is taken, or the
    host is none of this machine."""

    def __init__(self, port: int, host: str = "127.0.0.1", checker: Checker | None = None) -> None:
        """`checker`: of the tokens by which figures are read; None: everybody reads them."""
        self._port = port
        self._host = host
        self._checker = checker
        self.ready = False

    async def __aenter__(self) -> Self:
        app = FastAPI(openapi_url=None, exception_handlers={404: _not_found})
        app.add_api_route("/healthz", self._healthz)
        app.add_api_route("/metrics", self._metrics)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=SERVER_KEEP_ALIVE_SECONDS,
        )
        self._socket = _listen(self._host, self._port)
        # Connections inherit it. asyncio sets it only on sockets that it has made; without it an answer waits 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.should_exit = True
        await self._serving
        self._socket.close()

    async def _healthz(self) -> Response:
        if self.ready:
            return JSONResponse({"status": "ok"})
        message = "the worker has not reached Temporal yet; it keeps trying"
        return JSONResponse({"code": "STARTING", "message": message}, status_code=503)

    async def _metrics(self, request: Request) -> Response:
        try:
            if self._checker is not None:
                self._checker.check(request.headers.get("authorization"), Right.METRICS)
        except Refused as refused:
            message = f"this is for the installation's own Prometheus: {refused}"
            return JSONResponse({"code": "UNAUTHORIZED", "message": message}, status_code=401)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _listen(host: str, port: int) -> socket.socket:
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family)


async def _not_found(request: Request, error: Exception) -> Response:
    body = {"code": "NOT_FOUND", "message": "the worker serves /healthz and /metrics"}
    return JSONResponse(body, status_code=404)
