"""Putting what an object store holds into the metadata database: all of it in one transaction, or nothing."""

from dataclasses import dataclass, field

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from weir.config import Settings
from weir.endpoints.repository import EndpointRepository
from weir.errors import ConflictError, UnavailableError
from weir.identity import audit
from weir.identity.repository import IdentityRepository
from weir.projects.models import Project
from weir.recovery.inventory import FoundTenant
from weir.recovery.rebuild import Rebuilt, rebuild

ACTOR = "weir recover"
_LOCK = 0x77656972_03


@dataclass
class Recovery:
    """What was found, by what becomes of it."""

    made: list[Rebuilt] = field(default_factory=list[Rebuilt])
    # Projects the database has already, and tenants of which nothing is left.
    known: list[Project] = field(default_factory=list[Project])
    empty: list[FoundTenant] = field(default_factory=list[FoundTenant])


async def plan(session: AsyncSession, found: list[FoundTenant], settings: Settings) -> Recovery:
    """Reads only."""
    rows = {row.tenant_id: row for row in (await session.scalars(select(Project))).all()}
    recovery = Recovery()
    for tenant in found:
        project = rows.get(tenant.id)
        if project is not None:
            recovery.known.append(project)
            continue
        built = rebuild(tenant, settings.region_id)
        if built is None:
            recovery.empty.append(tenant)
        else:
            recovery.made.append(built)
    return recovery


async def recover(
    session: AsyncSession, found: list[FoundTenant], settings: Settings, *, beside_others: bool
) -> Recovery:
    """In the caller's transaction. Nobody else recovers meanwhile; what is known already is left as it is."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    recovery = await plan(session, found, settings)
    if not recovery.made:
        return recovery
    living = (await session.scalars(select(Project).where(Project.deleted_at.is_(None)))).all()
    if living and not beside_others:
        names = ", ".join(f"{row.name} ({row.id})" for row in living[:5])
        raise ConflictError(
            f"the metadata database has {len(living)} project(s) already: {names}. It is not one that was lost. To "
            "add what the object store holds beside them, say --beside-others"
        )
    for built in recovery.made:
        await _insert(session, built, settings)
    return recovery


async def _insert(session: AsyncSession, built: Rebuilt, settings: Settings) -> None:
    project = built.project
    if await session.get(Project, project.id) is not None:
        raise ConflictError(f"project {project.id} is in the database with another tenant than {project.tenant_id}")
    name, email = built.owner
    owner = await IdentityRepository(session).ensure_account(name, email)
    project.account_id = owner.id
    session.add(project)
    await session.flush()
    for branch in built.branches:
        session.add(branch)
        await session.flush()
    session.add_all([*built.roles, *built.databases, *built.snapshots, *built.schedules])
    repository = EndpointRepository(session)
    for endpoint in built.endpoints:
        # Where its clients look for it, if that is to be had.
        endpoint.host = settings.compute_host
        if endpoint.port not in settings.compute_port_range or await repository.port_is_taken(endpoint.port):
            port = await repository.free_port(settings.compute_port_range, settings.compute_host)
            if port is None:
                raise UnavailableError(
                    f"no port is left in WEIR_COMPUTE_PORTS={settings.compute_ports}; widen the range"
                )
            endpoint.port = port
        session.add(endpoint)
        await session.flush()
    audit.record_system(
        session,
        ACTOR,
        "project.recover",
        f"project/{project.id}",
        project.id,
        branches=[branch.name for branch in built.branches if not branch.is_snapshot],
        snapshots=[snapshot.id for snapshot in built.snapshots],
    )
    await session.flush()
