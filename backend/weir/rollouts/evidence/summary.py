"""A rollout's evidence: for each compute, and summed by wave, by cell and over the fleet."""

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.errors import NotFoundError
from weir.kit.pagination import PageRequest, Pagination, encode_cursor, small, text
from weir.projects.models import Project
from weir.rollouts.evidence.figures import WindowFigures, WindowSum, figures
from weir.rollouts.evidence.models import RolloutMeasurement
from weir.rollouts.evidence.schemas import (
    CellEvidence,
    EvidenceSeries,
    EvidenceSum,
    MemberEvidence,
    MemberEvidenceDetail,
    RolloutEvidenceView,
    WaveEvidence,
)
from weir.rollouts.evidence.store import (
    MeasuredMember,
    Version,
    kept_series,
    measured_members,
    measurements_version,
    newest_verdict,
)
from weir.rollouts.models import Rollout, RolloutMember, RolloutWave
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.visibility import analyses_for_reader


@dataclass
class _Pair:
    before: WindowSum = field(default_factory=WindowSum)
    after: WindowSum = field(default_factory=WindowSum)

    def add(self, measured: RolloutMeasurement) -> None:
        self.before.add(measured.before)
        self.after.add(measured.after)

    def view(self) -> dict[str, Any]:
        before, after = self.before.figures(), self.after.figures()
        return {
            "computes": self.before.computes,
            "before": before,
            "after": after,
            "wal_saved_bytes_per_second": saved(before, after),
        }


@dataclass
class Sums:
    """All of a rollout's measurements, together in each way they are looked at."""

    fleet: EvidenceSum
    waves: list[WaveEvidence]
    cells: list[CellEvidence]


def saved(before: WindowFigures, after: WindowFigures) -> float | None:
    """WAL bytes/s that the transactions of the later window would have written more in the earlier one's way."""
    was, now = before.wal_bytes_per_transaction, after.wal_bytes_per_transaction
    rate = after.transactions_per_second
    return None if was is None or now is None or rate is None else (was - now) * rate


class Summing:
    """Members' measurements added up one by one; their windows are not kept in memory."""

    def __init__(self) -> None:
        self._fleet = _Pair()
        self._waves: defaultdict[int, _Pair] = defaultdict(_Pair)
        self._cells: defaultdict[tuple[str, str], _Pair] = defaultdict(_Pair)

    def add(self, found: MeasuredMember) -> None:
        member = found.member
        if found.measured is not None:
            for pair in (self._fleet, self._waves[member.wave], self._cells[member.region_id, member.cell]):
                pair.add(found.measured)

    def sums(self, waves: list[RolloutWave]) -> Sums:
        return Sums(
            fleet=EvidenceSum(**self._fleet.view()),
            waves=[
                WaveEvidence(index=wave.index, name=wave.name, **self._waves[wave.index].view()) for wave in waves
            ],
            cells=[
                CellEvidence(region_id=region, cell=cell, **pair.view())
                for (region, cell), pair in sorted(self._cells.items())
            ],
        )


# Sums by rollout, with the version of the measurements they were made of: pages of one rollout's evidence, and a
# console that asks every few seconds, add thousands of windows up once. The least lately used goes first.
SUMS_KEPT = 32
_kept: OrderedDict[str, tuple[Version, Sums]] = OrderedDict()


async def sums(session: AsyncSession, rollout_id: str) -> Sums:
    version = await measurements_version(session, rollout_id)
    held = _kept.get(rollout_id)
    if held is not None and held[0] == version:
        _kept.move_to_end(rollout_id)
        return held[1]
    adding = Summing()
    async for found in measured_members(session, rollout_id):
        adding.add(found)
    made = adding.sums(await RolloutRepository(session).waves(rollout_id))
    _kept[rollout_id] = (version, made)
    _kept.move_to_end(rollout_id)
    while len(_kept) > SUMS_KEPT:
        _kept.popitem(last=False)
    return made


async def view(session: AsyncSession, rollout: Rollout, wave: int | None, page: PageRequest) -> RolloutEvidenceView:
    """The sums are over the whole rollout whichever page of members is asked for."""
    found = [
        row
        async for row in measured_members(
            session,
            rollout.id,
            wave=wave,
            after=page.after(small, text),
            limit=page.limit + 1,
        )
    ]
    shown = found[: page.limit]
    members = [member_view(row) for row in shown]
    last = shown[-1].member if len(found) > page.limit else None
    together = await sums(session, rollout.id)
    return RolloutEvidenceView(
        rollout_id=rollout.id,
        status=rollout.status,
        members_total=await _count(session, rollout.id),
        members_measured=together.fleet.computes,
        fleet=together.fleet,
        waves=together.waves,
        cells=together.cells,
        members=members,
        pagination=Pagination(cursor=None if last is None else encode_cursor(last.wave, last.endpoint_id)),
    )


async def detail(access: ProjectAccess, rollout_id: str, endpoint_id: str) -> MemberEvidenceDetail:
    session = access.session
    member = await RolloutRepository(session).member(rollout_id, endpoint_id)
    if member is None:
        raise NotFoundError.of(f"rollout {rollout_id}: compute", endpoint_id)
    project = await session.get_one(Project, member.project_id)
    measured = await session.get(RolloutMeasurement, (rollout_id, endpoint_id))
    verdict = await newest_verdict(session, rollout_id, endpoint_id)
    series = await kept_series(session, rollout_id, endpoint_id)
    analysis = {} if verdict is None else verdict.analysis
    (analysis,) = await analyses_for_reader(session, access.principal.fleet, [analysis])
    found = MeasuredMember(member, project.name, measured, verdict)
    return MemberEvidenceDetail(
        **member_view(found).model_dump(),
        bounds=[] if verdict is None else verdict.bounds.get("items", []),
        analysis=analysis,
        series=EvidenceSeries.model_validate(series) if series else None,
    )


def member_view(found: MeasuredMember) -> MemberEvidence:
    member, measured, verdict = found.member, found.measured, found.verdict
    before = None if measured is None else figures(measured.before)
    after = None if measured is None else figures(measured.after)
    return MemberEvidence(
        compute_id=member.endpoint_id,
        project_id=member.project_id,
        project_name=found.project_name,
        region_id=member.region_id,
        cell=member.cell,
        wave=member.wave,
        mode=member.mode,
        state=member.state,
        verdict=None if verdict is None else verdict.verdict,
        reason=member.reason if verdict is None else verdict.reason,
        switched_at=member.switched_at,
        fpw_change_lsn=member.fpw_change_lsn,
        previous_version=member.previous_version,
        target_version=member.target_version,
        downtime_seconds=member.downtime_seconds,
        rolled_back_at=member.rolled_back_at,
        measured_at=None if measured is None else measured.measured_at,
        before=before,
        after=after,
        wal_saved_bytes_per_second=None if before is None or after is None else saved(before, after),
    )


async def _count(session: AsyncSession, rollout_id: str) -> int:
    statement = select(func.count()).select_from(RolloutMember).where(RolloutMember.rollout_id == rollout_id)
    return (await session.scalars(statement)).one()
