"""Whether an owner may have one more of something, decided in the transaction that makes it.

Of what an owner has in all, the owner is locked before it is counted, so that of creations at once each counts those
before it, and no number of them exceeds the quota. Of what one project or branch has, the caller has locked the
project, as every change of a project does. The order is always project before owner, so two never wait for each
other. An owner without a quota of a thing is not locked for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.config import get_settings
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import QuotaExceededError
from weir.identity.models import Account
from weir.identity.repository import IdentityRepository
from weir.projects.models import Project
from weir.quotas import owners
from weir.quotas.names import DEFAULTS, SUMS, WORDS, OwnerKind, QuotaName, names_of, parse_defaults
from weir.quotas.owners import Owner
from weir.quotas.repository import QuotaRepository
from weir.usage.models import StorageMeter

Limits = Mapping[QuotaName, int | None]
_HOW_TO_FREE = {
    QuotaName.PROJECTS: "delete one",
    QuotaName.API_KEYS: "revoke one",
    QuotaName.BRANCHES: "delete one",
    QuotaName.COMPUTES: "suspend one",
    QuotaName.COMPUTE_UNITS: "suspend a compute",
    QuotaName.STORAGE_BYTES: "delete branches or projects, or shorten a project's history window",
    QuotaName.ROLES: "delete one",
    QuotaName.DATABASES: "delete one",
}


@dataclass(frozen=True)
class InForce:
    """What holds for an owner, and for one of its projects where one was asked for."""

    owner: Limits
    project: Limits


async def in_force(session: AsyncSession, owner: Owner, project_id: str | None = None) -> InForce:
    """Of each quota the owner's own value, else the installation's, else the usual one. A project's own value stands
    in place of its owner's for what is limited by project or branch; of sums over the owner's projects both hold."""
    project = None if project_id is None else owners.itself(project_id)
    found = await QuotaRepository(session).of([owner, *([project] if project else [])])
    of_owner = {**DEFAULTS, **parse_defaults(get_settings().quotas), **found[owner]}
    of_project: dict[QuotaName, int | None] = {}
    if project is not None:
        of_project = {name: most for name, most in of_owner.items() if name not in SUMS}
        of_project |= dict.fromkeys(SUMS, None) | dict(found[project])
    return InForce(of_owner, of_project)


async def admit_project(session: AsyncSession, owner: Owner) -> None:
    """Raises QuotaExceededError unless the owner may have one more project, and NotFoundError when the owner has
    ended. To be called before it is written."""
    await IdentityRepository(session).hold_account(UUID(owner.id))
    limits = (await in_force(session, owner)).owner
    await _admit(session, owner, QuotaName.PROJECTS, limits)
    await _refuse_full_storage(session, owner, limits)


async def admit_api_key(session: AsyncSession, account_id: UUID) -> None:
    """As `admit_project`, of keys that are not revoked."""
    owner = owners.account(account_id)
    await _admit(session, owner, QuotaName.API_KEYS, (await in_force(session, owner)).owner)


async def admit_branch(session: AsyncSession, project: Project) -> None:
    """With the project locked. A branch that an operation deletes again, as a restore makes one, counts as well."""
    owner, itself = owners.owner_of(project), owners.itself(project.id)
    limits = await in_force(session, owner, project.id)
    await _compare(session, itself, QuotaName.BRANCHES, limits.project)
    await _refuse_full_storage(session, itself, limits.project)
    await _refuse_full_storage(session, owner, limits.owner)


async def admit_transfer(session: AsyncSession, project: Project, owner: Owner) -> None:
    """With the project locked, before it becomes this owner's, with all that is in it. Its own quotas go with it."""
    repository, itself = QuotaRepository(session), owners.itself(project.id)
    await IdentityRepository(session).hold_account(UUID(owner.id))
    limits = await in_force(session, owner, project.id)
    await _admit(session, owner, QuotaName.PROJECTS, limits.owner)
    for name in sorted(SUMS):
        used = (await repository.used(itself, name)).amount or 0
        if name is QuotaName.STORAGE_BYTES:
            # Measured of all projects, not only of those with a quota of it.
            meter = await session.get(StorageMeter, project.id)
            used = max(used, 0 if meter is None else meter.bytes)
        if used:
            await _admit(session, owner, name, limits.owner, used)
    for name in names_of(OwnerKind.PROJECT):
        await _compare(session, itself, name, limits.project, 0)


async def admit_compute(session: AsyncSession, project: Project, endpoint: Endpoint | float) -> None:
    """With the project locked, before the endpoint is wanted to run, or one that is not written yet with at most so
    many units. One that runs already, or is to, is no more."""
    if isinstance(endpoint, Endpoint):
        if _counts(endpoint):
            return
        endpoint = endpoint.max_cu
    await _admit_running(session, project, {QuotaName.COMPUTES: 1, QuotaName.COMPUTE_UNITS: endpoint})


async def admit_size(session: AsyncSession, project: Project, endpoint: Endpoint, units: float) -> None:
    """With the project locked, before the endpoint may have so many units. One that does not run is asked about at
    its start."""
    if _counts(endpoint) and units > endpoint.max_cu:
        await _admit_running(session, project, {QuotaName.COMPUTE_UNITS: units - endpoint.max_cu})


def _counts(endpoint: Endpoint) -> bool:
    return EndpointState.ACTIVE in {endpoint.desired_state, endpoint.state}


async def _admit_running(session: AsyncSession, project: Project, added: dict[QuotaName, float]) -> None:
    owner, itself = owners.owner_of(project), owners.itself(project.id)
    limits = await in_force(session, owner, project.id)
    for name, more in added.items():
        await _compare(session, itself, name, limits.project, more)
        await _admit(session, owner, name, limits.owner, more)


async def admit_role(session: AsyncSession, project: Project, branch_id: str) -> None:
    """With the project locked."""
    await _admit_in_branch(session, project, branch_id, QuotaName.ROLES)


async def admit_database(session: AsyncSession, project: Project, branch_id: str) -> None:
    """With the project locked."""
    await _admit_in_branch(session, project, branch_id, QuotaName.DATABASES)


async def _admit_in_branch(session: AsyncSession, project: Project, branch_id: str, name: QuotaName) -> None:
    limits = await in_force(session, owners.owner_of(project), project.id)
    most = limits.project[name]
    if most is None:
        return
    used = await QuotaRepository(session).of_branch(branch_id, name)
    if used + 1 > most:
        raise await _exceeded(session, owners.itself(project.id), name, most, used, f"branch {branch_id}")


async def _admit(session: AsyncSession, owner: Owner, name: QuotaName, limits: Limits, more: float = 1) -> None:
    """As `_compare`, with the owner locked, so that it holds for creations at once."""
    if limits[name] is not None:
        await QuotaRepository(session).lock(owner)
        await _compare(session, owner, name, limits, more)


async def _compare(session: AsyncSession, owner: Owner, name: QuotaName, limits: Limits, more: float = 1) -> None:
    most = limits[name]
    if most is None:
        return
    used = (await QuotaRepository(session).used(owner, name)).amount or 0
    if used + more > most:
        raise await _exceeded(session, owner, name, most, used)


async def _refuse_full_storage(session: AsyncSession, owner: Owner, limits: Limits) -> None:
    """By what was measured last, up to a minute ago: what is made now holds nothing of its own yet, so nothing has to
    be locked."""
    most = limits[QuotaName.STORAGE_BYTES]
    if most is None:
        return
    used = (await QuotaRepository(session).used(owner, QuotaName.STORAGE_BYTES)).amount or 0
    if used >= most:
        raise await _exceeded(session, owner, QuotaName.STORAGE_BYTES, most, used)


async def _exceeded(
    session: AsyncSession, owner: Owner, name: QuotaName, most: int, used: int, what: str | None = None
) -> QuotaExceededError:
    if owner.kind is OwnerKind.ACCOUNT:
        called = (await session.scalars(select(Account.name).where(Account.id == UUID(owner.id)))).one()
        whose = f"--account {called}"
    else:
        called, whose = owner.id, f"--project {owner.id}"
    return QuotaExceededError(
        f"{what or f'{owner.kind} {called}'} has {used} {WORDS[name]}, and its quota {name} is {most}: "
        f"{_HOW_TO_FREE[name]}, or have the installation's operator raise it by "
        f"`weir-admin quotas set {whose} {name} NUMBER`"
    )
