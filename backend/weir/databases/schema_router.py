from typing import Annotated, Literal

from fastapi import APIRouter, Query

from weir.authz.access import Access
from weir.databases import schema_dump
from weir.databases.schemas import BranchSchema, BranchSchemaComparison
from weir.errors import (
    BadRequestError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.schemas import Id, Lsn, PathId, Timestamp

router = APIRouter(
    prefix="/projects/{project_id}/branches/{branch_id}",
    tags=["branches"],
    responses=responses(
        UnauthorizedError, BadRequestError, NotBuiltError, NotFoundError, PreconditionFailedError, UnavailableError
    ),
)
DatabaseName = Annotated[str, Query(min_length=1, max_length=63)]


def _refuse_past(*points: object) -> None:
    if any(point is not None for point in points):
        raise NotBuiltError(
            "the schema of an earlier state is not built: a compute has to run on it; make a branch of that state "
            "with an endpoint, ask for its schema, and delete it again"
        )


@router.get("/schema")
async def get_project_branch_schema(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    db_name: DatabaseName,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
    format: Literal["sql"] = "sql",  # noqa: A002
) -> BranchSchema:
    """The schema of a database as it is now, as `pg_dump --schema-only` writes it, read as the database's owner. The
    branch's compute has to run: 412 otherwise."""
    del format
    _refuse_past(lsn, timestamp)
    return BranchSchema(sql=await schema_dump.schema(access, project_id, branch_id, db_name))


@router.get("/compare_schema")
async def get_project_branch_schema_comparison(
    project_id: PathId,
    branch_id: PathId,
    access: Access,
    db_name: DatabaseName,
    base_branch_id: Annotated[Id | None, Query()] = None,
    lsn: Annotated[Lsn | None, Query()] = None,
    timestamp: Annotated[Timestamp | None, Query()] = None,
    base_lsn: Annotated[Lsn | None, Query()] = None,
    base_timestamp: Annotated[Timestamp | None, Query()] = None,
) -> BranchSchemaComparison:
    """How the schema of a database differs from the base branch's, the parent's unless one is named: a unified diff,
    empty where they are the same. The computes of both have to run: 412 otherwise."""
    _refuse_past(lsn, timestamp, base_lsn, base_timestamp)
    difference = await schema_dump.compare(access, project_id, branch_id, base_branch_id, db_name)
    return BranchSchemaComparison(diff=difference)
