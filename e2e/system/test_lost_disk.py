"""A safekeeper loses its disk while another one lacks acknowledged rows: nobody is shown a database without them.

As an operator would meet it: safekeeper 3 is away while rows are acknowledged by 1 and 2, the branch is suspended,
one of the two comes back with an empty disk, the other one stops, 3 returns, and the branch is started.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from stack import Stack, running_stack, wait_for
from weirbench.api import Database, Weir
from weirbench.postgres import query

ROWS = 777
# Longer than a start takes, and than the pause between two attempts.
PATIENCE_SECONDS = 20


@pytest.mark.parametrize(
    ("lost", "holder"),
    [
        pytest.param(2, 1, id="second_loses"),
        # Both orders are in every run of `storage/system/test_lost_disk.py`, without a control plane.
        pytest.param(1, 2, id="first_loses", marks=pytest.mark.long),
    ],
)
def test_no_compute_starts_without_the_rows_and_they_come_back_with_their_holder(
    stack: Stack, lost: int, holder: int
) -> None:
    api = stack.api()
    shop = api.create_database(f"lost-disk-{lost}", {})
    query(shop.uri, "CREATE TABLE story (id int)")
    stack.stop("safekeeper-3")
    query(shop.uri, f"INSERT INTO story SELECT generate_series(1, {ROWS})")
    stack.suspend_compute(shop)

    folder = _lose_tenant(stack, shop, lost)
    wait_for("the reconciler to report the loss", lambda: _lost(api, lost) >= 1, 90)
    assert not folder.exists(), "an empty log took the place of the lost one"

    stack.stop(f"safekeeper-{holder}")
    stack.start("safekeeper-3")
    stack.start_compute(shop)
    _stays_down(api, shop)
    stack.start(f"safekeeper-{holder}")
    stack.wait_for_compute(shop)
    assert query(shop.uri, "SELECT count(*) FROM story") == str(ROWS)
    query(shop.uri, "INSERT INTO story VALUES (0)")
    assert not folder.exists()
    # The next test's majority must not depend on a project that has a member less.
    api.delete_project(shop.project_id)


@pytest.fixture
def five() -> Generator[Stack]:
    with running_stack({"WEIR_SAFEKEEPERS_COUNT": "5"}) as running:
        yield running


@pytest.mark.long
def test_with_five_safekeepers_two_lost_disks_and_one_away_start_no_compute(five: Stack) -> None:
    """`storage/system/test_lost_disk.py` has the same in every run, without a control plane."""
    stack, api = five, five.api()
    shop = api.create_database("lost-disk-of-five", {})
    grown = stack.weir("safekeepers", "set", shop.branch_id, "1,2,3,4,5")
    assert grown.returncode == 0, grown.stdout + grown.stderr
    query(shop.uri, "CREATE TABLE story (id int)")
    for away in (4, 5):
        stack.stop(f"safekeeper-{away}")
    query(shop.uri, f"INSERT INTO story SELECT generate_series(1, {ROWS})")
    stack.suspend_compute(shop)

    for lost in (2, 3):
        _lose_tenant(stack, shop, lost)
    for lost in (2, 3):
        wait_for("the reconciler to report the loss", lambda lost=lost: _lost(api, lost) >= 1, 90)
    stack.stop("safekeeper-1")
    for returned in (4, 5):
        stack.start(f"safekeeper-{returned}")
    stack.start_compute(shop)
    _stays_down(api, shop)
    stack.start("safekeeper-1")
    stack.wait_for_compute(shop)
    assert query(shop.uri, "SELECT count(*) FROM story") == str(ROWS)
    query(shop.uri, "INSERT INTO story VALUES (0)")


def _lose_tenant(stack: Stack, database: Database, number: int) -> Path:
    """A safekeeper loses what it has of the database's tenant; the folder that the branch's log was in."""
    branch = stack.api().get(f"/projects/{database.project_id}/branches/{database.branch_id}")["branch"]
    stack.stop(f"safekeeper-{number}")
    [folder] = (stack.home / f"safekeeper-{number}").glob(f"*/{branch['timeline_id']}")
    shutil.rmtree(folder.parent)
    stack.start(f"safekeeper-{number}")
    return folder


def _lost(api: Weir, number: int) -> int:
    nodes: list[dict[str, Any]] = api.get("/fleet/storage")["safekeepers"]
    return next(node["lost_timelines"] for node in nodes if node["id"] == number)


def _stays_down(api: Weir, database: Database) -> None:
    """The compute says for a while that the rows' log has no majority, and never runs meanwhile."""
    said = "does not exist on this safekeeper"
    wait_for(
        "the compute to say why it waits", lambda: said in (api.compute(database.compute_id)["reason"] or ""), 90
    )
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        assert api.compute(database.compute_id)["state"] != "active"
        time.sleep(1)
