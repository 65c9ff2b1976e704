"""`/healthz` and `/metrics` of the worker: the two paths it serves do not need a web framework."""

import asyncio
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

READ_TIMEOUT_SECONDS = 5.0


class Health:
    """Answers 503 until `ready` is set: the worker polls for work then."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.ready = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            parts = head.split(b" ", 2)
            path = parts[1].decode(errors="replace") if len(parts) > 1 else ""
            writer.write(self._answer(path.split("?")[0]))
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str) -> bytes:
        if path == "/metrics":
            return _response("200 OK", CONTENT_TYPE_LATEST, generate_latest())
        if path == "/healthz" and self.ready:
            return _response("200 OK", "application/json", b'{"status": "ok"}')
        if path == "/healthz":
            body = b'{"code": "STARTING", "message": "the worker has not reached Temporal yet; it keeps trying"}'
            return _response("503 Service Unavailable", "application/json", body)
        body = b'{"code": "NOT_FOUND", "message": "the worker serves /healthz and /metrics"}'
        return _response("404 Not Found", "application/json", body)


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
