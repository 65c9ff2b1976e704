"""Operations under kills of the control plane: each ends as asked, once, and clients lose nothing meanwhile."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack
from storm.schedule import CHANGES, SAFEKEEPERS, VICTIMS, draw
from storm.trial import Trial
from weirbench.postgres import query
from weirtorture import programs

# They have each kind of change between them.
SHORT = (1, 5)


@pytest.fixture(scope="module")
def with_spare() -> Generator[Stack]:
    with running_stack({"WEIR_SAFEKEEPERS_COUNT": str(SAFEKEEPERS)}) as running:
        yield running


@pytest.mark.parametrize("seed", SHORT)
def test_changes_under_kills_end_as_asked_and_cost_nothing(seed: int, with_spare: Stack, tmp_path: Path) -> None:
    programs.build()
    result = Trial(with_spare, draw(seed), tmp_path / "kept").run()
    assert result.clean, "\n".join([result.words(), *result.found(), with_spare.logs()])
    assert result.acknowledged > 100
    assert result.killed.keys() >= {"api", "worker"}


def test_a_seed_is_a_schedule_and_many_have_everything() -> None:
    assert draw(7) == draw(7)
    plans = [draw(seed) for seed in range(1, 61)]
    for plan in plans:
        assert {"api", "worker"} <= {kill.victim for change in plan.changes for kill in change.kills}
    kinds = Counter(change.kind for plan in plans for change in plan.changes)
    victims = Counter(kill.victim for plan in plans for change in plan.changes for kill in change.kills)
    assert (set(kinds), set(victims)) == (set(CHANGES), set(VICTIMS))


def test_the_seeds_of_make_test_have_every_change() -> None:
    assert {change.kind for seed in SHORT for change in draw(seed).changes} == set(CHANGES)


def test_a_branch_has_every_commit_that_was_acknowledged_before_it_was_asked_for(with_spare: Stack) -> None:
    """However far the pageserver is behind: it stands still while the commits come."""
    api = with_spare.api()
    shop = api.create_database("behind", {})
    query(shop.uri, "CREATE TABLE story (id int)")
    pid = with_spare.pid("pageserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(50):
            query(shop.uri, f"INSERT INTO story VALUES ({number})")
        body = {"branch": {"name": "now"}, "endpoints": [{"type": "read_write"}]}
        made = api.request("POST", f"/projects/{shop.project_id}/branches", body)
    finally:
        os.kill(pid, signal.SIGCONT)
    api.wait_operations(made["operations"])
    assert query(made["connection_uris"][0]["connection_uri"], "SELECT count(*) FROM story") == "50"
    api.delete_project(shop.project_id)
