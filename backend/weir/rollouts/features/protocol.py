"""What a plan asks of the feature that is rolled out: which computes have it already, and what it is expected to
bring.

The worker switches and judges computes (`weir_workflows.rollout.changes`)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import ColumnElement

from weir.computes.repository import ComputeRow
from weir.rollouts.intent import Strategy
from weir.rollouts.models import ExclusionCode


@dataclass(frozen=True)
class Candidate:
    """A compute and what is measured of it: bytes of page images and of all WAL a second, bytes that storage keeps
    for its branch; None where nothing was measured. `open_rollout`: what may be said of the one that has it."""

    row: ComputeRow
    image_rate: float | None
    open_rollout: str | None
    wal_rate: float | None = None
    size_bytes: int | None = None


class Feature(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def in_words(self) -> str:
        """What it is, in a sentence for reports."""
        ...

    @property
    def done_in_words(self) -> str:
        """When a switch counts as done."""
        ...

    def resolved(self, strategy: Strategy) -> Strategy:
        """With what is fixed once the plan is made. Raises BadRequestError for what this feature cannot do."""
        ...

    def exclusion(self, candidate: Candidate, strategy: Strategy) -> tuple[ExclusionCode, str] | None:
        """Why the feature has nothing to do for this compute, or cannot do it."""
        ...

    def wal_saved(self, candidate: Candidate) -> float | None:
        """Bytes of WAL a second that the compute is expected to write less."""
        ...

    def versions(self, candidate: Candidate, strategy: Strategy) -> tuple[str | None, str | None]:
        """The minors of Postgres that the compute runs and is to run, where that is what changes."""
        ...

    # Coverage, over endpoints.

    @property
    def has(self) -> ColumnElement[bool]: ...

    @property
    def since(self) -> ColumnElement[datetime | None]:
        """Since when an endpoint that has it has it; null where nobody knows."""
        ...
