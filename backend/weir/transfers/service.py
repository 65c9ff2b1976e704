"""Offering, accepting and moving projects.

What goes with a project is all that is in it, its snapshots, quotas of its own and future usage. What stays is what
was used before, what the audit log says of before, and API keys: those for this project alone are revoked, since they
are the former organisation's. Its computes run on, and clients of its databases notice nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.authz.principal import Principal
from weir.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError
from weir.identity import audit
from weir.identity.models import Account, ApiKey
from weir.kit.clock import now
from weir.kit.crypto import hash_token
from weir.people.repository import PeopleRepository
from weir.people.roles import Role
from weir.projects.locking import lock_project
from weir.projects.models import Project
from weir.quotas import owners
from weir.quotas import service as quotas
from weir.transfers import blocks
from weir.transfers.models import TransferRequest, new_id

LEAST_TO_GIVE = Role.ADMIN
# As who may make a project there.
LEAST_TO_RECEIVE = Role.MEMBER


@dataclass(frozen=True)
class Offer:
    id: UUID
    project_id: str
    created_at: datetime
    expires_at: datetime


async def offer(access: ProjectAccess, project_id: str, seconds: int) -> Offer:
    project = await access.locked_project(project_id)
    session, at = access.session, now()
    await session.execute(
        delete(TransferRequest).where(TransferRequest.project_id == project.id, TransferRequest.expires_at <= at)
    )
    made = Offer(new_id(), project.id, at, at + timedelta(seconds=seconds))
    session.add(
        TransferRequest(
            id_hash=hash_token(str(made.id)),
            project_id=project.id,
            account_id=project.account_id,
            user_id=access.principal.user_id,
            api_key_id=access.principal.api_key_id,
            created_at=made.created_at,
            expires_at=made.expires_at,
        )
    )
    audit.record(
        session, access.principal, "project.offer", f"project/{project.id}", project.id,
        expires_at=made.expires_at.isoformat(),
    )  # fmt: skip
    return made


async def withdraw(access: ProjectAccess, project_id: str) -> None:
    """Ends all offers of the project."""
    project = await access.locked_project(project_id)
    await access.session.execute(delete(TransferRequest).where(TransferRequest.project_id == project.id))
    audit.record(access.session, access.principal, "project.offer_end", f"project/{project.id}", project.id)


async def accept(
    session: AsyncSession, principal: Principal, project_id: str, request_id: UUID, org_id: UUID | None
) -> None:
    """Takes a project that was offered into the organisation that the request acts in, or into `org_id`. An offer
    that is unknown, has expired, was used, is of another project, or of somebody who could not make it any more, is
    the same NotFoundError."""
    target = await _receiving(session, principal, org_id)
    unknown = NotFoundError(
        f"project {project_id} was not offered by transfer request {request_id}, or the request has expired or was "
        "used; have its organization make another one"
    )
    statement = select(TransferRequest).where(
        TransferRequest.id_hash == hash_token(str(request_id)),
        TransferRequest.project_id == project_id,
        TransferRequest.expires_at > now(),
    )
    offered = (await session.scalars(statement)).one_or_none()
    if offered is None:
        raise unknown
    # Under the lock, as it is now: somebody else may have accepted it, or it was withdrawn.
    await lock_project(session, project_id)
    offered = (await session.scalars(statement.execution_options(populate_existing=True))).one_or_none()
    if offered is None or not await _stands(session, offered):
        raise unknown
    giver = replace(principal, account_id=offered.account_id, project_id=None)
    await _move(session, principal, giver, project_id, target)


async def _stands(session: AsyncSession, offered: TransferRequest) -> bool:
    """Whether who made the offer could make it still: an admin who was removed takes nothing along by an offer."""
    if offered.api_key_id is not None:
        key = await session.get_one(ApiKey, offered.api_key_id)
        if key.revoked_at is not None:
            return False
    if offered.user_id is None:
        return True
    membership = await PeopleRepository(session).membership(offered.account_id, offered.user_id)
    return membership is not None and membership.role.covers(LEAST_TO_GIVE)


async def move(session: AsyncSession, principal: Principal, target: UUID, project_ids: Sequence[str]) -> None:
    """From the organisation that the request acts in to one that the person who asks is a member of, all or none."""
    if not principal.is_person or principal.user_id is None:
        raise ForbiddenError(
            "an API key acts in one organization; sign in to move projects to another one, or make a transfer "
            "request with this key and accept it with one of the other organization"
        )
    await _receiving(session, principal, target)
    # All are locked, in one order, before the receiving organisation is: two moves never wait for each other.
    chosen = sorted(set(project_ids))
    for project_id in chosen:
        await ProjectAccess(session, principal).project_to_delete(project_id)
    for project_id in chosen:
        await _move(session, principal, principal, project_id, target)


async def _receiving(session: AsyncSession, principal: Principal, org_id: UUID | None) -> UUID:
    """The organisation that gets a project. Raises unless who asks may make projects there."""
    if org_id is None or org_id == principal.account_id:
        if principal.role is None or not principal.role.covers(LEAST_TO_RECEIVE):
            raise ForbiddenError(f"{principal.name} may make no projects in this organization, nor receive them")
        return principal.account_id
    if not principal.is_person or principal.user_id is None:
        raise ForbiddenError(f"the API key acts in no organization {org_id}; leave `org_id` out, or use a key of it")
    membership = await PeopleRepository(session).membership(org_id, principal.user_id)
    if membership is None:
        raise NotFoundError.of("organization", org_id)
    if not membership.role.covers(LEAST_TO_RECEIVE):
        raise ForbiddenError(
            f"{principal.name} is {membership.role} of the receiving organization, and this is for the role "
            f"{LEAST_TO_RECEIVE} or a greater one"
        )
    return org_id


async def _move(session: AsyncSession, principal: Principal, giver: Principal, project_id: str, target: UUID) -> None:
    """`giver`: who the project is read for; the organisation that it is of still."""
    # With nothing open anywhere in it: operations act, and are told, in the name of the organisation that has it.
    project = await ProjectAccess(session, giver).project_to_delete(project_id)
    if project.delete_requested_at is not None:
        raise ConflictError(f"project {project.id} is half deleted; delete it again to finish")
    source = project.account_id
    if source == target:
        raise BadRequestError(f"project {project.id} is this organization's already")
    why = await blocks.found(session, project)
    if why is not None:
        raise ConflictError(why)
    await quotas.admit_transfer(session, project, owners.account(target))
    at = now()
    keys = update(ApiKey).where(
        ApiKey.project_id == project.id, ApiKey.account_id == source, ApiKey.revoked_at.is_(None)
    )
    await session.execute(keys.values(revoked_at=at).execution_options(synchronize_session=False))
    await session.execute(delete(TransferRequest).where(TransferRequest.project_id == project.id))
    project.account_id, project.updated_at, project.transferred_at = target, at, at
    await session.flush()
    await _record(session, principal, project, source, target)


async def _record(session: AsyncSession, principal: Principal, project: Project, source: UUID, target: UUID) -> None:
    """An entry for each of the two organisations."""
    rows = (await session.execute(select(Account.id, Account.name).where(Account.id.in_([source, target])))).all()
    names = {row[0]: row[1] for row in rows}
    for account in (source, target):
        audit.record(
            session, replace(principal, account_id=account), "project.transfer", f"project/{project.id}", project.id,
            from_organization=names[source], to_organization=names[target], name=project.name,
        )  # fmt: skip
