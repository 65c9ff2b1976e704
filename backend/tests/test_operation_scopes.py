"""Two operations are let in together exactly if what they hold does not overlap: by the rule in Python, by the
database itself, and over the API."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import product
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from weir_testing.fixtures import Weir

from weir.errors import ProjectBusyError
from weir.operations import locks, scopes
from weir.operations.models import OPEN, Operation, OperationKind, OperationLock, OperationStatus
from weir.operations.service import enqueue, mark_done

# Some begin as others do, and some go on with what sorts next to a slash.
PROJECTS = ("p", "p-1", "p0", "p1")
BRANCHES = ("br-1", "br-10", "br-1-a")
ENDPOINTS = ("ep-1", "ep-10", "h", "historyz")


def _all_of(project: str, few: int | None = None) -> list[str]:
    found = [scopes.of_project(project), scopes.record_of_project(project)]
    for branch in BRANCHES[:few]:
        found += [
            of(project, branch) for of in (scopes.of_branch, scopes.history_of, scopes.log_of, scopes.record_of)
        ]
        found += [scopes.of_endpoint(project, branch, endpoint) for endpoint in ENDPOINTS[:few]]
    return found


ALL = [scope for project in PROJECTS for scope in _all_of(project)]


def test_which_scopes_overlap() -> None:
    branch, endpoint = scopes.of_branch("p", "br-1"), scopes.of_endpoint("p", "br-1", "ep-1")
    other = scopes.of_endpoint("p", "br-1", "ep-10")
    history, record = scopes.history_of("p", "br-1"), scopes.record_of("p", "br-1")
    for scope in (branch, endpoint, history, record):
        assert scopes.overlap(scope, scope)
        assert scopes.overlap(scope, branch)
        assert scopes.overlap(scopes.of_project("p"), scope)
        assert not scopes.overlap(scopes.of_project("p-1"), scope)
        assert not scopes.overlap(scopes.of_branch("p", "br-10"), scope)
        assert not scopes.overlap(scopes.record_of_project("p"), scope)
    for one, two in ((endpoint, other), (endpoint, history), (endpoint, record), (history, record)):
        assert not scopes.overlap(one, two)


@given(st.lists(st.sampled_from(ALL)))
def test_a_cover_holds_the_same_and_does_not_overlap(held: list[str]) -> None:
    cover = scopes.cover(held)
    for scope in ALL:
        assert scopes.overlaps_any([scope], cover) == scopes.overlaps_any([scope], held)
    pairs = [(one, two) for one, two in product(cover, cover) if one != two]
    assert not any(scopes.overlap(one, two) for one, two in pairs)


@pytest.mark.parametrize("name", ["", "a/b", "/"])
def test_a_name_with_a_slash_is_no_scope(name: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        scopes.of_project(name)


async def test_the_database_has_the_same_rule(weir: Weir) -> None:
    span = "weir_scope({0}, left({0}, -1) || '0')"
    statement = text(
        f"SELECT one, two, {span.format('one')} && {span.format('two')} "  # noqa: S608
        "FROM unnest(CAST(:all AS text[])) one, unnest(CAST(:all AS text[])) two"
    )
    async with weir.resources.database.transaction() as session:
        rows = (await session.execute(statement, {"all": ALL})).all()
    assert len(rows) == len(ALL) ** 2
    assert [row for row in rows if scopes.overlap(row[0], row[1]) != row[2]] == []


@pytest_asyncio.fixture(name="made", loop_scope="session")
async def _made(weir: Weir) -> AsyncGenerator[dict[str, Any]]:
    """A project with two branches that have a compute each; what tests hold of it is let go."""
    created = await weir.project(name="scopes")
    weir.storage.advance(created["branch"]["timeline_id"], "0/1900000")
    where = f"/projects/{created['project']['id']}"
    body = {"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]}
    dev = await weir.call("POST", f"{where}/branches", 201, json=body)
    await weir.finish(dev)
    yield {
        "where": where,
        "project": created["project"]["id"],
        "main": created["branch"],
        "main_endpoint": created["endpoints"][0]["id"],
        "dev": dev["branch"],
        "dev_endpoint": dev["endpoints"][0]["id"],
    }
    async with weir.resources.database.transaction() as session:
        await session.execute(delete(OperationLock).where(OperationLock.project_id == created["project"]["id"]))


async def _operation(session: AsyncSession, project: str, held: str) -> Operation:
    """One that no dispatcher touches, as it runs."""
    operation = await enqueue(session, OperationKind.DETACH_BRANCH, project, branch_id=None, also_holds=[])
    operation.status, operation.holds = OperationStatus.RUNNING, [held]
    await session.flush()
    await locks.renew(session, operation.chain or operation.id)
    return operation


async def test_two_operations_are_let_in_exactly_if_their_scopes_do_not_overlap(
    weir: Weir, made: dict[str, Any]
) -> None:
    """Each pair, in one transaction that is taken back; with the check in Python, and by the constraint alone."""
    project = made["project"]
    all_of_one = _all_of(project, few=2)
    wrong: list[tuple[str, str, str]] = []
    async with weir.resources.database.transaction() as session:
        chains: list[UUID] = []
        for _ in range(2):
            operation = await enqueue(session, OperationKind.DELETE_PROJECT, project)
            operation.status = OperationStatus.SKIPPED
            await session.flush()
            await locks.renew(session, operation.id)
            chains.append(operation.id)
        one, two = [await session.get_one(Operation, chain) for chain in chains]
        for first, second in product(all_of_one, all_of_one):
            for way in ("python", "database"):
                attempt = await session.begin_nested()
                one.status, one.holds = OperationStatus.RUNNING, [first]
                two.status, two.holds = OperationStatus.RUNNING, [second]
                await session.flush()
                await locks.renew(session, one.id)
                try:
                    if way == "python":
                        await locks.renew(session, two.id)
                    else:
                        session.add(OperationLock(path=second, chain=two.id, project_id=project))
                        await session.flush()
                except (ProjectBusyError, IntegrityError):
                    refused = True
                else:
                    refused = False
                await attempt.rollback()
                if refused != scopes.overlap(first, second):
                    wrong.append((way, first, second))
        await session.rollback()
    assert wrong == []


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_sessions_at_once_the_second_waits_for_what_the_first_does(
    weir: Weir, made: dict[str, Any], commits: bool
) -> None:
    """Without the lock on the project's row, as a program would that forgot it: the database lets no two in."""
    project, branch = made["project"], made["dev"]["id"]
    database = weir.resources.database

    async def second() -> bool:
        try:
            async with database.transaction() as session:
                await enqueue(session, OperationKind.DETACH_BRANCH, project, branch_id=branch)
                await session.rollback()
        except ProjectBusyError:
            return False
        return True

    async with database.engine.connect() as connection, AsyncSession(connection) as session:
        await _operation(session, project, scopes.of_branch(project, branch))
        waiting = asyncio.create_task(second())
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        await (session.commit() if commits else session.rollback())
    assert await waiting is not commits
    async with database.transaction() as session:
        for ident in await session.scalars(
            select(Operation.id).where(Operation.project_id == project, Operation.status.in_(OPEN))
        ):
            await mark_done(session, ident, "held by a test")


async def test_nothing_stays_held_when_nothing_is_open(weir: Weir, made: dict[str, Any]) -> None:
    where, branch = made["where"], made["dev"]["id"]
    await weir.finish(await weir.call("POST", f"{where}/endpoints/{made['dev_endpoint']}/suspend"))
    body = {"source_branch_id": made["main"]["id"], "preserve_under_name": "before"}
    await weir.finish(await weir.call("POST", f"{where}/branches/{branch}/restore", json=body))
    await weir.finish(await weir.call("DELETE", f"{where}/branches/{branch}"))
    async with weir.resources.database.transaction() as session:
        counted = select(func.count()).where(OperationLock.project_id == made["project"])
        assert await session.scalar(counted) == 0
