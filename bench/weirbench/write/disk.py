"""What a disk and a loopback connection cost by themselves: the floor under every commit.

No program of Weir takes part. Times are of a Python loop, whose own cost, a few microseconds a call, is in them.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

# A safekeeper's segment: sparse, of this size, written from its beginning.
SEGMENT_BYTES = 16 << 20
WRITERS = 3
MESSAGE_BYTES = 512


@dataclass(frozen=True)
class Synced:
    """`fdatasync` after each append of `bytes` in each of the writers, who begin together."""

    bytes: int
    appends_a_sync: int
    # Of one writer that has the disk to itself, and of the second of three: what a quorum of logs waits for.
    alone_us: float
    quorum_us: float
    # Of one of three writers, user and system, for one sync with its appends.
    cpu_us: float


def synced(folder: Path, size: int, appends: int = 1, rounds: int = 400) -> Synced:
    alone, _ = _together(folder, 1, size, appends, rounds)
    three, cpu = _together(folder, WRITERS, size, appends, rounds)
    second = [sorted(each)[len(each) // 2] for each in zip(*three, strict=True)]
    return Synced(
        size,
        appends,
        round(statistics.median(alone[0]) * 1e6, 1),
        round(statistics.median(second) * 1e6, 1),
        round(cpu * 1e6, 1),
    )


def _together(folder: Path, writers: int, size: int, appends: int, rounds: int) -> tuple[list[list[float]], float]:
    """Seconds of each sync by writer, and CPU seconds of one sync."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(writers), context.SimpleQueue()
    children = [
        context.Process(target=_write, args=(folder / f"log-{number}", size, appends, rounds, barrier, answers))
        for number in range(writers)
    ]
    for child in children:
        child.start()
    found: list[tuple[list[float], float]] = [answers.get() for _ in children]
    for child in children:
        child.join(60)
    return [times for times, _ in found], statistics.mean(cpu for _, cpu in found) / rounds


def _write(path: Path, size: int, appends: int, rounds: int, barrier: Barrier, answers: Any) -> None:
    data, times, spent = os.urandom(size), list[float](), 0.0
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.ftruncate(file, SEGMENT_BYTES)
        at = 0
        for _ in range(rounds):
            barrier.wait(60)
            used, began = _cpu(), time.perf_counter()
            for _ in range(appends):
                os.pwrite(file, data, at)
                at = (at + size) % (SEGMENT_BYTES - size)
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
            spent += _cpu() - used
    finally:
        os.close(file)
        path.unlink(missing_ok=True)
    answers.put((times, spent))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def loopback_us(rounds: int = 4000) -> float:
    """The median round trip of a message of a commit's size over TCP between two processes that block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = multiprocessing.get_context("fork").Process(target=_echo, args=(server,), daemon=True)
        echo.start()
        with socket.create_connection(server.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = [_round_trip(client) for _ in range(rounds)]
        echo.join(10)
    return round(statistics.median(times) * 1e6, 1)


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while _receive(connection):
            connection.sendall(bytes(MESSAGE_BYTES))


def _receive(connection: socket.socket) -> bool:
    left = MESSAGE_BYTES
    while left:
        got = connection.recv(left)
        if not got:
            return False
        left -= len(got)
    return True


def _round_trip(client: socket.socket) -> float:
    began = time.perf_counter()
    client.sendall(bytes(MESSAGE_BYTES))
    if not _receive(client):
        raise RuntimeError("the other end of a loopback connection has closed it")
    return time.perf_counter() - began


def sizes(folder: Path, wanted: Sequence[int]) -> list[Synced]:
    """Each size with a sync for each append, and with one for sixteen."""
    return [synced(folder, size, appends) for size in wanted for appends in (1, 16)]
