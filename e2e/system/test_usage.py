"""What is told of usage, held against what a real compute and real storage did, with the worker dying on the way."""

from __future__ import annotations

import time
from typing import Any

import pytest
from stack import Stack, wait_for
from weirbench.api import Database
from weirbench.postgres import query

# Written by Postgres itself while nobody writes: a record of running transactions, say.
BACKGROUND_BYTES = 1 << 16
# At most written after the first look and before the rows; the rows are more than twice as much.
FIRST_BYTES = 4 << 20
# Two looks, and a busy machine.
MEASURED_SECONDS = 240.0


def _project(stack: Stack, made: Database) -> dict[str, Any]:
    return stack.api().get(f"/projects/{made.project_id}")["project"]


def _written(made: Database) -> int:
    return int(query(made.uri, "SELECT pg_current_wal_lsn() - '0/0'"))


def _told(stack: Stack, made: Database, name: str, least: float) -> float:
    """What the API says of the figure, once it has come so far."""

    def enough() -> float | None:
        value = _project(stack, made)[name]
        return value if value >= least else None

    return wait_for(f"{name} to be {least}", enough, MEASURED_SECONDS)


@pytest.mark.long
def test_time_wal_and_storage_are_what_they_were(stack: Stack) -> None:
    asked = time.time()
    made = stack.api().create_database("usage", {})
    ran_from = time.time()
    query(made.uri, "CREATE TABLE filled (n bigint, filler text)")
    before = _written(made)
    first = _told(stack, made, "written_data_bytes", 1)
    query(made.uri, "INSERT INTO filled SELECT n, repeat('x', 500) FROM generate_series(1, 20000) AS n")
    after = _written(made)
    # Whoever measures next goes on where this one has ended, and counts nothing twice.
    stack.kill("worker")
    second = _told(stack, made, "written_data_bytes", first + (after - before) - BACKGROUND_BYTES)
    stack.kill("worker")
    assert second - first <= after - before + FIRST_BYTES < 2 * (after - before)

    stopping = time.time()
    stack.suspend_compute(made)
    stopped = time.time()
    _told(stack, made, "active_time_seconds", stopping - ran_from - 1)
    time.sleep(5)
    project = _project(stack, made)
    told = project["active_time_seconds"]
    assert told == project["compute_time_seconds"]
    assert told <= stopped - asked + 1
    assert project["synthetic_storage_size"] > 20000 * 500
    hours = stack.api().get(
        "/consumption_history/projects",
        **{
            "from": time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(asked)),
            "to": time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(time.time() + 3600)),
            "granularity": "hourly",
            "project_ids": made.project_id,
        },
    )["projects"][0]["periods"]
    frames = [frame for period in hours for frame in period["consumption"]]
    # Rounded in each hour; the last seconds before the suspend may just have been added.
    assert abs(sum(frame["active_time_seconds"] for frame in frames) - told) <= 5
    assert sum(frame["data_storage_bytes_hour"] for frame in frames) > 0
    # The project's only branch has all of it.
    (branch,) = stack.api().get(f"/projects/{made.project_id}/branches")["branches"]
    assert abs(branch["active_time_seconds"] - told) <= 5
    assert abs(branch["written_data_bytes"] - project["written_data_bytes"]) <= BACKGROUND_BYTES
