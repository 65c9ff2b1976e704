"""The report of a rollout: which computes were switched, the effect, how the effect was measured, and who decided
what. The report is a page of HTML that loads nothing else, or the same as JSON, and is made from the database
alone."""

from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.identity.models import AuditEntry
from weir.kit.clock import now
from weir.kit.schemas import View
from weir.projects.models import Project
from weir.rollouts.evidence import course, summary
from weir.rollouts.evidence.schemas import CellEvidence, EvidenceSum, MemberEvidence, WaveEvidence
from weir.rollouts.evidence.store import kept_series, measured_members
from weir.rollouts.features import feature_of
from weir.rollouts.models import Rollout, RolloutExclusion, RolloutStatus, WaveState
from weir.rollouts.plan.schemas import PlanSummary
from weir.rollouts.report import charts, words
from weir.rollouts.report import format as text
from weir.rollouts.run.repository import RolloutRepository

# HTML stays readable; JSON has all members.
MEMBERS_SHOWN = 200
EXCLUSIONS_SHOWN = 100
COURSES_SHOWN = 8
DECISIONS = 500
# No script, nothing from elsewhere, and not to be framed.
SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_METHOD = """\
Every compute is its own before and after: a baseline window, the switch, a pause to settle, and a window of the same
kind after it, both rounded up to whole checkpoint cycles, because page images come in a burst after each checkpoint.

WAL bytes, page images and transactions are counted by the compute's agent, which reads every record on its way to the
safekeepers; commit latency is from receiving WAL until a majority has fsynced it; storage reads are misses and audit
reads of changed pages; images made by storage are the pageserver's count.

Figures are counters at the edges of a window, with nothing extrapolated. Several computes together are the sum of
their counts; percentiles are those of summed histograms, not averages of percentiles.

WAL saved is bytes a transaction before, less those after, times the transactions a second after: doing less work does
not count as saving."""
METHOD = [" ".join(paragraph.split()) for paragraph in _METHOD.split("\n\n")]


class WaveReport(View):
    index: int
    name: str
    state: WaveState
    reason: str | None
    soak_seconds: int
    started_at: datetime | None
    finished_at: datetime | None
    members_total: int
    by_state: dict[str, int]


class Decision(View):
    """One line of the audit log: who did what to the rollout, or what it reported of itself."""

    at: datetime
    actor: str
    action: str
    detail: dict[str, Any]


class Exclusion(View):
    compute_id: str
    project_id: str
    project_name: str
    region_id: str
    cell: str
    code: str
    reason: str


class Report(View):
    """Everything a report says."""

    rollout_id: str
    name: str
    feature: str
    feature_in_words: str
    status: RolloutStatus
    status_reason: str | None
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    generated_at: datetime
    selector: dict[str, Any]
    strategy: dict[str, Any]
    plan: PlanSummary
    waves: list[WaveReport]
    members_total: int
    members_measured: int
    by_state: dict[str, int]
    fleet: EvidenceSum
    by_wave: list[WaveEvidence]
    by_cell: list[CellEvidence]
    members: list[MemberEvidence]
    exclusions: list[Exclusion]
    decisions: list[Decision]
    method: list[str]
    courses: list[dict[str, Any]]


async def make(session: AsyncSession, rollout: Rollout) -> Report:
    adding = summary.Summing()
    members: list[MemberEvidence] = []
    async for found in measured_members(session, rollout.id):
        adding.add(found)
        members.append(summary.member_view(found))
    rows = await RolloutRepository(session).waves(rollout.id)
    together, waves = adding.sums(rows), [_wave(row, members) for row in rows]
    return Report(
        rollout_id=rollout.id,
        name=rollout.name,
        feature=rollout.feature,
        feature_in_words=feature_of(rollout.feature).in_words,
        status=rollout.status,
        status_reason=rollout.status_reason,
        created_by=rollout.created_by,
        created_at=rollout.created_at,
        started_at=rollout.started_at,
        finished_at=rollout.finished_at,
        generated_at=now(),
        selector=rollout.selector,
        strategy=rollout.strategy,
        plan=PlanSummary.model_validate(rollout.plan),
        waves=waves,
        members_total=len(members),
        members_measured=together.fleet.computes,
        by_state=_states(members),
        fleet=together.fleet,
        by_wave=together.waves,
        by_cell=together.cells,
        members=members,
        exclusions=await _exclusions(session, rollout.id),
        decisions=await _decisions(session, rollout.id),
        method=[*METHOD, feature_of(rollout.feature).done_in_words],
        courses=await _courses(session, rollout.id, members),
    )


def _states(members: list[MemberEvidence]) -> dict[str, int]:
    found: dict[str, int] = {}
    for member in members:
        found[member.state] = found.get(member.state, 0) + 1
    return found


def _wave(row: Any, members: list[MemberEvidence]) -> WaveReport:
    inside = [member for member in members if member.wave == row.index]
    return WaveReport(
        index=row.index,
        name=row.name,
        state=row.state,
        reason=row.reason,
        soak_seconds=row.soak_seconds,
        started_at=row.started_at,
        finished_at=row.finished_at,
        members_total=len(inside),
        by_state=_states(inside),
    )


async def _exclusions(session: AsyncSession, rollout_id: str) -> list[Exclusion]:
    statement = (
        select(RolloutExclusion, Project.name)
        .join(Project, Project.id == RolloutExclusion.project_id)
        .where(RolloutExclusion.rollout_id == rollout_id)
        .order_by(RolloutExclusion.code, RolloutExclusion.endpoint_id)
    )
    return [
        Exclusion(
            compute_id=row.endpoint_id,
            project_id=row.project_id,
            project_name=name,
            region_id=row.region_id,
            cell=row.cell,
            code=row.code,
            reason=row.reason,
        )
        for row, name in (await session.execute(statement)).all()
    ]


async def _decisions(session: AsyncSession, rollout_id: str) -> list[Decision]:
    """Oldest first: the first ones say who made it and who let it begin."""
    statement = (
        select(AuditEntry)
        .where(AuditEntry.resource == f"rollout/{rollout_id}")
        .order_by(AuditEntry.id)
        .limit(DECISIONS)
    )
    return [Decision.model_validate(row) for row in (await session.scalars(statement)).all()]


async def _courses(session: AsyncSession, rollout_id: str, members: list[MemberEvidence]) -> list[dict[str, Any]]:
    """The kept series of a few computes: of each wave the first in turn, those that went back before the others."""
    measured = [member for member in members if member.before is not None]
    rank: dict[int, int] = {}
    order: list[tuple[bool, int, int, str]] = []
    for member in measured:
        turn = rank[member.wave] = rank.get(member.wave, -1) + 1
        order.append((member.rolled_back_at is None, turn, member.wave, member.compute_id))
    by_id = {member.compute_id: member for member in measured}
    chosen = [by_id[ident] for *_, ident in sorted(order)[:COURSES_SHOWN]]
    found: list[dict[str, Any]] = []
    for member in sorted(chosen, key=lambda item: (item.wave, item.compute_id)):
        series = await kept_series(session, rollout_id, member.compute_id)
        if series:
            found.append(told_course(member, series))
    return found


def told_course(member: MemberEvidence, kept: dict[str, Any]) -> dict[str, Any]:
    """A compute's kept series as a report tells it. Controls may be another account's: only what they foretold is
    told, scaled to the compute's own baseline, never their own figures."""
    own = {name: values for name, values in kept.items() if name != "controls"}
    beside = kept.get("controls")
    foretold = (
        course.expected(own["times"], own, beside, _span(member.before), own["window_seconds"]) if beside else None
    )
    expected = None if foretold is None else foretold.model_dump()
    return {"compute_id": member.compute_id, "project_name": member.project_name, **own, "expected": expected}


def _span(window: Any) -> tuple[float, float]:
    return datetime.fromisoformat(window.from_).timestamp(), datetime.fromisoformat(window.to).timestamp()


def render(content: Report) -> str:
    """As HTML. The template escapes whatever it shows; charts are made of escaped parts."""
    members = {member.compute_id: member for member in content.members}
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=content,
            security_policy=SECURITY_POLICY,
            bars=charts.bars(_bars(content)),
            courses=[_course(row, members[row["compute_id"]]) for row in content.courses],
            rmgrs=_rmgrs(content.fleet),
            asked_selector=words.selector(content.selector),
            asked_strategy=words.strategy(content.strategy),
            members_shown=content.members[:MEMBERS_SHOWN],
            exclusions_shown=content.exclusions[:EXCLUSIONS_SHOWN],
            colours={"image": charts.IMAGE, "rest": charts.REST, "line": charts.LINE},
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("weir.rollouts.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = {
        name: getattr(text, name) for name in ("size", "rate", "duration", "number", "share", "moment", "shortened")
    }
    environment.filters.update(formats)

    def show(value: float | None, name: str) -> str:
        return formats[name](value)

    helpers: dict[str, Any] = {"change": text.change, "show": show}
    environment.globals.update(helpers)
    return environment


def _bars(content: Report) -> list[charts.BarPair]:
    def pair(name: str, found: EvidenceSum) -> charts.BarPair:
        before, after = found.before, found.after
        return charts.BarPair(
            name,
            (before.wal_image_bytes_per_transaction, before.wal_rest_bytes_per_transaction),
            (after.wal_image_bytes_per_transaction, after.wal_rest_bytes_per_transaction),
        )

    waves = [pair(f"{wave.index + 1}. {wave.name}", wave) for wave in content.by_wave if wave.computes]
    return [pair("all computes", content.fleet), *(waves if len(waves) > 1 else [])]


def _rmgrs(found: EvidenceSum) -> list[dict[str, Any]]:
    """Resource managers of both windows, side by side."""
    before = {row.rmgr: row for row in found.before.by_rmgr}
    after = {row.rmgr: row for row in found.after.by_rmgr}
    names = [*before, *(name for name in after if name not in before)]
    return [{"rmgr": name, "before": before.get(name), "after": after.get(name)} for name in names]


def _course(row: dict[str, Any], member: MemberEvidence) -> dict[str, Any]:
    foretold = row["expected"]
    drawn = charts.Course(
        name=member.compute_id,
        times=row["times"],
        image=row["wal_image_bytes_per_second"],
        rest=row["wal_rest_bytes_per_second"],
        commit_p99=row["commit_p99_seconds"],
        expected_wal=[] if foretold is None else foretold["wal_bytes_per_second"],
        expected_commit_p99=[] if foretold is None else foretold["commit_p99_seconds"],
        baseline=_span(member.before),
        after=_span(member.after),
        switched=None if member.switched_at is None else member.switched_at.timestamp(),
    )
    return {"member": member, "chart": charts.course(drawn)}
