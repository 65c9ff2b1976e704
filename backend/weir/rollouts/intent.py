"""What a person asks of a rollout: the selector of its computes and its strategy. Both are stored with the rollout
as they were sent."""

from typing import Literal, Self

from pydantic import Field, model_validator

from weir.kit.schemas import MOST_INTEGER, Body, Id, Label, Name
from weir.kit.windows import FreezeSpan, WeeklyWindow

FeatureName = Literal["image_pushdown", "postgres_minor"]


class Span(Body):
    """Both ends belong to it; an end left out is open."""

    min: float | None = Field(default=None, ge=0)
    max: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.max < self.min:
            raise ValueError("max is below min")
        return self

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


class Selector(Body):
    """Whose computes: those for which every field given holds; an empty selector is every compute.

    `org_ids` are owners of projects (`owner_id`); `tags` must all be there with these values; `size_bytes` is what
    storage keeps for the branch; `wal_bytes_per_second` is what the compute writes now."""

    org_ids: list[str] | None = Field(default=None, min_length=1, max_length=1_000)
    project_ids: list[Id] | None = Field(default=None, min_length=1, max_length=10_000)
    region_ids: list[Label] | None = Field(default=None, min_length=1, max_length=100)
    cells: list[Label] | None = Field(default=None, min_length=1, max_length=1_000)
    tags: dict[Label, str] | None = Field(default=None, max_length=20)
    pg_versions: list[int] | None = Field(default=None, min_length=1, max_length=20)
    size_bytes: Span | None = None
    wal_bytes_per_second: Span | None = None


class WaveSpec(Body):
    """So many computes, or so many percent of all of them once the wave is done (so percents grow)."""

    count: int | None = Field(default=None, ge=1)
    percent: float | None = Field(default=None, gt=0, le=100)
    name: Name | None = None
    # How long the fleet is watched after this wave before the next begins; the strategy's when left out.
    soak_seconds: int | None = Field(default=None, ge=0, le=7 * 86400)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a wave has a count or a percent, one of the two")
        return self


def _default_waves() -> list[WaveSpec]:
    """For a small fleet the waves in the middle come out empty and fall away."""
    return [
        WaveSpec(count=1, name="canary"),
        WaveSpec(percent=1, name="1 %"),
        WaveSpec(percent=5, name="5 %"),
        WaveSpec(percent=25, name="25 %"),
        WaveSpec(percent=100, name="everyone"),
    ]


class Strategy(Body):
    """How a rollout proceeds. The defaults are a careful rollout of any fleet."""

    waves: list[WaveSpec] = Field(default_factory=_default_waves, min_length=1, max_length=20)
    # Each compute's windows are rounded up to whole checkpoint cycles of its own settings; below 120 s
    # regressions of the tail are missed (bench/verdict). A bake of 0 s judges nothing: a compute passes once its
    # switch is confirmed.
    baseline_seconds: int = Field(default=120, ge=0, le=86400)
    bake_seconds: int = Field(default=120, ge=0, le=86400)
    settle_seconds: int = Field(default=5, ge=0, le=600)
    soak_seconds: int = Field(default=60, ge=0, le=7 * 86400)

    # Who must say yes: to the frozen plan before anything begins; before every wave after the first.
    plan_approval_required: bool = False
    approval_required: bool = False

    # Computes between the beginning of their baseline and their verdict at one moment.
    max_concurrent: int = Field(default=500, ge=1, le=10_000)
    max_concurrent_per_cell: int | None = Field(default=None, ge=1)
    max_concurrent_per_org: int | None = Field(default=None, ge=1)
    # More computes of a wave than this share regressing or failing stop the wave; so does any in a wave so small
    # that the share is less than one compute.
    max_failed_percent: float = Field(default=2.0, ge=0, le=100)

    # A share of the fleet that no rollout of this feature switches, the same computes every time: controls.
    holdout_percent: float = Field(default=0.0, ge=0, le=50)
    # Suspended computes are taken in the last wave, and switch when they start next.
    include_suspended: bool = True
    # Computes made after this rollout has completed start switched where the selector covers them.
    new_computes: bool = True

    freeze_windows: list[FreezeSpan | WeeklyWindow] = Field(default_factory=list, max_length=100)
    respect_maintenance_windows: bool = True
    # How long a step may take beyond its window before a person is alerted.
    step_deadline_seconds: int = Field(default=600, ge=10, le=7 * 86400)

    # `controls`: compare with computes that are not switched meanwhile; a pass needs the comparison to rule a
    # regression out. `bounds`: the bounds below alone, for what is too small or too quiet for statistics.
    judge_by: Literal["controls", "bounds"] = "controls"
    # The ratio of a latency to its controls' that a pass must rule out.
    tolerated_ratio: float = Field(default=1.25, ge=1.05, le=10)
    # Deltas that 99 % of storage reads stay below after the switch.
    max_chain_length: float | None = Field(default=None, ge=1)
    # A p99 regresses when it is above its baseline by this ratio and by the slack, both: wide enough for a small,
    # busy machine, since these bounds are for what is plainly broken.
    max_p99_ratio: float = Field(default=3.0, ge=1, le=100)
    p99_slack_seconds: float = Field(default=0.25, ge=0, le=60)
    max_image_share: float = Field(default=0.02, ge=0, le=1)
    # Deltas a page may gather before storage makes an image of it, once Postgres sends none.
    image_threshold: int | None = Field(default=None, ge=1, le=100_000)
    # Of `postgres_minor`: the minor that computes are restarted onto. The newest there is when it is left out; which
    # one that is, is fixed with the plan.
    target_version: str | None = Field(default=None, pattern=r"^[1-9]\d*\.\d+$", max_length=20)

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.bake_seconds and not self.baseline_seconds:
            raise ValueError("a bake is judged against a baseline; give baseline_seconds, or bake for 0 s")
        return self

    def soak_of(self, wave: WaveSpec) -> int:
        return self.soak_seconds if wave.soak_seconds is None else wave.soak_seconds


class RolloutCreateRequest(Body):
    name: Name | None = None
    feature: FeatureName = "image_pushdown"
    selector: Selector = Field(default_factory=Selector)
    strategy: Strategy = Field(default_factory=Strategy)


class ApproveRequest(Body):
    """`gate`: the rollout's `gate` as it was when the decision was made. An approval of another gate is refused; one
    that names none opens whatever the rollout is held at."""

    gate: str | None = Field(default=None, min_length=1, max_length=63)


class RollbackRequest(Body):
    """All of the rollout, one wave (`wave`), or one compute (`compute_id`)."""

    scope: Literal["all", "wave", "compute"] = "all"
    wave: int | None = Field(default=None, ge=0, le=MOST_INTEGER)
    compute_id: Id | None = None

    @model_validator(mode="after")
    def _target(self) -> Self:
        wanted = {"all": (False, False), "wave": (True, False), "compute": (False, True)}[self.scope]
        if (self.wave is not None, self.compute_id is not None) != wanted:
            raise ValueError("scope `wave` takes `wave`, `compute` takes `compute_id`, scope `all` takes neither")
        return self


class SkipRequest(Body):
    """One compute, or what is left of one wave. Who has been switched already is not touched: roll it back."""

    wave: int | None = Field(default=None, ge=0, le=MOST_INTEGER)
    compute_id: Id | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.wave is None) == (self.compute_id is None):
            raise ValueError("name a wave or a compute_id, one of the two")
        return self
