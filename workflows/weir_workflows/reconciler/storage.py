"""What storage should have and does not: a tenant's settings, a project's description."""

import random
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import select

from weir.clients.http import RemoteError
from weir.projects.models import Project, storage_config
from weir.recovery.description import describe, revision
from weir_workflows.common.resources import Resources
from weir_workflows.storage.describing import ensure_described

log = structlog.get_logger()

# Looked at in one round: the next one goes on where this one ended.
DESCRIBED_A_ROUND = 2_500
# Changed in one round, so that it ends in its time whatever storage is short of; the next rounds go on.
TENANTS_A_ROUND = 200


def _differs(held: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    """A tenant that is not there is not this one's to make."""
    return held is not None and any(held.get(name) != value for name, value in wanted.items())


@dataclass(frozen=True)
class Described:
    """Ids of projects that were described otherwise than they are, and are not any more: renamed, say. `seen_to`: the
    last id that was looked at, empty when that was the last one there is."""

    repaired: list[str]
    seen_to: str


async def repair_descriptions(resources: Resources, after: str = "") -> Described:
    """Of the next projects by id."""
    if resources.settings.compute_runtime == "simulated":
        return Described([], "")
    try:
        held = {tenant["id"]: tenant.get("about_revision") for tenant in await resources.pageserver.tenants()}
    except RemoteError as error:
        log.warning("descriptions_not_checked", error=str(error))
        return Described([], "")
    async with resources.database.transaction() as session:
        statement = (
            select(Project)
            .where(Project.deleted_at.is_(None), Project.delete_requested_at.is_(None), Project.id > after)
            .order_by(Project.id)
            .limit(DESCRIBED_A_ROUND)
        )
        part = (await session.scalars(statement)).all()
        projects = [row for row in part if row.tenant_id in held]
        documents = await describe(session, projects)
    wrong = [project for project in projects if held[project.tenant_id] != revision(documents[project.id])]
    repaired: list[str] = []
    for project in random.sample(wrong, min(TENANTS_A_ROUND, len(wrong))):
        try:
            # As it is by now: an operation may have described it since.
            await ensure_described(resources, project.id)
        except RemoteError as error:
            log.warning("project_not_described", project_id=project.id, error=str(error))
            continue
        repaired.append(project.id)
    return Described(repaired, part[-1].id if len(part) == DESCRIBED_A_ROUND else "")


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
