"""uvicorn's HTTP/1.1 with bounds on the head of a request, which it has none of.

What is read before all headers are there is kept in memory, and no middleware sees it. `uvicorn --http` takes the
name of the class below (`weir.kit.http.SERVER_PROTOCOL`).
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

# Well above what the gate takes (weir.front.checks), which answers in the API's own shape: data comes in pieces of up
# to 256 KiB, and one may hold the end of a body as well.
MOST_HEAD_BYTES = 512 * 1024
HEAD_SECONDS = 30.0


class BoundedHttp(HttpToolsProtocol):
    """Ends connections whose head is longer than MOST_HEAD_BYTES (431), or not there `head_seconds` after the
    connection or the head began."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes = 0
        self._in_head = True
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        if self._patience is None:
            self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(STATUS_LINE[431] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.head_seconds, self._end)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.close()
