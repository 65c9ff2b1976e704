"""An operator replaces a safekeeper whose disk is lost, by the command line, and nobody who writes notices."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
from stack import Stack, running_stack
from weirbench.postgres import query


@pytest.fixture
def with_spare() -> Generator[Stack]:
    """Four safekeepers, of which the last one holds nothing yet."""
    with running_stack({"WEIR_SAFEKEEPERS_COUNT": "4"}) as running:
        yield running


class Writer(threading.Thread):
    """Inserts numbers one after the other until it is told to end; an error ends it."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.ended = threading.Event()
        self.acknowledged = 0
        self.error: Exception | None = None

    def run(self) -> None:
        while not self.ended.is_set() and self.error is None:
            try:
                query(self.uri, f"INSERT INTO story VALUES ({self.acknowledged})")
                self.acknowledged += 1
            except Exception as error:  # noqa: BLE001  told by the test
                self.error = error

    def finish(self) -> int:
        self.ended.set()
        self.join(60)
        assert self.error is None, f"a write failed: {self.error}"
        return self.acknowledged


def test_a_lost_safekeeper_is_replaced_while_clients_write_and_its_new_disk_is_a_spare(
    with_spare: Stack,
) -> None:
    stack = with_spare
    api = stack.api()
    shop = api.create_database("replaced", {})
    query(shop.uri, "CREATE TABLE story (id int)")
    writer = Writer(shop.uri)
    writer.start()

    stack.stop("safekeeper-2")
    stack.lose_disk(2)
    result = stack.weir("safekeepers", "replace", "2", "--with", "4")
    assert result.returncode == 0, result.stdout + result.stderr
    acknowledged = writer.finish()
    assert acknowledged > 0

    path = f"/projects/{shop.project_id}/branches/{shop.branch_id}/safekeepers"
    found = api.get(path)
    assert {row["safekeeper_id"]: (row["role"], row["state"]) for row in found["members"]} == dict.fromkeys(
        (1, 3, 4), ("voter", "active")
    )
    assert found["available"] == [2]
    shown = stack.weir("safekeepers", "show", shop.branch_id)
    assert (shown.returncode, "Spares: 2" in shown.stdout) == (0, True), shown.stdout + shown.stderr
    looked = stack.weir("log", "verify", shop.branch_id)
    assert looked.returncode == 0, looked.stdout + looked.stderr

    # The new member and one that was there all the time are a majority that has every row.
    stack.suspend_compute(shop)
    stack.stop("safekeeper-3")
    stack.start_compute(shop)
    stack.wait_for_compute(shop)
    assert query(shop.uri, "SELECT count(*) FROM story") == str(acknowledged)
