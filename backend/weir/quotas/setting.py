"""Setting quotas: for the installation's operator, by `weir-admin`."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import BadRequestError, NotFoundError
from weir.identity import audit
from weir.identity.repository import IdentityRepository
from weir.identity.service import ADMIN
from weir.kit.clock import now
from weir.projects.models import Project
from weir.quotas import owners
from weir.quotas.names import NONE, OwnerKind, Per, QuotaName, names_of, parse_value, per
from weir.quotas.owners import Owner
from weir.quotas.repository import QuotaRepository
from weir.quotas.service import in_force

# Takes away what was set, so that what holds for others holds again.
DEFAULT = "default"


@dataclass(frozen=True)
class Row:
    """One quota of an owner. `own`: it was set for this owner, and does not come from elsewhere."""

    name: QuotaName
    per: Per
    limit: int | None
    used: int | None
    own: bool


async def find_owner(session: AsyncSession, account: str | None, project: str | None) -> tuple[Owner, Owner]:
    """The owner named, an account by its name or a project by its id, and the account of either."""
    if project is not None:
        row = await session.get(Project, project)
        if row is None or row.deleted_at is not None:
            raise NotFoundError(f"project {project} does not exist; `weir projects list` shows the ids")
        return owners.itself(row.id), owners.owner_of(row)
    found = await IdentityRepository(session).account_named(account or "")
    if found is None:
        raise NotFoundError(f"account {account} does not exist; make it with `weir-admin account create`")
    return owners.account(found.id), owners.account(found.id)


async def change(session: AsyncSession, account: str | None, project: str | None, name: str, value: str) -> str:
    """Sets a quota of an account or a project: a number, `none`, or `default`. It holds from the next creation on;
    what is there already stays. Answers with what holds now, for a person."""
    owner, _ = await find_owner(session, account, project)
    known = names_of(owner.kind)
    if name not in known:
        raise BadRequestError(f"{name!r} is no quota of {_an(owner.kind)}; there are {', '.join(known)}")
    quota = QuotaName(name)
    repository = QuotaRepository(session)
    if value == DEFAULT:
        await repository.unset(owner, quota)
    else:
        try:
            most = parse_value(quota, value)
        except ValueError as error:
            raise BadRequestError(f"{error}, or {DEFAULT!r}") from None
        await repository.set(owner, quota, most, now())
    called = f"{owner.kind}/{account or project}"
    audit.record_system(session, ADMIN, "quota.set", called, project, quota=quota.value, value=value)
    await session.flush()
    row = next(row for row in await listed(session, account, project) if row.name is quota)
    return f"{called}: {quota} is {NONE if row.limit is None else row.limit}, used {row.used or 0}"


async def listed(session: AsyncSession, account: str | None, project: str | None) -> list[Row]:
    """All quotas of an account or a project, with what is used of them."""
    owner, of_account = await find_owner(session, account, project)
    limits = await in_force(session, of_account, project)
    in_use = limits.project if project is not None else limits.owner
    repository = QuotaRepository(session)
    own = (await repository.of([owner]))[owner]
    return [
        Row(name, per(name, owner.kind), in_use[name], (await repository.used(owner, name)).amount, name in own)
        for name in names_of(owner.kind)
    ]


def _an(kind: OwnerKind) -> str:
    return "an account" if kind is OwnerKind.ACCOUNT else "a project"
