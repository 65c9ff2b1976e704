"""Strangers on one machine: the rights of one database's server, on a whole Weir, reach nothing of another's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from stack import Stack, wait_for
from weirbench.api import Database
from weirbench.postgres import query

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "system"))

from processes import here
from strangers import connects, denied, environment_of, user_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives computes users of their own")
POOL = range(60_706, 61_184)


@pytest.fixture(name="tenants", scope="module")
def _tenants(stack: Stack) -> list[Database]:
    made = [stack.api().create_database(name, {}) for name in ("alice", "bob")]
    for database in made:
        query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    return made


def postmaster(stack: Stack, database: Database) -> int:
    lock = stack.home / "computes" / database.compute_id / "pgdata/postmaster.pid"
    return here(stack.compute_pid(database.compute_id), int(lock.read_text().split()[0]))


def user(stack: Stack, database: Database) -> int:
    users = user_of(postmaster(stack, database))
    assert len(users) == 1
    return users.pop()


def test_each_compute_has_a_user_of_the_pool(stack: Stack, tenants: list[Database]) -> None:
    users = {user(stack, database) for database in tenants}
    assert len(users) == len(tenants)
    assert users <= set(POOL)


def test_a_server_gains_no_file_of_the_installation(stack: Stack, tenants: list[Database]) -> None:
    alice, bob = tenants
    mine = user(stack, alice)
    theirs = stack.home / "computes" / bob.compute_id
    for folder in ("", "log", "run", "secrets", "objects", "pageserver", "safekeeper-1", "postgres", "temporal"):
        denied(mine, "ls", str(stack.home / folder))
    denied(mine, "ls", str(stack.home / "computes"))
    denied(mine, "ls", str(theirs))
    # By their names, as if they had been guessed.
    stored = [path for name in ("pageserver", "safekeeper-1", "secrets") for path in files(stack.home / name)]
    stored += [theirs / name for name in ("pgdata/pg_hba.conf", "spec.json", "log", "postgres.log")]
    assert len(stored) > 10
    for path in stored:
        denied(mine, "cat", str(path))
    bobs = next(path for path in (theirs / "sock").iterdir() if path.name.endswith("PGSQL." + port(theirs)))
    assert "PermissionError" in connects(mine, bobs).stderr
    assert connects(user(stack, bob), bobs).returncode == 0
    for pid in (postmaster(stack, bob), stack.compute_pid(bob.compute_id), stack.pid("api"), stack.pid("worker")):
        denied(mine, "cat", f"/proc/{pid}/environ")


def test_no_secret_is_in_the_environment_of_a_compute(stack: Stack, tenants: list[Database]) -> None:
    secrets = [path.read_text().strip() for path in (stack.home / "secrets").iterdir() if path.is_file()]
    for database in tenants:
        for pid in (stack.compute_pid(database.compute_id), postmaster(stack, database)):
            told = environment_of(pid)
            assert "WEIR_DATABASE_URL" not in told
            assert told["WEIR_HOME"] == str(stack.home), "weir down knows it by that"
            assert not [name for name, value in told.items() if any(secret in value for secret in secrets)]


def test_a_user_that_is_given_again_finds_nothing_of_the_compute_before(
    stack: Stack, tenants: list[Database]
) -> None:
    first = stack.api().create_database("passing", {})
    number, folder = user(stack, first), stack.home / "computes" / first.compute_id
    stack.suspend_compute(first)
    left = files(folder)
    assert left, "a suspended compute's folder stays"
    second = stack.api().create_database("next", {})
    assert user(stack, second) == number, "the first that is free"
    for path in left:
        denied(number, "cat", str(path))
    stack.api().delete_project(first.project_id)
    wait_for("the folder to go", lambda: not folder.exists())
    # A wake takes another user, and the database is all there.
    for database in tenants:
        stack.suspend_compute(database)
    stack.start_compute(tenants[1])
    stack.wait_for_compute(tenants[1])
    assert query(tenants[1].uri, "SELECT sum(n) FROM kept") == "500500"
    stack.api().delete_project(second.project_id)


def test_a_killed_agent_frees_its_user_and_the_compute_comes_back(stack: Stack, tenants: list[Database]) -> None:
    database = tenants[1]
    killed = stack.compute_pid(database.compute_id)
    os.kill(killed, 9)
    wait_for("another agent", lambda: stack.compute_pid(database.compute_id) != killed)
    stack.wait_for_compute(database)
    assert wait_for("the database", lambda: query(database.uri, "SELECT sum(n) FROM kept")) == "500500"
    assert user(stack, database) in POOL


def test_doctor_finds_nothing_open(stack: Stack, tenants: list[Database]) -> None:
    said = stack.weir("doctor").stdout
    assert "no other user can look into the installation's folders" in said
    assert "computes have users of their own, of 60706-61183" in said
    folder = stack.home / "objects"
    before = folder.stat().st_mode
    folder.chmod(0o755)
    try:
        result = stack.weir("doctor")
    finally:
        folder.chmod(before)
    assert result.returncode == 1
    assert f"other users can look into {folder}" in result.stdout


def files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(found)[:20]


def port(folder: Path) -> str:
    return (folder / "pgdata/postmaster.pid").read_text().splitlines()[3]
