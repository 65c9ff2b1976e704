from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base, Timestamps


class RolloutStatus(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    ABORTING = "aborting"
    ABORTED = "aborted"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    COMPLETED = "completed"
    FAILED = "failed"


CLOSED = (
    RolloutStatus.ABORTED,
    RolloutStatus.ROLLED_BACK,
    RolloutStatus.COMPLETED,
    RolloutStatus.FAILED,
)


class WaveState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SOAKING = "soaking"
    PASSED = "passed"
    HELD = "held"
    FAILED = "failed"
    SKIPPED = "skipped"
    ROLLED_BACK = "rolled_back"


class MemberMode(StrEnum):
    """RUNNING computes are measured, switched live and judged; suspended ones switch AT_NEXT_START."""

    RUNNING = "running"
    AT_NEXT_START = "at_next_start"


class MemberState(StrEnum):
    """In the order of events; DEFERRED waits for the compute's next start, and everything from PASSED on is final
    unless a person or a verdict takes the compute back."""

    PENDING = "pending"
    PREFLIGHT = "preflight"
    BASELINE = "baseline"
    ARMING = "arming"
    SWITCHING = "switching"
    CONFIRMING = "confirming"
    BAKING = "baking"
    DEFERRED = "deferred"
    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    REGRESSED = "regressed"
    ROLLED_BACK = "rolled_back"
    SKIPPED = "skipped"
    FAILED = "failed"


# Between the beginning of its baseline and its verdict.
IN_PROGRESS = (
    MemberState.PREFLIGHT,
    MemberState.BASELINE,
    MemberState.ARMING,
    MemberState.SWITCHING,
    MemberState.CONFIRMING,
    MemberState.BAKING,
)


class Wish(StrEnum):
    """What a person asked of one member; obeyed at its next step."""

    SKIP = "skip"
    BACK = "back"


class Rollout(Timestamps, Base):
    """The intent: feature, selector, strategy and the frozen plan's totals; who is in it stands in members and
    exclusions. `status` repeats, for readers, what the rollout's workflow last reported."""

    __tablename__ = "rollouts"
    __table_args__ = (Index("ix_rollouts_account", "account_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    # Who owns it, as projects are owned: nobody else but an operator sees or controls it.
    account_id: Mapped[UUID] = mapped_column(ForeignKey("accounts.id"))
    # Made by an operator, over the computes of all accounts; otherwise it reaches its owner's alone.
    whole_fleet: Mapped[bool] = mapped_column(default=False, server_default="false")
    feature: Mapped[str]
    selector: Mapped[dict[str, Any]]
    strategy: Mapped[dict[str, Any]]
    plan: Mapped[dict[str, Any]]
    status: Mapped[RolloutStatus] = mapped_column(default=RolloutStatus.PLANNED)
    status_reason: Mapped[str | None]
    # Of a rollout that is held, what it is held at: an approval may name it. Of one that somebody has paused or
    # stopped, who that was.
    gate: Mapped[str | None]
    asked_by: Mapped[str | None]
    current_wave: Mapped[int | None]
    created_by: Mapped[str] = mapped_column(server_default="")
    # Set when the dispatcher has handed the rollout to Temporal.
    dispatched_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    trace_context: Mapped[dict[str, Any]] = mapped_column(default=dict)


class RolloutWave(Base):
    __tablename__ = "rollout_waves"

    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    state: Mapped[WaveState] = mapped_column(default=WaveState.PENDING)
    reason: Mapped[str | None]
    soak_seconds: Mapped[int] = mapped_column(server_default="0")
    started_at: Mapped[datetime | None]
    soak_until: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class RolloutMember(Base):
    """One compute in one rollout: what the plan knew of it, how far it is, and what is needed to go back."""

    __tablename__ = "rollout_members"
    __table_args__ = (
        Index("ix_rollout_members_endpoint", "endpoint_id"),
        Index("ix_rollout_members_state", "rollout_id", "wave", "state"),
    )

    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"), primary_key=True)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    wave: Mapped[int]
    mode: Mapped[MemberMode] = mapped_column(server_default=MemberMode.RUNNING.value)
    # Where the compute was when the plan was frozen.
    org_id: Mapped[str] = mapped_column(server_default="")
    region_id: Mapped[str] = mapped_column(server_default="")
    cell: Mapped[str] = mapped_column(server_default="")
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    wal_bytes_per_second: Mapped[float | None]
    expected_wal_saved_bytes_per_second: Mapped[float | None]
    baseline_seconds: Mapped[int]
    bake_seconds: Mapped[int]

    state: Mapped[MemberState] = mapped_column(default=MemberState.PENDING)
    reason: Mapped[str | None]
    # Which batch of the workflow works on it; none before, and none once it must be taken up afresh.
    batch: Mapped[int | None]
    wish: Mapped[Wish | None]
    wish_by: Mapped[str | None]
    # When a person is to be told that the present step takes too long.
    deadline_at: Mapped[datetime | None]
    previous_threshold: Mapped[int | None]
    # Of `postgres_minor`: what the compute ran before and is to run, and how long it accepted no connections when it
    # was restarted onto the one, and back onto the other.
    previous_version: Mapped[str | None]
    target_version: Mapped[str | None]
    downtime_seconds: Mapped[float | None]
    back_downtime_seconds: Mapped[float | None]
    fpw_change_lsn: Mapped[str | None]
    # The wish was stored; the switch was seen wherever it must be; what was before was wanted again.
    switched_at: Mapped[datetime | None]
    confirmed_at: Mapped[datetime | None]
    rolled_back_at: Mapped[datetime | None]
    # From which LSN on the compute is as it was; null while that is not known.
    rollback_lsn: Mapped[str | None]
    baseline_start: Mapped[datetime | None]
    baseline_end: Mapped[datetime | None]
    after_start: Mapped[datetime | None]
    after_end: Mapped[datetime | None]
    restarts_before: Mapped[int | None]
    updated_at: Mapped[datetime | None]


ExclusionCode = Literal[
    "in_other_rollout", "already_on", "being_deleted", "branch_not_ready", "disabled", "suspended", "held_out",
    "not_covered", "unknown_size", "unknown_write_rate", "other_major", "never_started", "no_way_back",
]  # fmt: skip


class RolloutExclusion(Base):
    """A compute that the selector chose and the plan left out, and why. Frozen with the plan."""

    __tablename__ = "rollout_exclusions"
    __table_args__ = (Index("ix_rollout_exclusions_endpoint", "endpoint_id"),)

    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"), primary_key=True)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    region_id: Mapped[str]
    cell: Mapped[str]
    code: Mapped[str]
    reason: Mapped[str]


class RolloutAlert(Base):
    """Something a person should look at: a step past its deadline. Cleared when the step ends."""

    __tablename__ = "rollout_alerts"
    __table_args__ = (
        Index(
            "uq_rollout_alerts_open",
            "rollout_id",
            "kind",
            "endpoint_id",
            unique=True,
            postgresql_where="cleared_at IS NULL",
            postgresql_nulls_not_distinct=True,
        ),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"))
    endpoint_id: Mapped[str | None] = mapped_column(ForeignKey("endpoints.id"))
    wave: Mapped[int | None]
    kind: Mapped[str]
    message: Mapped[str]
    raised_at: Mapped[datetime]
    cleared_at: Mapped[datetime | None]


class RolloutEvidence(Base):
    """Figures of both windows and the verdict drawn from them, kept when the metrics are gone."""

    __tablename__ = "rollout_evidence"
    __table_args__ = (Index("ix_rollout_evidence_member", "rollout_id", "endpoint_id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"))
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id"))
    verdict: Mapped[str]
    reason: Mapped[str]
    before: Mapped[dict[str, Any]]
    after: Mapped[dict[str, Any]]
    bounds: Mapped[dict[str, Any]]
    # The comparison with unswitched controls (effects, intervals, looks, what would settle it); empty without one.
    analysis: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    created_at: Mapped[datetime]
