"""Organisations as those who run the installation keep them: made, renamed, and ended once nothing is in them.

Who runs the installation makes an organisation and says who owns it, and is not in it: what its members have there
stays theirs. An organisation of operators is made by `weir-admin` alone, and does not end here, so that no API key
makes another one that may do as much.
"""

from uuid import UUID

from sqlalchemy import CursorResult, Executable, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.principal import Principal
from weir.errors import ConflictError, NotFoundError
from weir.identity import audit
from weir.identity.models import Account, ApiKey
from weir.kit.clock import now
from weir.people.keeping_schemas import OrganizationChange, OrganizationCreateRequest
from weir.people.models import Invitation, Membership
from weir.people.repository import PeopleRepository
from weir.people.roles import Role
from weir.projects.models import Project

_NAMED_AT_MOST = 5


async def create(session: AsyncSession, principal: Principal, asked: OrganizationCreateRequest) -> Account:
    """Raises ConflictError when the name is taken, NotFoundError when nobody has the owner's email."""
    owner = None
    if asked.owner is not None:
        owner = await PeopleRepository(session).user_of_email(asked.owner)
        if owner is None:
            raise NotFoundError(
                f"nobody with the email {asked.owner} is known here, who was to own {asked.name}; "
                "`weir-admin user create` makes a person"
            )
    statement = (
        insert(Account)
        .values(name=asked.name, email=asked.email, operator=False)
        .on_conflict_do_nothing(index_elements=["name"], index_where=Account.deleted_at.is_(None))
        .returning(Account)
    )
    row = (await session.scalars(statement)).one_or_none()
    if row is None:
        raise _taken(asked.name)
    if owner is not None:
        session.add(Membership(account_id=row.id, user_id=owner.id, role=Role.OWNER, joined_at=now()))
        await session.flush()
    audit.record(session, principal, "organization.create", f"account/{row.name}", owner=asked.owner)
    return row


async def get(session: AsyncSession, organization_id: UUID) -> Account:
    row = await session.get(Account, organization_id)
    if row is None or row.deleted_at is not None:
        raise NotFoundError.of("organization", organization_id)
    return row


async def change(
    session: AsyncSession, principal: Principal, organization_id: UUID, asked: OrganizationChange
) -> Account:
    """Raises ConflictError when the name is another organisation's."""
    row = await _locked(session, organization_id)
    before = {"name": row.name, "email": row.email}
    after = {"name": asked.name or row.name, "email": asked.email or row.email}
    changed = {name: value for name, value in after.items() if value != before[name]}
    if not changed:
        return row
    try:
        async with session.begin_nested():
            row.name, row.email = after["name"], after["email"]
            await session.flush()
    except IntegrityError as error:
        raise _taken(after["name"]) from error
    was = {f"{name}_before": before[name] for name in changed}
    audit.record(session, principal, "organization.update", f"account/{row.name}", **changed, **was)
    return row


async def end(session: AsyncSession, principal: Principal, organization_id: UUID) -> Account:
    """Ends memberships, keys and invitations with it. Raises ConflictError while it has projects, and for one of
    operators."""
    row = await _locked(session, organization_id)
    if row.operator:
        raise ConflictError(
            f"organization {row.name} runs the installation; `weir-admin account operator {row.name} no` ends that, "
            "and then it can be deleted"
        )
    await _refuse_with_projects(session, row)
    at = now()
    keys = update(ApiKey).where(ApiKey.account_id == row.id, ApiKey.revoked_at.is_(None)).values(revoked_at=at)
    members = delete(Membership).where(Membership.account_id == row.id)
    open_ones = Invitation.accepted_at.is_(None) & Invitation.revoked_at.is_(None)
    invitations = update(Invitation).where(Invitation.account_id == row.id, open_ones).values(revoked_at=at)
    audit.record(
        session, principal, "organization.end", f"account/{row.name}",
        keys=await _rows(session, keys), members=await _rows(session, members),
        invitations=await _rows(session, invitations),
    )  # fmt: skip
    row.deleted_at = at
    await session.flush()
    return row


async def _refuse_with_projects(session: AsyncSession, row: Account) -> None:
    """With the organisation locked, which `hold_account` of a creation or transfer waits for."""
    living = Project.account_id == row.id, Project.deleted_at.is_(None)
    number = await session.scalar(select(func.count()).select_from(Project).where(*living))
    if not number:
        return
    named = await session.scalars(select(Project.id).where(*living).order_by(Project.id).limit(_NAMED_AT_MOST))
    listed = ", ".join(named.all()) + (", ..." if number > _NAMED_AT_MOST else "")
    raise ConflictError(
        f"organization {row.name} has {number} project(s): {listed}; have its members delete them, or transfer them "
        "to another organization, first"
    )


async def _locked(session: AsyncSession, organization_id: UUID) -> Account:
    row = await PeopleRepository(session).lock_organization(organization_id)
    if row is None:
        raise NotFoundError.of("organization", organization_id)
    return row


async def _rows(session: AsyncSession, statement: Executable) -> int:
    result = await session.execute(statement, execution_options={"synchronize_session": False})
    return result.rowcount if isinstance(result, CursorResult) else 0


def _taken(name: str) -> ConflictError:
    return ConflictError(f"an organization named {name} exists; choose another name, or import that one")
