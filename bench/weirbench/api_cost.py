"""What requests cost the API by their kind: processor time of its process, and what it asks the metadata store.

An API of one process is started from a checkout, beside the installation's own, and answers requests that another
process sends over a few connections. Time to answer means nothing on a machine that does other things as well;
processor time does. Of two checkouts, both are up and take turns, so that what changes on the machine changes for
both.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from .open_loop import Request
from .scale_watch import cpu_seconds

START_SECONDS = 90.0
ANSWER_SECONDS = 30.0
# As the metadata store writes what it is asked, with `log_statement`.
_ASKED = re.compile(r"^\S+ \S+ \S+ \[\d+\] LOG:  (?:statement|execute [^:]+): ", re.MULTILINE)


@dataclass(frozen=True)
class Served:
    """An API that answers. `port`: of loopback."""

    name: str
    pid: int
    port: int


@contextmanager
def served(name: str, checkout: Path, environment: Mapping[str, str], port: int) -> Generator[Served]:
    """The API of a checkout, as one process. Raises RuntimeError when it does not answer in time."""
    own = {
        "PYTHONPATH": os.pathsep.join(str(checkout / folder) for folder in ("backend", "workflows")),
        "WEIR_API_PROCESSES": "1",
        # One client sends everything, so that rates would meet it.
        "WEIR_RATE_READS": "off",
        "WEIR_RATE_CHANGES": "off",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "weir.serve", "--port", str(port)],
        env={**environment, **own},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, f"http://127.0.0.1:{port}/healthz", name)
        yield Served(name, process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, name: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the API of {name} ended with {process.returncode} before it answered")
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310  our own address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the API of {name} has not answered at {url} within {START_SECONDS:g} s")


class Client:
    """One connection that is kept, as clients of an SDK have it. Raises RuntimeError for an answer that is none.

    `begin` ends the connection, and the next request makes another: the API would end one that is idle."""

    def __init__(self, to: Served, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", to.port, timeout=ANSWER_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}"}

    def send(self, request: Request) -> None:
        body = None if request.body is None else json.dumps(request.body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        self._connection.request(request.method, f"/api/v2{request.path}", body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status not in request.expect:
            raise RuntimeError(f"{request.method} {request.path} was answered {answer.status}: {text[:300]!r}")

    def begin(self) -> None:
        self._connection.close()

    close = begin


def microseconds(api: Served, clients: Sequence[Client], requests: Sequence[Request]) -> float:
    """Of processor time, user's and system's, that the API's process used for one of the requests, which the clients
    share. They are sent at once, so that what the API does by the clock falls on as few of them as under load."""

    def send(client: Client, share: Sequence[Request]) -> None:
        client.begin()
        for request in share:
            client.send(request)

    shares = [requests[number :: len(clients)] for number in range(len(clients))]
    before = cpu_seconds(api.pid)
    with ThreadPoolExecutor(len(clients)) as pool:
        for _ in pool.map(send, clients, shares):
            pass
    return (cpu_seconds(api.pid) - before) / len(requests) * 1_000_000


class Counted:
    """Has the metadata store write what it is asked into its log, and counts there. What others ask meanwhile can
    only add, so that the fewest of several equal requests is what one needs."""

    def __init__(self, database_url: str, log: Path) -> None:
        self._database_url = database_url.replace("postgresql+psycopg", "postgresql")
        self._log = log

    def _log_statements(self, value: str) -> None:
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET log_statement = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        # The server's processes learn of it a moment later, each before its next statement.
        time.sleep(1)

    @contextmanager
    def on(self) -> Generator[None]:
        self._log_statements("all")
        try:
            yield
        finally:
            self._log_statements("none")

    def fewest(self, client: Client, requests: Sequence[Request]) -> int:
        """Statements that one of these requests took, BEGIN and COMMIT among them."""
        client.begin()
        return min(self._statements_of(client, request) for request in requests)

    def _statements_of(self, client: Client, request: Request) -> int:
        size = self._log.stat().st_size
        client.send(request)
        with self._log.open("rb") as file:
            file.seek(size)
            return len(_ASKED.findall(file.read().decode(errors="replace")))


def summary(costs: Mapping[str, Sequence[float]], weights: Mapping[str, int]) -> dict[str, Any]:
    """Microseconds, the median of rounds, by kind of request, and of a request of the mix."""
    medians = {what: statistics.median(rounds) for what, rounds in costs.items()}
    total = sum(weights[what] for what in medians)
    mixed = sum(medians[what] * weights[what] for what in medians) / total
    return {"a_request": round(mixed), "by_request": {what: round(cost) for what, cost in medians.items()}}
