"""Every safekeeper's disk is lost, and an operator brings the branches back with `weir recover --logs`."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from stack import Stack, running_stack, wait_for
from weirbench.api import Database, Weir
from weirbench.parts import client
from weirbench.postgres import query

from weir.cli import installation
from weir.kit.ids import parse_lsn
from weir.tokens import bearer

ROWS = 777


@pytest.fixture
def own() -> Generator[Stack]:
    """An installation with nothing but this test's branches, whose safekeepers it may lose."""
    with running_stack() as running:
        yield running


def _lose_all_safekeepers(stack: Stack) -> None:
    numbers = (1, 2, 3)
    for number in numbers:
        stack.stop(f"safekeeper-{number}")
    for number in numbers:
        stack.lose_disk(number)


def test_branches_come_back_with_every_row_that_was_offloaded_or_in_storage(own: Stack) -> None:
    api = own.api()
    shop = api.create_database("all-safekeepers-lost", {})
    query(shop.uri, "CREATE TABLE story (id int)")
    query(shop.uri, f"INSERT INTO story SELECT generate_series(1, {ROWS})")
    own.suspend_compute(shop)
    assert "kept" in own.weir("recover", "--logs").stdout

    store = own.home / "objects"
    wait_for("the end of the branch to be in the object store", lambda: _offloaded(own, api, shop), 180)
    _lose_all_safekeepers(own)
    planned = own.weir("recover", "--logs", "--dry-run")
    assert (planned.returncode, "would be made again" in planned.stdout) == (0, True), planned.stdout + planned.stderr
    assert "nothing was changed" in planned.stdout
    before = sorted(path for path in store.rglob("*") if path.is_file())

    done = own.weir("recover", "--logs")
    assert (done.returncode, "made again" in done.stdout) == (0, True), done.stdout + done.stderr
    missing = [path for path in before if not path.exists()]
    assert missing == [], "recovery deleted what was in the object store"
    again = own.weir("recover", "--logs")
    assert (again.returncode, "REFUSED" in again.stdout) == (0, False), again.stdout + again.stderr

    own.start_compute(shop)
    own.wait_for_compute(shop)
    assert query(shop.uri, "SELECT count(*) FROM story") == str(ROWS)
    query(shop.uri, "INSERT INTO story VALUES (0)")
    assert query(shop.uri, "SELECT count(*) FROM story") == str(ROWS + 1)
    looked = own.weir("log", "verify", shop.branch_id)
    assert looked.returncode == 0, looked.stdout + looked.stderr

    # While a compute runs on it a lost log is not made again: the compute may hold what nobody else does.
    _lose_all_safekeepers(own)
    refused = own.weir("recover", "--logs")
    assert (refused.returncode, "is not suspended" in refused.stdout + refused.stderr) == (1, True), refused.stdout


def _offloaded(stack: Stack, api: Weir, database: Database) -> bool:
    """Whether the object store has all that is committed of the branch, as pages or as WAL."""
    tenant = api.get(f"/projects/{database.project_id}")["project"]["tenant_id"]
    branch = api.get(f"/projects/{database.project_id}/branches/{database.branch_id}")["branch"]
    path = f"/v1/tenant/{tenant}/timeline/{branch['timeline_id']}"
    headers = bearer.headers("safekeeper", path, stack.home)
    with client(installation.load(stack.home), "safekeeper_1_http", timeout=10) as safekeeper:
        log = safekeeper.get(path, headers=headers).raise_for_status().json()
    kept = [parse_lsn(log[name]) for name in ("remote_consistent_lsn", "offloaded_lsn") if log[name] is not None]
    return max(kept, default=0) >= parse_lsn(log["commit_lsn"])
