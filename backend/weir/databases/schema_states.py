"""Schemas of now and of the past, alone and compared."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from weir.authz.access import ProjectAccess
from weir.databases import schema_dump
from weir.db import release
from weir.snapshots.reading import Reader, State, reading


@asynccontextmanager
async def _source(
    access: ProjectAccess,
    wake: schema_dump.Wake,
    reader: Reader,
    branch: tuple[str, str],
    state: State,
    database: str,
) -> AsyncGenerator[schema_dump.Source]:
    project_id, branch_id = branch
    if state.is_past:
        # What the request has read so far, who asks at least.
        await release(access.session)
        async with reading(reader, project_id, branch_id, state, database) as source:
            yield source
    else:
        yield await schema_dump.source_of_now(access, wake, project_id, branch_id, database)


async def schema(
    access: ProjectAccess,
    wake: schema_dump.Wake,
    reader: Reader,
    project_id: str,
    branch_id: str,
    state: State,
    database: str,
) -> str:
    """The database's schema as SQL. Raises what `schema_dump.source_of_now`, `reading` and `dump` raise."""
    async with _source(access, wake, reader, (project_id, branch_id), state, database) as source:
        return await schema_dump.dump(source)


async def compare(
    access: ProjectAccess,
    wake: schema_dump.Wake,
    reader: Reader,
    project_id: str,
    branch_id: str,
    base_branch_id: str | None,
    states: tuple[State, State],
    database: str,
) -> str:
    """A unified diff from the base's schema, the parent's unless one is named, to the branch's; `states`: the base's
    and the branch's. Raises what `schema` raises, and BadRequestError for a branch without a parent when no base is
    named."""
    base_id = await schema_dump.base_of(access, project_id, branch_id, base_branch_id)
    await release(access.session)
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(_source(access, wake, reader, (project_id, ident), state, database))
            for ident, state in zip((base_id, branch_id), states, strict=True)
        ]
        return await schema_dump.difference_of(sources[0], sources[1], database)
