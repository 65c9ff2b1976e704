"""What the object store is told of a project: all that is needed to make its rows again, and no secret.

Storage knows of a branch its timeline, ancestor, branch point and Postgres version. Names, owners and settings are
known here alone, so a document beside the timelines holds them: one for a project, since a restore lets two branches
exchange timelines in one step. It is made whole from the database each time, and says more rather than less: a branch
is described before its timeline is made, a role or a database before a compute is told of it.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Row, Select, Text, any_, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, Role
from weir.endpoints.models import Endpoint
from weir.identity.models import Account
from weir.projects.models import Project
from weir.snapshots.models import BackupScheduleItem, Snapshot

VERSION = 1


# Columns and not objects: a round of the reconciler describes all projects that there are.
_BRANCH = (
    Branch.project_id, Branch.id, Branch.name, Branch.timeline_id, Branch.parent_id, Branch.parent_lsn,
    Branch.parent_timestamp, Branch.is_default, Branch.protected, Branch.durability, Branch.created_at,
    Branch.restored_from, Branch.restored_as,
)  # fmt: skip
_ENDPOINT = (
    Endpoint.branch_id, Endpoint.id, Endpoint.name, Endpoint.type, Endpoint.port, Endpoint.pg_settings,
    Endpoint.full_page_writes, Endpoint.suspend_timeout_seconds, Endpoint.disabled, Endpoint.prewarm,
    Endpoint.min_cu, Endpoint.max_cu, Endpoint.created_at,
)  # fmt: skip

_SNAPSHOT = (
    Snapshot.branch_id, Snapshot.id, Snapshot.source_branch_id, Snapshot.name, Snapshot.timestamp, Snapshot.manual,
    Snapshot.created_by, Snapshot.created_at, Snapshot.delete_requested_at, Branch.expires_at,
)  # fmt: skip
_SCHEDULE = (
    BackupScheduleItem.branch_id, BackupScheduleItem.frequency, BackupScheduleItem.hour, BackupScheduleItem.day,
    BackupScheduleItem.retention_seconds,
)  # fmt: skip

_AnyRow = Row[*tuple[Any, ...]]
_Rows = dict[str, list[_AnyRow]]


async def describe(session: AsyncSession, projects: Sequence[Project]) -> dict[str, dict[str, Any]]:
    """The document of each project, by the project's id. The work grows with what the projects have, and with nothing
    else."""
    owners = {project.account_id for project in projects}
    accounts = {row.id: row for row in (await session.scalars(select(Account).where(Account.id.in_(owners)))).all()}
    # One parameter, however many there are: Postgres takes no more than 65,535 of them.
    ids = literal([project.id for project in projects], ARRAY(Text))
    living = (Branch.project_id == any_(ids), Branch.deleted_at.is_(None))
    branches = await _by_first(session, select(*_BRANCH).where(*living).order_by(Branch.created_at, Branch.id))
    roles = await _by_first(
        session,
        select(Role.branch_id, Role.name)
        .join(Branch, Branch.id == Role.branch_id)
        .where(*living)
        .order_by(Role.name),
    )
    databases = await _by_first(
        session,
        select(BranchDatabase.branch_id, BranchDatabase.name, BranchDatabase.owner_name)
        .join(Branch, Branch.id == BranchDatabase.branch_id)
        .where(*living)
        .order_by(BranchDatabase.name),
    )
    endpoints = await _by_first(
        session,
        select(*_ENDPOINT)
        .join(Branch, Branch.id == Endpoint.branch_id)
        .where(*living, Endpoint.deleted_at.is_(None))
        .order_by(Endpoint.created_at, Endpoint.id),
    )
    snapshots = await _by_first(
        session, select(*_SNAPSHOT).join(Branch, Branch.id == Snapshot.branch_id).where(*living)
    )
    schedules = await _by_first(
        session,
        select(*_SCHEDULE)
        .join(Branch, Branch.id == BackupScheduleItem.branch_id)
        .where(*living)
        .order_by(BackupScheduleItem.position),
    )
    return {
        project.id: {
            "version": VERSION,
            "project": _project(project, accounts[project.account_id]),
            "branches": [
                {
                    **_branch(row),
                    **_kept(snapshots.get(row.id, ()), schedules.get(row.id, ())),
                    "roles": [role.name for role in roles.get(row.id, ())],
                    "databases": [
                        {"name": held.name, "owner": held.owner_name} for held in databases.get(row.id, ())
                    ],
                    "endpoints": [_endpoint(held) for held in endpoints.get(row.id, ())],
                }
                for row in branches.get(project.id, ())
            ],
        }
        for project in projects
    }


async def _by_first(session: AsyncSession, statement: Select[*tuple[Any, ...]]) -> _Rows:
    """The rows by what their first column says they belong to, in the order of the statement."""
    rows: Iterable[_AnyRow] = (await session.execute(statement)).all()
    found: _Rows = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def revision(document: dict[str, Any]) -> str:
    """Tells one document from another: 16 hex digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _project(project: Project, account: Account) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "account": {"name": account.name, "email": account.email},
        "pg_version": project.pg_version,
        "region_id": project.region_id,
        "cell": project.cell,
        "tags": project.tags,
        "history_retention_seconds": project.history_retention_seconds,
        "settings": project.settings,
        "default_endpoint_settings": project.default_endpoint_settings,
        "created_at": _time(project.created_at),
    }


def _branch(branch: _AnyRow) -> dict[str, Any]:
    return {
        "id": branch.id,
        "name": branch.name,
        "timeline_id": branch.timeline_id,
        "parent_id": branch.parent_id,
        "parent_lsn": branch.parent_lsn,
        "parent_timestamp": _time(branch.parent_timestamp),
        "is_default": branch.is_default,
        "protected": branch.protected,
        "durability": branch.durability.value,
        "created_at": _time(branch.created_at),
        **{name: held for name in ("restored_from", "restored_as") if (held := getattr(branch, name)) is not None},
    }


def _kept(snapshots: Sequence[_AnyRow], schedule: Sequence[_AnyRow]) -> dict[str, Any]:
    """Of a branch that holds a snapshot, and of one that snapshots are taken of: nothing of most."""
    found: dict[str, Any] = {}
    for row in snapshots:
        found["snapshot"] = {
            "id": row.id,
            "source_branch_id": row.source_branch_id,
            "name": row.name,
            "timestamp": _time(row.timestamp),
            "manual": row.manual,
            "created_by": row.created_by,
            "created_at": _time(row.created_at),
            "expires_at": _time(row.expires_at),
            "delete_requested_at": _time(row.delete_requested_at),
        }
    if schedule:
        found["backup_schedule"] = [
            {
                "frequency": row.frequency.value,
                "hour": row.hour,
                "day": row.day,
                "retention_seconds": row.retention_seconds,
            }
            for row in schedule
        ]
    return found


def _endpoint(endpoint: _AnyRow) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "name": endpoint.name,
        "type": endpoint.type,
        "port": endpoint.port,
        "pg_settings": endpoint.pg_settings,
        "full_page_writes": endpoint.full_page_writes,
        "suspend_timeout_seconds": endpoint.suspend_timeout_seconds,
        "disabled": endpoint.disabled,
        "prewarm": endpoint.prewarm,
        "min_cu": endpoint.min_cu,
        "max_cu": endpoint.max_cu,
        "created_at": _time(endpoint.created_at),
    }
