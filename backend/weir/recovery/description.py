"""What the object store is told of a project: all that is needed to make its rows again, and no secret.

Storage knows of a branch its timeline, ancestor, branch point and Postgres version. Names, owners and settings are
known here alone, so a document beside the timelines holds them: one for a project, since a restore lets two branches
exchange timelines in one step. It is made whole from the database each time, and says more rather than less: a branch
is described before its timeline is made, a role or a database before a compute is told of it.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, Role
from weir.endpoints.models import Endpoint
from weir.identity.models import Account
from weir.projects.models import Project

VERSION = 1


async def describe(session: AsyncSession, projects: Sequence[Project]) -> dict[str, dict[str, Any]]:
    """The document of each project, by the project's id."""
    wanted = [project.id for project in projects]
    accounts = {row.id: row for row in (await session.scalars(select(Account))).all()}
    living = (Branch.project_id.in_(wanted), Branch.deleted_at.is_(None))
    branches = (await session.scalars(select(Branch).where(*living).order_by(Branch.created_at, Branch.id))).all()
    owned = [row.id for row in branches]
    roles = (await session.scalars(select(Role).where(Role.branch_id.in_(owned)).order_by(Role.name))).all()
    databases = (
        await session.scalars(
            select(BranchDatabase).where(BranchDatabase.branch_id.in_(owned)).order_by(BranchDatabase.name)
        )
    ).all()
    endpoints = (
        await session.scalars(
            select(Endpoint)
            .where(Endpoint.branch_id.in_(owned), Endpoint.deleted_at.is_(None))
            .order_by(Endpoint.created_at, Endpoint.id)
        )
    ).all()
    return {
        project.id: {
            "version": VERSION,
            "project": _project(project, accounts[project.account_id]),
            "branches": [
                {
                    **_branch(row),
                    "roles": [role.name for role in roles if role.branch_id == row.id],
                    "databases": [
                        {"name": held.name, "owner": held.owner_name}
                        for held in databases
                        if held.branch_id == row.id
                    ],
                    "endpoints": [_endpoint(held) for held in endpoints if held.branch_id == row.id],
                }
                for row in branches
                if row.project_id == project.id
            ],
        }
        for project in projects
    }


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


def _branch(branch: Branch) -> dict[str, Any]:
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
    }


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "name": endpoint.name,
        "type": endpoint.type,
        "port": endpoint.port,
        "pg_settings": endpoint.pg_settings,
        "full_page_writes": endpoint.full_page_writes,
        "suspend_timeout_seconds": endpoint.suspend_timeout_seconds,
        "disabled": endpoint.disabled,
        "created_at": _time(endpoint.created_at),
    }
