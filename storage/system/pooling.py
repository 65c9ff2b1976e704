"""What the tests of the pooler need: clients of `ENDPOINT-pooler`, by psycopg and by the protocol's bytes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

import psycopg
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy

POOLER = f"{ENDPOINT}-pooler.{DOMAIN}"
Connection = psycopg.Connection[tuple[Any, ...]]


def pooled(proxy: Proxy, **changes: Any) -> Connection:
    return proxy.connect(**({"host": POOLER} | changes))


def backend(connection: Connection) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def value(connection: Connection, statement: str) -> str:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return str(row[0])


@contextlib.contextmanager
def all_taken(proxy: Proxy, count: int) -> Generator[list[Connection]]:
    """Clients within transactions that hold so many server connections."""
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(pooled(proxy)) for _ in range(count)]
        for holder in holders:
            holder.execute("BEGIN")
        yield holders
        for holder in holders:
            holder.execute("ROLLBACK")


def backends(proxy: Proxy, where: str = "usename = 'app'") -> int:
    with proxy.stock.admin() as admin:
        return int(value(admin, f"SELECT count(*) FROM pg_stat_activity WHERE {where}"))


def elsewhere(proxy: Proxy, connection: Connection) -> Connection:
    """A client within a transaction that holds the server connection that `connection` used last."""
    used = backend(connection)
    others = [pooled(proxy), pooled(proxy)]
    for other in others:
        other.execute("BEGIN")
    wanted = next(other for other in others if backend(other) == used)
    for other in others:
        if other is not wanted:
            other.execute("ROLLBACK")
            other.close()
    return wanted


def status_kib(proxy: Proxy, name: str) -> int:
    assert proxy.process.child is not None
    status = Path(f"/proc/{proxy.process.child.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


class Raw:
    """A client of the protocol's bytes, logged in at the pooler."""

    def __init__(self, proxy: Proxy) -> None:
        plain = socket.create_connection(("127.0.0.1", proxy.port))
        plain.sendall(struct.pack("!II", 8, 80877103))
        assert plain.recv(1) == b"S"
        context = ssl.create_default_context(cafile=str(proxy.authority.root))
        self.stream = context.wrap_socket(plain, server_hostname=POOLER)
        self.stream.settimeout(20)
        body = struct.pack("!I", 3 << 16) + b"user\0app\0database\0appdb\0\0"
        self.stream.sendall(struct.pack("!I", len(body) + 4) + body)
        self._log_in()
        while self.message()[0] != b"Z":
            pass

    def _log_in(self) -> None:
        assert self.message()[0] == b"R"
        first = "n=,r=rawclient"
        initial = f"n,,{first}".encode()
        self.send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(initial)) + initial)
        challenge = self.message()[1][4:].decode()
        nonce, salt, rounds = (part[2:] for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(salt), int(rounds))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={nonce}"
        signed = hmac.digest(hashlib.sha256(key).digest(), f"{first},{challenge},{last}".encode(), "sha256")
        proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signed, strict=True))).decode()
        self.send(b"p", f"{last},p={proof}".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def send(self, tag: bytes, body: bytes) -> None:
        self.stream.sendall(tag + struct.pack("!I", len(body) + 4) + body)

    def message(self) -> tuple[bytes, bytes]:
        head = self._exactly(5)
        return head[:1], self._exactly(struct.unpack("!I", head[1:])[0] - 4)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self.stream.recv(count - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    def until(self, wanted: bytes) -> list[tuple[bytes, bytes]]:
        found = [self.message()]
        while found[-1][0] != wanted:
            found.append(self.message())
        return found
