"""Which computes have a feature, since when, and why the rest has not: one query."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, String, and_, case, cast, func, literal, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from weir.endpoints.models import Endpoint, EndpointState
from weir.fleet.schemas import FeatureCompute, FeatureCounts, FleetCell, FleetOrganization
from weir.identity.models import Account
from weir.projects.models import Project
from weir.rollouts.features import Feature
from weir.rollouts.models import CLOSED, MemberState, Rollout, RolloutExclusion, RolloutMember
from weir.rollouts.plan.repository import OPERATORS_ROLLOUT


@dataclass(frozen=True)
class FeatureFilter:
    has: bool | None = None
    region_id: str | None = None
    cell: str | None = None
    text: str | None = None


def _chosen(feature: Feature, fleet: UUID | None, wanted: FeatureFilter, after: str | None, limit: int) -> Any:
    """The computes of one page. They are chosen first, so that what follows looks at no more than a page."""
    has, since = feature.has, feature.since
    statement = _filtered(
        select(
            Endpoint.id.label("compute_id"),
            Project.id.label("project_id"),
            Project.name.label("project_name"),
            Project.region_id,
            Project.cell,
            has.label("has"),
            case((has, since), else_=None).label("since"),
            (Endpoint.desired_state == EndpointState.ACTIVE).label("runs"),
        )
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.deleted_at.is_(None), *owned(fleet)),
        wanted,
    )
    if wanted.has is not None:
        statement = statement.where(has if wanted.has else ~has)
    if after is not None:
        statement = statement.where(Endpoint.id > after)
    return statement.order_by(Endpoint.id).limit(limit + 1).subquery("chosen")


def _last_member(feature: Feature, chosen: Any) -> Any:
    """The newest rollout that a compute is or was a member of."""
    return (
        select(
            RolloutMember.rollout_id,
            RolloutMember.state,
            RolloutMember.reason,
            RolloutMember.confirmed_at,
            RolloutMember.rolled_back_at,
            Rollout.status,
            Rollout.created_at,
            Rollout.account_id,
        )
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(RolloutMember.endpoint_id == chosen.c.compute_id, Rollout.feature == feature.name)
        .order_by(Rollout.created_at.desc())
        .limit(1)
        .lateral("member")
    )


def _last_exclusion(feature: Feature, chosen: Any) -> Any:
    return (
        select(
            RolloutExclusion.rollout_id,
            RolloutExclusion.code,
            RolloutExclusion.reason,
            Rollout.created_at,
            Rollout.account_id,
        )
        .join(Rollout, Rollout.id == RolloutExclusion.rollout_id)
        .where(RolloutExclusion.endpoint_id == chosen.c.compute_id, Rollout.feature == feature.name)
        .order_by(Rollout.created_at.desc())
        .limit(1)
        .lateral("exclusion")
    )


async def page(
    session: AsyncSession,
    feature: Feature,
    fleet: UUID | None,
    wanted: FeatureFilter,
    after: str | None,
    limit: int,
) -> list[FeatureCompute]:
    """By compute id; one more than `limit` if another page follows."""
    chosen = _chosen(feature, fleet, wanted, after, limit)
    member, exclusion = _last_member(feature, chosen), _last_exclusion(feature, chosen)
    excluded_later = and_(
        exclusion.c.created_at.is_not(None),
        or_(member.c.created_at.is_(None), exclusion.c.created_at > member.c.created_at),
    )
    # Ids of rollouts that the account does not see are not told.
    rollout_id = case((excluded_later, exclusion.c.rollout_id), else_=member.c.rollout_id)
    rollout_owner = case((excluded_later, exclusion.c.account_id), else_=member.c.account_id)
    seen = true() if fleet is None else rollout_owner == fleet
    named = case((seen, literal("rollout ") + rollout_id), else_=literal(OPERATORS_ROLLOUT))
    waits = and_(member.c.status.not_in(CLOSED), member.c.state == MemberState.PENDING)
    # States are kept as text; said to be text, they can stand beside other words.
    state = cast(member.c.state, String)
    why = case(
        (chosen.c.has, None),
        (and_(excluded_later, ~seen, exclusion.c.code == "in_other_rollout"), literal("takes part in ") + named),
        (excluded_later, exclusion.c.reason),
        (waits, literal("waits for its turn in ") + named),
        (member.c.rolled_back_at.is_not(None), func.coalesce(member.c.reason, literal("was rolled back"))),
        (member.c.rollout_id.is_not(None), func.coalesce(member.c.reason, state)),
        else_=literal("no rollout has chosen it"),
    )
    code = case(
        (chosen.c.has, None),
        (excluded_later, exclusion.c.code),
        (member.c.rollout_id.is_not(None), state),
        else_=literal("not_selected"),
    )
    statement = (
        select(
            *chosen.c,
            member.c.confirmed_at,
            case((seen, rollout_id), else_=None).label("rollout_id"),
            code.label("code"),
            why.label("why_not"),
        )
        .select_from(chosen)
        .outerjoin(member, true())
        .outerjoin(exclusion, true())
        .order_by(chosen.c.compute_id)
    )
    return [_view(row) for row in (await session.execute(statement)).all()]


async def counts(session: AsyncSession, feature: Feature, fleet: UUID | None, wanted: FeatureFilter) -> FeatureCounts:
    """Of all that the filter leaves, whether they have the feature or not."""
    statement = _filtered(
        select(func.count(), func.count().filter(feature.has))
        .select_from(Endpoint)
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.deleted_at.is_(None), *owned(fleet)),
        wanted,
    )
    found = [int(count) for count in (await session.execute(statement)).one()]
    return FeatureCounts(computes=found[0], has=found[1], has_not=found[0] - found[1])


async def cells(session: AsyncSession, fleet: UUID | None) -> list[FleetCell]:
    rows = await session.execute(
        select(
            Project.region_id,
            Project.cell,
            func.count(),
            func.count(func.distinct(Project.id)),
            func.count().filter(Endpoint.full_page_writes.is_(False)),
        )
        .select_from(Endpoint)
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.deleted_at.is_(None), *owned(fleet))
        .group_by(Project.region_id, Project.cell)
        .order_by(Project.region_id, Project.cell)
    )
    return [
        FleetCell(region_id=region, cell=cell, computes=computes, projects=projects, pushdown_on=on)
        for region, cell, computes, projects, on in rows.all()
    ]


async def organizations(
    session: AsyncSession, fleet: UUID | None, search: str | None, after: tuple[str, UUID] | None, limit: int
) -> list[FleetOrganization]:
    """Owners of computes, by name; one more than `limit` if another page follows."""
    statement = (
        select(
            Account.id,
            Account.name,
            func.count(func.distinct(Project.id)).label("projects"),
            func.count().label("computes"),
            func.count().filter(Endpoint.full_page_writes.is_(False)).label("pushdown_on"),
        )
        .select_from(Endpoint)
        .join(Project, Project.id == Endpoint.project_id)
        .join(Account, Account.id == Project.account_id)
        .where(Endpoint.deleted_at.is_(None), *owned(fleet))
        .group_by(Account.id)
        .order_by(Account.name, Account.id)
        .limit(limit + 1)
    )
    if search:
        statement = statement.where(Account.name.icontains(search, autoescape=True))
    if after is not None:
        statement = statement.where(tuple_(Account.name, Account.id) > tuple_(*map(literal, after)))
    rows = (await session.execute(statement)).all()
    return [
        FleetOrganization(
            org_id=str(row.id),
            name=row.name,
            projects=row.projects,
            computes=row.computes,
            pushdown_on=row.pushdown_on,
        )
        for row in rows
    ]


async def tags(session: AsyncSession, fleet: UUID | None) -> dict[str, list[str]]:
    """Every tag in use and its values."""
    pair = func.jsonb_each_text(Project.tags).table_valued("key", "value").lateral("pair")
    rows = await session.execute(
        select(pair.c.key, pair.c.value)
        .select_from(Project)
        .join(pair, true())
        .where(Project.deleted_at.is_(None), *owned(fleet))
        .distinct()
        .order_by(pair.c.key, pair.c.value)
        .limit(1_000)
    )
    found: dict[str, list[str]] = {}
    for key, value in rows.all():
        found.setdefault(key, []).append(value)
    return found


def owned(fleet: UUID | None) -> list[ColumnElement[bool]]:
    """Conditions on projects whose computes a principal sees (`Principal.fleet`)."""
    return [] if fleet is None else [Project.account_id == fleet]


def _filtered(statement: Any, wanted: FeatureFilter) -> Any:
    if wanted.region_id is not None:
        statement = statement.where(Project.region_id == wanted.region_id)
    if wanted.cell is not None:
        statement = statement.where(Project.cell == wanted.cell)
    if wanted.text:
        statement = statement.where(
            Endpoint.id.contains(wanted.text, autoescape=True) | Project.name.icontains(wanted.text, autoescape=True)
        )
    return statement


def _view(row: Row[*tuple[Any, ...]]) -> FeatureCompute:
    since: datetime | None = row.since
    return FeatureCompute(
        compute_id=row.compute_id,
        project_id=row.project_id,
        project_name=row.project_name,
        region_id=row.region_id,
        cell=row.cell,
        runs=row.runs,
        has=row.has,
        since=since,
        confirmed_at=row.confirmed_at if row.has else None,
        rollout_id=row.rollout_id,
        why_not_code=row.code,
        why_not=row.why_not,
    )
