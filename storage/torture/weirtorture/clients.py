"""Clients of the database that the torture is for: several connections, each with one operation at a time.

Four kinds of data, all of which are held against what clients saw (`checks.py` and the checker):

* registers: rows that are overwritten with values that are never used twice, and read;
* lists: values appended to up to three lists in one transaction, and lists read whole;
* inserts: numbered rows;
* accounts: transfers between two of them, and the sum of all.

A client looks which compute is the current one before each operation, after it has noted the time, and never uses a
connection to another one. So no operation that a client begins after a takeover reaches the old compute.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg

from .history import FAILED, OK, UNKNOWN, History, Operation

REGISTERS = 8
LISTS = 4
# Lists are short enough to be read whole: others take their place.
LISTS_SECONDS = 5.0
ACCOUNTS = 12
BALANCE = 1_000
# An operation without an answer for so long is given up: its connection is closed, its outcome is not known. Clients
# of odd numbers have little patience, so that outcomes are not known when faults are short, too.
PATIENCE, LITTLE_PATIENCE = 6.0, 1.0

SCHEMA = f"""
CREATE TABLE registers (key int PRIMARY KEY, value bigint NOT NULL);
INSERT INTO registers SELECT key, 0 FROM generate_series(0, {REGISTERS - 1}) key;
CREATE TABLE lists (key int PRIMARY KEY, items bigint[] NOT NULL);
CREATE TABLE inserted (client int NOT NULL, number int NOT NULL, filler text NOT NULL);
CREATE INDEX ON inserted (client, number);
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO accounts SELECT id, {BALANCE} FROM generate_series(0, {ACCOUNTS - 1}) id;
"""
APPEND = """INSERT INTO lists VALUES (%s, ARRAY[%s::bigint])
ON CONFLICT (key) DO UPDATE SET items = lists.items || excluded.items RETURNING items"""


class Served(Protocol):
    """A compute, as its clients know it."""

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A session in which each statement commits for itself; `options` are libpq's. Raises `psycopg.Error`."""
        ...


class RolledBackError(Exception):
    """`COMMIT` was answered with `ROLLBACK`."""


@dataclass
class Client:
    """One connection at a time, and what it does. `current` gives the compute that clients are to use."""

    number: int
    chance: random.Random
    current: Callable[[], Served]
    history: History
    stop: threading.Event
    began: float
    errors: list[str] = field(default_factory=list[str])
    # Since when it waits for an answer; 0 for not at all.
    waiting_since: float = 0.0
    # A mistake of the client itself, which has ended by it.
    broken: Exception | None = None
    _values: int = 0
    _connection: psycopg.Connection[Any] | None = None
    _compute: Served | None = None
    _unconfirmed: bool = False
    _sent: bool = False
    _parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.broken = error
            raise
        finally:
            self._disconnect()

    def _work(self) -> None:
        operations = [self._write, self._read, self._append, self._read_list, self._insert, self._transfer, self._sum]
        weights = [4, 4, 4, 2, 3, 2, 1]
        while not self.stop.is_set():
            if self._connection is None and not self._connect():
                self.stop.wait(0.1)
                continue
            (operation,) = self.chance.choices(operations, weights)
            self._operate(operation)
            self.stop.wait(self.chance.uniform(0.005, 0.03))

    def give_up(self) -> None:
        """Ends the connection under an operation, from another thread."""
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as other:
            other.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> bool:
        compute = self.current()
        try:
            connection = compute.connect(connect_timeout=2)
        except psycopg.Error as error:
            self._note(error)
            return False
        connection.add_notice_handler(self._noticed)
        self._connection, self._compute = connection, compute
        return True

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        # The commit is visible and may never be replicated: docs/durability.md.
        if "synchronous replication" in (notice.message_primary or ""):
            self._unconfirmed = True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _note(self, error: Exception) -> None:
        if len(self.errors) < 200:
            self.errors.append(f"{time.monotonic() - self.began:.1f} s: {type(error).__name__}: {error}".strip())

    def _operate(self, operation: Callable[[psycopg.Connection[Any]], None]) -> None:
        record = Operation(self.number, [])
        connection = self._connection
        if connection is None or self.current() is not self._compute:
            self._disconnect()
            return
        self._sent, self._unconfirmed = False, False
        self._parts = record.parts
        self.waiting_since = time.monotonic()
        try:
            operation(connection)
            record.ended(UNKNOWN if self._unconfirmed else OK)
        except (psycopg.Error, RolledBackError) as error:
            sure = not self._sent or isinstance(error, RolledBackError)
            record.ended(FAILED if sure else UNKNOWN)
            self._note(error)
            self._disconnect()
        finally:
            self.waiting_since = 0.0
        if record.parts:
            self.history.add(record)

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        self._sent = True
        answer = connection.execute("COMMIT").statusmessage
        if answer != "COMMIT":
            raise RolledBackError(answer)

    def _value(self) -> int:
        self._values += 1
        return self.number * 1_000_000 + self._values

    # --- operations; each says what it is about before it asks

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        key, value = self.chance.randrange(REGISTERS), self._value()
        self._parts.append({"kind": "register", "op": "write", "key": key, "value": value})
        connection.execute("BEGIN")
        connection.execute("UPDATE registers SET value = %s WHERE key = %s", (value, key))
        self._commit(connection)

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        key = self.chance.randrange(REGISTERS)
        part = {"kind": "register", "op": "read", "key": key}
        self._parts.append(part)
        row = connection.execute("SELECT value FROM registers WHERE key = %s", (key,)).fetchone()
        # A register that is gone is no value that anybody wrote.
        part["seen"] = row[0] if row else -1

    def _list_keys(self, count: int) -> list[int]:
        first = int((time.monotonic() - self.began) // LISTS_SECONDS) * LISTS
        return sorted(self.chance.sample(range(first, first + LISTS), count))

    def _append(self, connection: psycopg.Connection[Any]) -> None:
        value = self._value()
        parts: list[dict[str, Any]] = [
            {"kind": "list", "op": "append", "key": key, "value": value}
            for key in self._list_keys(self.chance.randint(1, 3))
        ]
        self._parts.extend(parts)
        connection.execute("BEGIN")
        for part in parts:
            row = connection.execute(APPEND, (part["key"], value)).fetchone()
            part["list"] = row[0] if row else []
        self._commit(connection)

    def _read_list(self, connection: psycopg.Connection[Any]) -> None:
        (key,) = self._list_keys(1)
        part: dict[str, Any] = {"kind": "list", "op": "read", "key": key}
        self._parts.append(part)
        row = connection.execute("SELECT items FROM lists WHERE key = %s", (key,)).fetchone()
        part["list"] = row[0] if row else []

    def _insert(self, connection: psycopg.Connection[Any]) -> None:
        number = self._value()
        self._parts.append({"kind": "inserted", "op": "insert", "number": number})
        connection.execute("BEGIN")
        connection.execute("INSERT INTO inserted VALUES (%s, %s, repeat('x', 200))", (self.number, number))
        self._commit(connection)

    def _transfer(self, connection: psycopg.Connection[Any]) -> None:
        one, other = sorted(self.chance.sample(range(ACCOUNTS), 2))
        amount = self.chance.randint(-50, 50)
        self._parts.append({"kind": "accounts", "op": "transfer", "from": one, "to": other, "amount": amount})
        connection.execute("BEGIN")
        for account, change in ((one, -amount), (other, amount)):
            connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (change, account))
        self._commit(connection)

    def _sum(self, connection: psycopg.Connection[Any]) -> None:
        part: dict[str, Any] = {"kind": "accounts", "op": "sum"}
        self._parts.append(part)
        row = connection.execute("SELECT sum(balance)::bigint FROM accounts").fetchone()
        part["sum"] = row[0] if row else None


@dataclass
class Load:
    """All clients of a trial, each in a thread of its own, and one that gives up operations without an answer."""

    seed: int
    current: Callable[[], Served]
    clients: int = 8
    history: History = field(default_factory=History)
    began: float = 0.0
    all: list[Client] = field(default_factory=list[Client])
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def start(self) -> None:
        self.began = time.monotonic()
        for number in range(1, self.clients + 1):
            chance = random.Random(f"client {self.seed} {number}")  # noqa: S311 - not for secrets
            client = Client(number, chance, self.current, self.history, self._stop, self.began)
            self.all.append(client)
            self._threads.append(threading.Thread(target=client.run, daemon=True))
        self._threads.append(threading.Thread(target=self._watch, daemon=True))
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for client in self.all:
                since = client.waiting_since
                patience = LITTLE_PATIENCE if client.number % 2 else PATIENCE
                if since and time.monotonic() - since > patience:
                    client.give_up()

    def stop(self) -> None:
        """Ends all clients; what they wait for is given up after a while."""
        self._stop.set()
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        for client in self.all:
            client.give_up()
        for thread in self._threads:
            thread.join(20)
            if thread.is_alive():
                raise RuntimeError("a client does not end")
        for client in self.all:
            if client.broken is not None:
                raise RuntimeError(f"client {client.number} is broken: {client.broken!r}")

    def errors(self) -> list[str]:
        return [f"client {client.number}: {error}" for client in self.all for error in client.errors]
