"""A load balancer in front of the proxy, as tests need one: it says in front of each connection whose that is."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Generator

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
PROXY, LOCAL = 0x21, 0x20
TCP_4, TCP_6 = 0x11, 0x21


def header(client: str, *, command: int = PROXY, port: int = 50_000) -> bytes:
    """The header of version 2 for a client of this address."""
    address = ipaddress.ip_address(client)
    own = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    body = address.packed + own.packed + struct.pack("!HH", port, 5432)
    family = TCP_4 if address.version == 4 else TCP_6
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


@contextlib.contextmanager
def balancer(to: int, begin: bytes) -> Generator[int]:
    """A port of loopback. What comes there goes to the port `to`, behind `begin`, until the test ends."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, to, begin, threads), daemon=True)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Only a shutdown wakes who accepts.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join(10)


def _accept(listener: socket.socket, to: int, begin: bytes, threads: list[threading.Thread]) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        threads.append(threading.Thread(target=_serve, args=(near, to, begin), daemon=True))
        threads[-1].start()


def _serve(near: socket.socket, to: int, begin: bytes) -> None:
    with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", to)) as far:
        far.sendall(begin)
        back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
        back.start()
        _pass_on(near, far)
        back.join(10)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
