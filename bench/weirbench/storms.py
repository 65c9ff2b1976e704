"""What the other tenant does, each storm as a process: `python -m weirbench.storms NAME`, until its input ends.

The first line of the input is a `Target` as JSON; the last line of the output says what was done a second, and what
was refused. A storm goes on as fast as it is let, and takes each refusal for an answer. The process is nice to
others: clients are on machines of their own elsewhere, and here they would take the processors that are measured.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import psycopg

NICENESS = 10
# After a refusal, so that a storm that is refused at once does not wear out its own processor.
REFUSED_PAUSE = 0.02
# How long what is under way may take once the storm is over.
END_SECONDS = 15.0
COPY_ROWS = 10_000
# Beyond it the table is emptied, so that an hour of it takes no more disk than a minute.
LOADED_BYTES = 256 << 20
# More than the memory that a sort is given, and few enough that one is done in a second or so.
SORTED_ROWS = 200_000
UPDATED_ROWS = 20_000
MESSAGE_BYTES = 256 << 10
TABLES = (
    "CREATE TABLE loaded (id bigint, filler text)",
    "CREATE TABLE updated (id int PRIMARY KEY, filler text)",
    f"INSERT INTO updated SELECT id, repeat('x', 500) FROM generate_series(1, {UPDATED_ROWS}) AS id",  # noqa: S608
)


@dataclass(frozen=True)
class Target:
    """Where the tenant's database is, and what it may ask the API with."""

    uri: str
    api_url: str
    api_key: str
    project_id: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Tally:
    """Counts of several threads. `done`: what the storm is made of; others by name."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def refused(self, reason: str) -> None:
        with self._lock:
            self._counts[f"refused: {reason}"] += 1

    def per_second(self, seconds: float) -> dict[str, float]:
        with self._lock:
            return {name: round(number / seconds, 2) for name, number in sorted(self._counts.items())}


class Session:
    """What a worker of a storm has: its number, the tally, and whether it is to end. What it does now can be
    cancelled from another thread."""

    def __init__(self, number: int, tally: Tally, over: threading.Event) -> None:
        self.number = number
        self.tally = tally
        self.over = over
        self._connection: psycopg.Connection[Any] | None = None

    @contextlib.contextmanager
    def connected(self, uri: str) -> Any:
        with psycopg.connect(uri, autocommit=True, connect_timeout=10) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None

    def cancel(self) -> None:
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=5)


Work = Callable[[Target, Session], None]


def load(at: Target, session: Session) -> None:
    """COPY as fast as it goes, a transaction for each ten thousand rows."""
    line = "\t" + "x" * 200 + "\n"
    chunk = "".join(f"{number}{line}" for number in range(COPY_ROWS)).encode()
    with session.connected(at.uri) as connection:
        loaded = 0
        while not session.over.is_set():
            with connection.cursor() as cursor, cursor.copy("COPY loaded FROM STDIN") as copy:
                copy.write(chunk)
            loaded += len(chunk)
            session.tally.add(done=COPY_ROWS, bytes=len(chunk))
            if loaded > LOADED_BYTES:
                connection.execute("TRUNCATE loaded")
                loaded = 0


def sort(at: Target, session: Session) -> None:
    """Sorts of more than their memory, so that each writes temporary files and reads them back."""
    words = "SELECT md5(n::text) AS word FROM generate_series(1, %s) AS n ORDER BY word OFFSET 1"
    query = f"SELECT count(*) FROM ({words}) AS sorted"  # noqa: S608
    with session.connected(at.uri) as connection:
        connection.execute("SET work_mem = '1MB'")
        while not session.over.is_set():
            connection.execute(query, (SORTED_ROWS,))
            session.tally.add(done=1)


def connect(at: Target, session: Session) -> None:
    """A login, a query, and the end, one after the other."""
    while not session.over.is_set():
        with session.connected(at.uri) as connection:
            connection.execute("SELECT 1")
        session.tally.add(done=1)


def wal(at: Target, session: Session) -> None:
    """Updates of many rows, and messages that are nothing but WAL."""
    message = "SELECT pg_logical_emit_message(true, 'storm', repeat('x', %s))"
    update = "UPDATE updated SET filler = md5(random()::text) || right(filler, 468) WHERE id %% 4 = %s"
    with session.connected(at.uri) as connection:
        while not session.over.is_set():
            for _ in range(20):
                connection.execute(message, (MESSAGE_BYTES,))
                session.tally.add(done=1)
            connection.execute(update, (session.number % 4,))
            session.tally.add(done=1)


def api(at: Target, session: Session) -> None:
    """Requests that read and change the tenant's own project, whatever the API says of waiting."""
    address = urlsplit(at.api_url)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    project = f"/api/v2/projects/{at.project_id}"
    reads = [project, f"{project}/branches", f"{project}/endpoints", f"{project}/operations", "/api/v2/projects"]
    headers = {"Authorization": f"Bearer {at.api_key}", "Content-Type": "application/json"}
    connection = kind(address.hostname or "", address.port, timeout=30)
    try:
        for number in count():
            if session.over.is_set():
                return
            if number % 6 == 5:
                body = json.dumps({"project": {"name": f"noisy-{session.number}-{number}"}})
                connection.request("PATCH", project, body, headers)
            else:
                connection.request("GET", reads[number % 6], headers=headers)
            answer = connection.getresponse()
            answer.read()
            session.tally.add(done=1)
            if answer.status >= 300:
                session.tally.refused(str(answer.status))
    finally:
        connection.close()


# What each worker does, and how many there are.
STORMS: Mapping[str, tuple[Work, int]] = {
    "load": (load, 2),
    "sort": (sort, 4),
    "connect": (connect, 16),
    "wal": (wal, 4),
    "api": (api, 8),
}


def reason(error: Exception) -> str:
    """An error in a few words, the same for all of its kind."""
    code = getattr(error, "sqlstate", None)
    first = (str(error).strip().splitlines() or [""])[-1]
    return str(code) if code else f"{type(error).__name__} {first[-60:]}".strip()


def keep_on(work: Work, at: Target, session: Session) -> None:
    while not session.over.is_set():
        try:
            work(at, session)
        except (psycopg.Error, OSError, http.client.HTTPException) as error:
            if not session.over.is_set():
                session.tally.refused(reason(error))
                session.over.wait(REFUSED_PAUSE)


def metered(at: Target) -> tuple[int, int]:
    """Bytes of WAL, and of temporary files, that the tenant's compute has written so far."""
    query = (
        "SELECT pg_current_wal_insert_lsn() - '0/0', (SELECT temp_bytes FROM pg_stat_database "
        "WHERE datname = current_database())"
    )
    # A machine that has just been stormed may take long, and the measurement is not to end by that.
    with psycopg.connect(at.uri, autocommit=True, connect_timeout=60) as connection:
        row = connection.execute(query).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def storm(name: str, at: Target, until: Callable[[], object]) -> dict[str, float]:
    """Runs the storm until `until` returns; what it did a second."""
    work, workers = STORMS[name]
    tally, over = Tally(), threading.Event()
    sessions = [Session(number, tally, over) for number in range(workers)]
    threads = [threading.Thread(target=keep_on, args=(work, at, session), daemon=True) for session in sessions]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    until()
    found = tally.per_second(time.monotonic() - begun)
    over.set()
    for session in sessions:
        session.cancel()
    deadline = time.monotonic() + END_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return found


def main() -> None:
    name, at = sys.argv[1], Target(**json.loads(sys.stdin.readline()))
    os.nice(NICENESS)
    print(json.dumps(storm(name, at, sys.stdin.read)), flush=True)
    # A thread that the other side does not answer keeps nothing from ending.
    os._exit(0)


if __name__ == "__main__":
    main()
