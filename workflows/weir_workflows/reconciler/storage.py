"""What storage should have and does not: timelines made while a safekeeper was down, a tenant's settings."""

import asyncio
import random
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch, BranchState
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Safekeeper
from weir.operations.repository import OperationRepository
from weir.projects.models import Project, storage_config
from weir.recovery.description import describe, revision
from weir_workflows.common.resources import Resources

log = structlog.get_logger()

# In one round, so that it ends in its time whatever storage is short of; the next rounds go on.
TENANTS_A_ROUND = 200


async def repair_safekeepers(resources: Resources) -> list[str]:
    """Ids of branches that were missing somewhere and are not any more."""
    held = await asyncio.gather(*(_held(keeper) for keeper in resources.safekeepers))
    async with resources.database.transaction() as session:
        statement = select(Branch.id, Branch.timeline_id).where(
            Branch.state == BranchState.READY, Branch.deleted_at.is_(None), Branch.delete_requested_at.is_(None)
        )
        branches = (await session.execute(statement)).all()
    repaired: list[str] = []
    for branch_id, timeline_id in branches:
        lacking = [
            keeper
            for keeper, timelines in zip(resources.safekeepers, held, strict=True)
            if timelines is not None and timeline_id not in timelines
        ]
        if lacking and await _repair(resources, branch_id, lacking):
            repaired.append(branch_id)
    return repaired


async def _held(keeper: Safekeeper) -> set[str] | None:
    try:
        return {item["timeline_id"] for item in await keeper.timelines()}
    except RemoteError:
        return None


async def _repair(resources: Resources, branch_id: str, lacking: list[Safekeeper]) -> bool:
    """With the project locked and idle, so that no deletion can overtake it."""
    async with resources.database.transaction() as session:
        branch = await session.get(Branch, branch_id)
        if branch is None:
            return False
        project = await _idle_project(session, branch.project_id)
        if project is None:
            return False
        try:
            timeline = await resources.pageserver.timeline(project.tenant_id, branch.timeline_id)
            if timeline is None:
                return False
            for keeper in lacking:
                await keeper.create_timeline(
                    project.tenant_id,
                    branch.timeline_id,
                    timeline.start_lsn,
                    timeline.system_identifier,
                    timeline.pg_version,
                )
        except RemoteError as error:
            log.warning("safekeeper_not_repaired", branch_id=branch.id, error=str(error))
            return False
    log.info("safekeeper_repaired", branch_id=branch.id, safekeepers=[keeper.base_url for keeper in lacking])
    return True


async def _idle_project(session: AsyncSession, project_id: str) -> Project | None:
    statement = (
        select(Project)
        .where(Project.id == project_id, Project.deleted_at.is_(None), Project.delete_requested_at.is_(None))
        .with_for_update(skip_locked=True)
    )
    project = (await session.scalars(statement)).one_or_none()
    if project is None or await OperationRepository(session).open_of_project(project_id) is not None:
        return None
    return project


def _differs(held: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    """A tenant that is not there is not this one's to make."""
    return held is not None and any(held.get(name) != value for name, value in wanted.items())


async def repair_descriptions(resources: Resources) -> list[str]:
    """Projects that were described otherwise than they are, and are not any more: renamed, say."""
    if resources.settings.compute_runtime == "simulated":
        return []
    try:
        held = {tenant["id"]: tenant.get("about_revision") for tenant in await resources.pageserver.tenants()}
    except RemoteError as error:
        log.warning("descriptions_not_checked", error=str(error))
        return []
    async with resources.database.transaction() as session:
        statement = select(Project).where(Project.deleted_at.is_(None), Project.delete_requested_at.is_(None))
        projects = [row for row in (await session.scalars(statement)).all() if row.tenant_id in held]
        documents = await describe(session, projects)
    wrong = [project for project in projects if held[project.tenant_id] != revision(documents[project.id])]
    repaired: list[str] = []
    for project in random.sample(wrong, min(TENANTS_A_ROUND, len(wrong))):
        wanted = revision(documents[project.id])
        try:
            await resources.pageserver.put_about(project.tenant_id, wanted, documents[project.id])
        except RemoteError as error:
            log.warning("project_not_described", project_id=project.id, error=str(error))
            continue
        repaired.append(project.id)
    return repaired


async def repair_tenants(resources: Resources) -> list[str]:
    """Tenants whose settings were not those of their projects, and are now: made by another version, or restored."""
    try:
        tenants = {tenant["id"]: tenant.get("config") or {} for tenant in await resources.pageserver.tenants()}
    except RemoteError as error:
        log.warning("tenants_not_checked", error=str(error))
        return []
    async with resources.database.transaction() as session:
        # Columns and not objects: this is the whole fleet, and mostly nothing of it is wrong.
        statement = select(Project.id, Project.tenant_id, Project.history_retention_seconds).where(
            Project.deleted_at.is_(None), Project.delete_requested_at.is_(None)
        )
        projects = (await session.execute(statement)).all()
    wrong = [
        (ident, tenant_id, wanted)
        for ident, tenant_id, retention in projects
        if _differs(tenants.get(tenant_id), wanted := storage_config(retention))
    ]
    # Any of them: some that storage refuses again and again must not stand before the others.
    chosen = random.sample(wrong, min(TENANTS_A_ROUND, len(wrong)))
    repaired: list[str] = []
    for ident, tenant_id, wanted in chosen:
        try:
            await resources.pageserver.configure_tenant(tenant_id, wanted)
        except RemoteError as error:
            log.warning("tenant_not_repaired", project_id=ident, error=str(error))
            continue
        log.info("tenant_repaired", project_id=ident, config=wanted)
        repaired.append(tenant_id)
    return repaired
