"""Members of a rollout with the rows of their computes, and the writes of every step about members."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, String, any_, bindparam, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from weir.branches.models import Branch
from weir.computes.repository import ComputeRow
from weir.db import Database
from weir.endpoints.models import Endpoint
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.locks import holders
from weir.projects.models import Project
from weir.rollouts.intent import Strategy
from weir.rollouts.models import IN_PROGRESS, MemberState, Rollout, RolloutMember
from weir_workflows.common.errors import missing

ACTOR = "rollout"
Outcome = tuple[MemberState, str | None]
Only = tuple[ColumnElement[bool], ...]


def _in(*states: MemberState) -> ColumnElement[bool]:
    # Not `in_`, whose list cannot be in a statement with many rows of parameters (`write_each`).
    return or_(*(RolloutMember.state == state for state in states))


# Where members still are that a step goes on with. A step whose worker was given up for dead may run beside its
# repetition. What the first has read is old then; by these conditions it writes nothing about members further on.
UNSWITCHED: Only = (
    RolloutMember.switched_at.is_(None),
    _in(MemberState.PREFLIGHT, MemberState.BASELINE, MemberState.ARMING),
)
UNCONFIRMED: Only = (RolloutMember.confirmed_at.is_(None), _in(*IN_PROGRESS))
UNBAKED: Only = (RolloutMember.confirmed_at.is_not(None), _in(MemberState.CONFIRMING, MemberState.BAKING))
UNENDED: Only = (_in(*IN_PROGRESS),)


@dataclass(frozen=True)
class Member:
    """`feature`: what its rollout rolls out."""

    member: RolloutMember
    row: ComputeRow
    feature: str

    @property
    def id(self) -> str:
        return self.member.endpoint_id


def among(column: InstrumentedAttribute[str], ids: Iterable[str]) -> ColumnElement[bool]:
    """One parameter, however many there are: the text stays the same, and so does what is cached of the statement."""
    return column == any_(literal(list(ids), ARRAY(String)))


async def load(session: AsyncSession, rollout_id: str, ids: Iterable[str]) -> list[Member]:
    """Members of one rollout. Members whose endpoint is deleted are among them, since the rollout reports those
    too."""
    return await load_chosen(session, RolloutMember.rollout_id == rollout_id, among(RolloutMember.endpoint_id, ids))


async def load_chosen(session: AsyncSession, *chosen: ColumnElement[bool], limit: int | None = None) -> list[Member]:
    """Members of any rollouts."""
    rows = await session.execute(
        select(RolloutMember, Endpoint, Branch, Project, Rollout.feature)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
        .join(Branch, Branch.id == Endpoint.branch_id)
        .join(Project, Project.id == Endpoint.project_id)
        .where(*chosen)
        .order_by(RolloutMember.endpoint_id, RolloutMember.rollout_id)
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    return [
        Member(member, ComputeRow(endpoint, branch, project), feature)
        for member, endpoint, branch, project, feature in rows.all()
    ]


async def busy(session: AsyncSession, items: Sequence[Member]) -> dict[str, str]:
    """By their ids, those that an operation is open on, or on all of their branch or project, and what it does."""
    rows = {item.id: item.row for item in items}
    asked = {ident: scopes.of_endpoint(row.project.id, row.branch.id, ident) for ident, row in rows.items()}
    return {ident: held.action.value for ident, held in (await holders(session, asked)).items()}


def by_feature(items: Iterable[Member]) -> list[tuple[str, list[Member]]]:
    """Members of several rollouts, those of one feature together."""
    found: dict[str, list[Member]] = {}
    for item in items:
        found.setdefault(item.feature, []).append(item)
    return sorted(found.items())


async def find_rollout(session: AsyncSession, rollout_id: str, *, lock: bool = False) -> Rollout:
    """The rollout's row; with `lock` nobody else changes it until this transaction ends. Where there is no such
    rollout, raises an error that Temporal does not retry."""
    rollout = await session.get(Rollout, rollout_id, with_for_update=lock, populate_existing=True)
    if rollout is None:
        raise missing("rollout", rollout_id)
    return rollout


def strategy_of(rollout: Rollout) -> Strategy:
    return Strategy.model_validate(rollout.strategy)


async def load_rollout(session: AsyncSession, rollout_id: str) -> tuple[Rollout, Strategy]:
    rollout = await find_rollout(session, rollout_id)
    return rollout, strategy_of(rollout)


async def write(
    session: AsyncSession,
    rollout_id: str,
    ids: Iterable[str],
    *only: ColumnElement[bool],
    back: bool = False,
    **values: Any,
) -> None:
    """One change for several members, of whom `only` still holds; every change says when it was made.

    Steps forward write nothing about members that go back. `back`: written by who takes them back."""
    chosen = list(ids)
    if not chosen:
        return
    statement = update(RolloutMember).where(
        RolloutMember.rollout_id == rollout_id, among(RolloutMember.endpoint_id, chosen), *only
    )
    if not back:
        statement = statement.where(RolloutMember.rolled_back_at.is_(None))
    await session.execute(statement.values(updated_at=now(), **values).execution_options(synchronize_session=False))


async def write_each(
    session: AsyncSession,
    rollout_id: str,
    changes: dict[str, dict[str, Any]],
    *only: ColumnElement[bool],
    back: bool = False,
) -> None:
    """A change of its own for each of several members, all changing the same columns, in one round trip. `only` and
    `back` as of `write`."""
    if not changes:
        return
    table = RolloutMember.__table__
    names = sorted(next(iter(changes.values())))
    statement = (
        update(RolloutMember.__table__)  # type: ignore[arg-type]
        .where(table.c.rollout_id == rollout_id, table.c.endpoint_id == bindparam("member"), *only)
        .values({"updated_at": now()} | {name: bindparam(f"new_{name}") for name in names})
    )
    if not back:
        statement = statement.where(table.c.rolled_back_at.is_(None))
    rows = [
        {"member": ident, **{f"new_{name}": values[name] for name in names}}
        for ident, values in sorted(changes.items())
    ]
    await (await session.connection()).execute(statement, rows)


async def lock_unless_rolled_back(
    session: AsyncSession, rollout_id: str, ids: Iterable[str], *only: ColumnElement[bool]
) -> set[str]:
    """Locks, until this transaction ends, those members that have not been rolled back and for which `only` holds;
    answers with their ids."""
    rows = await session.scalars(
        select(RolloutMember.endpoint_id)
        .where(
            RolloutMember.rollout_id == rollout_id,
            among(RolloutMember.endpoint_id, ids),
            RolloutMember.rolled_back_at.is_(None),
            *only,
        )
        .order_by(RolloutMember.endpoint_id)
        .with_for_update()
    )
    return set(rows.all())


async def record_outcomes(
    database: Database, rollout_id: str, outcomes: dict[str, Outcome], *only: ColumnElement[bool]
) -> None:
    """Writes the outcomes of those members for which `only` still holds, and clears their deadlines. An outcome of
    `pending` returns the member to those waiting, to be measured afresh."""
    if not outcomes:
        return
    async with database.transaction() as session:
        again = [ident for ident, (state, _) in outcomes.items() if state == MemberState.PENDING]
        await write(session, rollout_id, again, *only, batch=None, baseline_start=None, baseline_end=None)
        await write_each(
            session,
            rollout_id,
            {
                ident: {"state": state, "reason": reason, "deadline_at": None}
                for ident, (state, reason) in outcomes.items()
            },
            *only,
        )


async def wishes(session: AsyncSession, rollout_id: str, ids: Iterable[str]) -> dict[str, str]:
    """The members about which a person has asked something, each with that person. The rows stay locked until this
    transaction ends, so that a later wish finds the computes switched."""
    rows = await session.execute(
        select(RolloutMember.endpoint_id, RolloutMember.wish, RolloutMember.wish_by)
        .where(RolloutMember.rollout_id == rollout_id, among(RolloutMember.endpoint_id, ids))
        .order_by(RolloutMember.endpoint_id)
        .with_for_update()
    )
    return {ident: by or "" for ident, wish, by in rows.all() if wish is not None}


def left_out(reason: str) -> dict[str, Any]:
    """What is written of a compute that this rollout leaves as it is."""
    return {"state": MemberState.SKIPPED, "reason": reason, "deadline_at": None, "updated_at": now()}


async def leave_out_unswitched(session: AsyncSession, rollout_id: str) -> None:
    """After a stop: members that were being measured stay as they are."""
    await session.execute(
        update(RolloutMember)
        .where(
            RolloutMember.rollout_id == rollout_id,
            RolloutMember.state.in_(IN_PROGRESS),
            RolloutMember.switched_at.is_(None),
        )
        .values(left_out("the rollout was stopped before this compute was switched"))
    )


def deadline(strategy: Strategy, seconds: float = 0) -> datetime:
    """When a step that should take `seconds` is overdue."""
    return now() + timedelta(seconds=seconds + strategy.step_deadline_seconds)
