"""Messages between the rollout's workflows and their activities. Times are RFC 3339; durations are in seconds."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WavePlan:
    index: int
    name: str
    state: str
    soak_seconds: int
    settle_seconds: int


@dataclass(frozen=True)
class Resumed:
    """Where a rollout stands by the database: what a workflow begins from that carries no state of its own."""

    waves: list[WavePlan]
    plan_approval_required: bool
    approval_required: bool
    max_failed_percent: float
    status: str
    next_batch: int
    asked_by: str = ""


@dataclass(frozen=True)
class PickInput:
    rollout_id: str
    wave: int
    # Batches from this number on were given out by an attempt of the same step, if there are any.
    first_batch: int


@dataclass(frozen=True)
class PickedBatch:
    number: int
    compute_ids: list[str]
    baseline_seconds: int
    bake_seconds: int


@dataclass(frozen=True)
class Picked:
    """`pending` computes of the wave are left after these. When none could be taken, `retry_seconds` says when to
    look again and `why` what stands in the way."""

    batches: list[PickedBatch]
    pending: int
    retry_seconds: float
    why: str | None = None


@dataclass(frozen=True)
class BatchInput:
    rollout_id: str
    batch: PickedBatch
    settle_seconds: int = 0
    paused: bool = False


@dataclass(frozen=True)
class BatchSignal:
    """What the rollout tells its batches when a person has controlled it."""

    paused: bool
    stopped: bool


@dataclass(frozen=True)
class Members:
    """Computes of one rollout."""

    rollout_id: str
    compute_ids: list[str]


@dataclass(frozen=True)
class Begun:
    """`measuring` computes have begun their baseline and need `wait_seconds` more; `switched` ones are past it."""

    measuring: int
    switched: int
    wait_seconds: float


@dataclass(frozen=True)
class Switched:
    """`waiting` computes may not be switched now; look again after `retry_seconds`, or, when it is `paused`, once the
    rollout goes on."""

    confirmed: int
    waiting: int
    stopped: bool
    retry_seconds: float
    paused: bool = False


@dataclass(frozen=True)
class BakeInput:
    rollout_id: str
    compute_ids: list[str]
    bake_seconds: int


@dataclass(frozen=True)
class Baked:
    to_judge: int
    stopped: bool


@dataclass(frozen=True)
class BackInput:
    """Takes computes back to what they were and leaves them in `state`."""

    rollout_id: str
    compute_ids: list[str]
    state: str
    reason: str


@dataclass(frozen=True)
class ScopeInput:
    """What of a rollout a person means: all of it, a wave, or a compute. `keep_passed` leaves out what passed."""

    rollout_id: str
    wave: int | None = None
    compute_id: str | None = None
    keep_passed: bool = False
    actor: str = ""


@dataclass(frozen=True)
class SkipDone:
    skipped: int
    asked: int


@dataclass(frozen=True)
class WaveRef:
    rollout_id: str
    index: int


@dataclass(frozen=True)
class WaveTally:
    """How a wave's computes are. `bad` regressed or failed; the lists hold a few of them with their reasons."""

    total: int = 0
    passed: int = 0
    bad: int = 0
    unclear: int = 0
    deferred: int = 0
    rolled_back: int = 0
    passed_before: int = 0
    bad_examples: list[str] = field(default_factory=list)
    unclear_examples: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class WaveJudged:
    """pass | inconclusive | regress, over the pairs of a wave and those before."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class WaveReport:
    rollout_id: str
    index: int
    state: str
    reason: str | None
    at: str
    soak_until: str | None = None


@dataclass(frozen=True)
class RolloutReport:
    rollout_id: str
    status: str
    reason: str | None
    current_wave: int | None
    at: str
    gate: str | None = None
    asked_by: str = ""
