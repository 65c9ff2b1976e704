from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request

from weir.authz.access import Access
from weir.branches.points import Engine
from weir.clients.dependencies import Http, PageserverClient, SafekeeperClients
from weir.databases import schema_states
from weir.databases.schema_dump import WAKE_SECONDS, Wake
from weir.databases.schemas import BranchSchema, BranchSchemaComparison
from weir.db import Database
from weir.errors import (
    BadRequestError,
    NotFoundError,
    PreconditionFailedError,
    ProjectBusyError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.schemas import Id, Lsn, PathId, Timestamp
from weir.proxy.service import wake
from weir.snapshots.reading import Reader, State

router = APIRouter(
    prefix="/projects/{project_id}/branches/{branch_id}",
    tags=["branches"],
    responses=responses(
        UnauthorizedError, BadRequestError, NotFoundError, PreconditionFailedError, ProjectBusyError, UnavailableError
    ),
)
ACTOR = "schema"


async def _wake(request: Request) -> Wake:
    database: Database = request.app.state.database

    async def started(endpoint_id: str) -> None:
        await wake(database, endpoint_id, WAKE_SECONDS, actor=ACTOR)

    return started


async def _reader(
    request: Request, access: Access, pageserver: PageserverClient, safekeepers: SafekeeperClients, http: Http
) -> Reader:
    return Reader(request.app.state.database, Engine(pageserver, safekeepers, http), access.principal)


Waking = Annotated[Wake, Depends(_wake)]
Reading = Annotated[Reader, Depends(_reader)]
DatabaseName = Annotated[str, Query(min_length=1, max_length=63)]


@router.get("/schema")
async def get_project_branch_schema(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    waking: Waking,
    reader: Reading,
    db_name: DatabaseName,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
    format: Literal["sql"] = "sql",  # noqa: A002
) -> BranchSchema:
    """The schema of a database as `pg_dump --schema-only` writes it, read as the database's owner: as it is now, or
    as it was, by a compute that is made for it and takes seconds to start. For now the branch needs a compute, 412
    otherwise; one that is suspended is started, for which 30 s are waited."""
    del format
    state = State(lsn, timestamp)
    return BranchSchema(sql=await schema_states.schema(access, waking, reader, project_id, branch_id, state, db_name))


@router.get("/compare_schema")
async def get_project_branch_schema_comparison(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    waking: Waking,
    reader: Reading,
    db_name: DatabaseName,
    base_branch_id: Annotated[Id | None, Query()] = None,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
    base_lsn: Annotated[Lsn | None, Query()] = None,
    base_timestamp: Annotated[Timestamp | None, Query()] = None,
) -> BranchSchemaComparison:
    """How the schema of a database differs from the base branch's, the parent's unless one is named: a unified diff,
    empty where they are the same. Each is of now or of the past, as `schema` reads them."""
    states = State(base_lsn, base_timestamp), State(lsn, timestamp)
    difference = await schema_states.compare(
        access, waking, reader, project_id, branch_id, base_branch_id, states, db_name
    )
    return BranchSchemaComparison(diff=difference)
