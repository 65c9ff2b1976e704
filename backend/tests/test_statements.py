"""How often a request asks the metadata database: no more than is written here, BEGIN and COMMIT among it, since each
time is about a fifth of what a read costs the API. And what only reads can't write."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
import structlog
from asyncpg.connection import Connection
from asyncpg.prepared_stmt import PreparedStatement
from fastapi.routing import iter_route_contexts
from sqlalchemy import insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from weir_testing import people
from weir_testing.people import Alone, browser, keyed, person, session_of

from weir.branches.models import Branch, BranchState
from weir.config import Settings
from weir.databases.models import BranchDatabase
from weir.databases.models import Role as PostgresRole
from weir.db import BY_ITSELF, Database, reads
from weir.endpoints.models import Endpoint, EndpointState
from weir.identity import service as identity
from weir.identity.models import Account
from weir.main import create_app
from weir.people.roles import Role
from weir.projects.models import Project

# A handler's own statements come on top of who asks and about which project, which is one with a key. What changes
# something: BEGIN, that one, the project's row locked, what holds it, the audit entry, COMMIT.
READS, CHANGES = 1, 6
EXPECTED: dict[tuple[str, str], int] = {
    ("GET", "/projects"): READS + 2,
    ("GET", "/projects?limit=1"): READS + 2,
    ("GET", "/projects/{project}"): READS + 1,
    # What branches used is of another table, asked once for all of a page.
    ("GET", "/projects/{project}/branches"): READS + 2,
    ("GET", "/projects/{project}/branches/{branch}"): READS + 2,
    ("GET", "/projects/{project}/endpoints"): READS + 1,
    ("GET", "/projects/{project}/endpoints/{endpoint}"): READS + 1,
    ("GET", "/projects/{project}/operations"): READS + 1,
    ("GET", "/projects/{project}/branches/{branch}/roles"): READS + 2,
    ("GET", "/projects/{project}/branches/{branch}/databases"): READS + 2,
    # The project's row, and what it used.
    ("PATCH", "/projects/{project}"): CHANGES + 2,
    # The branch twice, found and written, whether another one has the name; for the answer, whose it is and what it
    # used.
    ("PATCH", "/projects/{project}/branches/{branch}"): CHANGES + 5,
    # The endpoint, found and written.
    ("PATCH", "/projects/{project}/endpoints/{endpoint}"): CHANGES + 2,
}
BODIES: dict[str, Any] = {
    "/projects/{project}": lambda name: {"project": {"name": name}},
    "/projects/{project}/branches/{branch}": lambda name: {"branch": {"name": name}},
    "/projects/{project}/endpoints/{endpoint}": lambda _: {"endpoint": {"suspend_timeout_seconds": 60}},
}


@dataclass(frozen=True)
class Filled:
    alone: Alone
    key: str
    project: str
    branch: str
    endpoint: str

    def concrete(self, path: str) -> str:
        return path.format(project=self.project, branch=self.branch, endpoint=self.endpoint)


async def _fill(database: Database, owner: UUID) -> tuple[str, str, str]:
    project = await people.project(database, owner)
    branch, endpoint = f"br-{uuid4().hex[:12]}", f"ep-{uuid4().hex[:12]}"
    rows: list[tuple[Any, dict[str, Any]]] = [
        (Branch, {"id": branch, "name": "main", "timeline_id": uuid4().hex, "state": BranchState.READY,
                  "is_default": True}),
        (Endpoint, {"id": endpoint, "branch_id": branch, "type": "read_write", "host": "127.0.0.1", "port": 1024,
                    "desired_state": EndpointState.IDLE, "state": EndpointState.IDLE, "pg_settings": {}}),
    ]  # fmt: skip
    async with database.transaction() as session:
        for model, values in rows:
            await session.execute(insert(model).values(project_id=project, **values))
        await session.execute(insert(PostgresRole).values(branch_id=branch, name="owner"))
        await session.execute(insert(BranchDatabase).values(branch_id=branch, name="data", owner_name="owner"))
    return project, branch, endpoint


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def filled(environment: Settings, postgres_url: str) -> AsyncGenerator[Filled]:
    del environment
    async with people.alone(postgres_url) as running:
        async with running.database.transaction() as session:
            name = (await session.scalars(select(Account.name).where(Account.id == running.home))).one()
            key = await identity.create_another_key(session, name)
        yield Filled(running, key, *await _fill(running.database, running.home))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What asyncpg sends, by the id of the request that it is for."""
    counted: Counter[str] = Counter()

    def counting(kind: type[Any], name: str) -> None:
        original = getattr(kind, name)

        async def sent(self: Any, *arguments: Any, **named: Any) -> Any:
            counted[structlog.contextvars.get_contextvars().get("request_id", "")] += 1
            return await original(self, *arguments, **named)

        monkeypatch.setattr(kind, name, sent)

    for name in ("execute", "executemany", "fetchrow"):
        counting(Connection, name)
    counting(PreparedStatement, "fetch")
    return counted


async def _count(client: httpx.AsyncClient, asked: Counter[str], method: str, path: str, body: Any) -> int:
    """Of the second request: the first one may note when the key was used, and wakes connections up."""
    ident = ""
    for number in range(2):
        ident = f"counted-{number}-{uuid4().hex[:12]}"
        given = {"json": body(f"name-{number}")} if body else {}
        answer = await client.request(method, path, headers={"x-request-id": ident}, **given)
        assert answer.is_success, answer.text
    return asked[ident]


@pytest.mark.parametrize(("method", "path"), sorted(EXPECTED))
async def test_a_request_asks_no_more_often_than_this(
    filled: Filled, asked: Counter[str], method: str, path: str
) -> None:
    body = BODIES.get(path) if method == "PATCH" else None
    async with keyed(filled.alone.url, filled.key) as client:
        found = await _count(client, asked, method, filled.concrete(path), body)
    assert found == EXPECTED[method, path]


async def test_a_persons_request_asks_for_the_project_once(filled: Filled, asked: Counter[str]) -> None:
    """Session, person, memberships, project; then the handler's own."""
    token = await session_of(
        filled.alone.database, await person(filled.alone.database, {filled.alone.home: Role.VIEWER})
    )
    async with browser(filled.alone.url, token) as client:
        assert await _count(client, asked, "GET", f"/projects/{filled.project}/operations", None) == 5


async def test_the_project_of_a_key_that_may_not_see_it_does_not_exist(filled: Filled) -> None:
    """It is read along with the key, and is nobody's but its owner's."""
    async with filled.alone.database.transaction() as session:
        name = (await session.scalars(select(Account.name).where(Account.id == filled.alone.elsewhere))).one()
        foreign = await identity.create_another_key(session, name)
    deleted = await people.project(filled.alone.database, filled.alone.home)
    async with filled.alone.database.transaction() as session:
        await session.execute(update(Project).where(Project.id == deleted).values(deleted_at=text("now()")))
    async with keyed(filled.alone.url, foreign) as client:
        for path in ("", "/operations", f"/branches/{filled.branch}", f"/endpoints/{filled.endpoint}"):
            assert (await client.get(f"/projects/{filled.project}{path}")).status_code == 404
        renamed = await client.patch(f"/projects/{filled.project}", json={"project": {"name": "mine"}})
        assert renamed.status_code == 404
    async with keyed(filled.alone.url, filled.key) as client:
        assert (await client.get(f"/projects/{deleted}")).status_code == 404
        # Its operations can be followed to the end.
        assert (await client.get(f"/projects/{deleted}/operations")).status_code == 200


async def _request(
    database: Database, *does: Callable[[AsyncSession], Awaitable[Any]], only_reads: bool, fails: bool = False
) -> None:
    """A request that does this, and then fails or not."""
    async with database.request(only_reads=only_reads) as session:
        for each in does:
            await each(session)
        if fails:
            raise LookupError


def _runs(statement: Any) -> Callable[[AsyncSession], Awaitable[Any]]:
    return lambda session: session.execute(statement)


async def _name_of(database: Database, project: str) -> str:
    async with database.transaction() as session:
        return (await session.scalars(select(Project.name).where(Project.id == project))).one()


async def test_what_only_reads_neither_writes_nor_locks(filled: Filled) -> None:
    database = filled.alone.database
    one = select(Project).where(Project.id == filled.project)
    before = await _name_of(database, filled.project)

    async def rename(session: AsyncSession) -> None:
        (await session.scalars(one)).one().name = "taken"

    async def add(session: AsyncSession) -> None:
        session.add(Account(name="new", email=""))

    async def delete(session: AsyncSession) -> None:
        await session.delete((await session.scalars(one)).one())

    refused = [
        *(_runs(statement) for statement in (
            update(Project).where(Project.id == filled.project).values(name="taken"),
            insert(Account).values(name="new", email=""),
            one.with_for_update(),
            one.with_for_update(skip_locked=True),
            text("SELECT 1"),
        )),
        rename,
        add,
        delete,
    ]  # fmt: skip
    for does in refused:
        with pytest.raises(RuntimeError, match="that only reads was to"):
            await _request(database, does, only_reads=True)
    assert await _name_of(database, filled.project) == before
    async with database.transaction() as session:
        assert (await session.scalars(select(Account).where(Account.name == "new"))).one_or_none() is None


async def test_what_only_reads_sees_what_is_committed_meanwhile(filled: Filled) -> None:
    """As in a transaction of READ COMMITTED."""
    database = filled.alone.database
    async with database.request(only_reads=True) as session:
        row = (await session.scalars(select(Project).where(Project.id == filled.project))).one()
        renamed = update(Project).where(Project.id == filled.project).values(name="renamed meanwhile")
        await _request(database, _runs(renamed), only_reads=False)
        assert row.name != "renamed meanwhile"
        await session.refresh(row)
        assert row.name == "renamed meanwhile"


async def test_what_is_whole_by_itself_stays_though_the_request_fails(filled: Filled) -> None:
    database = filled.alone.database
    change = update(Project).where(Project.id == filled.project).values(name="by itself")
    does = _runs(change.execution_options(synchronize_session=False, **BY_ITSELF))
    with pytest.raises(LookupError):
        await _request(database, does, only_reads=True, fails=True)
    assert await _name_of(database, filled.project) == "by itself"


async def test_a_connection_that_was_read_by_has_transactions_again(filled: Filled) -> None:
    """The pool is shared: what a failed request wrote is gone, whoever had the connection before."""
    database = filled.alone.database
    half = update(Project).where(Project.id == filled.project).values(name="half")
    for _ in range(25):
        await _request(database, _runs(select(Project.id)), only_reads=True)
        with pytest.raises(LookupError):
            await _request(database, _runs(half), only_reads=False, fails=True)
    assert await _name_of(database, filled.project) != "half"


def test_only_gets_are_said_to_read() -> None:
    def handler() -> None: ...

    (mark,) = set(vars(reads(handler)))
    marked = {
        (method, str(route.name))
        for route in iter_route_contexts(create_app().routes)
        for method in (getattr(route, "methods", None) or ())
        if getattr(route.endpoint, mark, False)
    }
    assert len(marked) > 10
    assert {method for method, _ in marked} <= {"GET", "HEAD"}
    # What shows a secret is written down.
    assert not {name for _, name in marked} & {"get_project_branch_role_password", "get_connection_uri"}
