"""Which computes of a wave are taken up next, and in which batches. Pure."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from weir.kit.windows import WeeklyWindow, opens_at
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState
from weir_workflows.rollout import limits
from weir_workflows.rollout.limits import AGAIN_SECONDS, LONGEST_WAIT_SECONDS
from weir_workflows.rollout.messages import PickedBatch


class Room:
    """How many computes more may be under way, in all, in a cell, of an organisation."""

    def __init__(self, strategy: Strategy) -> None:
        self._left = strategy.max_concurrent
        self._limits = (strategy.max_concurrent_per_cell, strategy.max_concurrent_per_org)
        self._taken: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    @property
    def left(self) -> int:
        return self._left

    def take(self, cell: str, org: str, count: int = 1) -> None:
        self._left -= count
        for counter, name in zip(self._taken, (cell, org), strict=True):
            counter[name] += count

    def fits(self, cell: str, org: str) -> bool:
        pairs = zip(self._limits, self._taken, (cell, org), strict=True)
        return self._left > 0 and all(limit is None or taken[name] < limit for limit, taken, name in pairs)


def choose(
    candidates: list[Row[*tuple[Any, ...]]], room: Room, strategy: Strategy, at: datetime
) -> tuple[list[Row[*tuple[Any, ...]]], float, str | None]:
    """The candidates that may be taken up now; when to pick again, in seconds; and why, where something else than
    room for more members stands in the way."""
    chosen: list[Row[*tuple[Any, ...]]] = []
    opening: datetime | None = None
    resting = 0
    for row in candidates:
        if row.state == MemberState.PENDING:
            if row.reason and row.updated_at > at - timedelta(seconds=AGAIN_SECONDS):
                resting += 1
                continue
            if strategy.respect_maintenance_windows and row.maintenance_window:
                switch_at = at + timedelta(seconds=row.baseline_seconds)
                opens = opens_at(WeeklyWindow.model_validate(row.maintenance_window), switch_at)
                if opens > switch_at:
                    begins = opens - timedelta(seconds=row.baseline_seconds)
                    opening = begins if opening is None else min(opening, begins)
                    continue
        if not room.fits(row.cell, row.org_id):
            continue
        room.take(row.cell, row.org_id)
        chosen.append(row)
    # Room comes when a batch ends, which the workflow sees by itself.
    wait, why = LONGEST_WAIT_SECONDS, None
    if opening is not None:
        wait = min(max(1.0, (opening - at).total_seconds()), LONGEST_WAIT_SECONDS)
        why = f"the next maintenance window opens at {opening.isoformat(timespec='seconds')}"
    if resting:
        wait = min(wait, AGAIN_SECONDS)
        why = f"{resting} computes could not be taken up yet and are tried again"
    return chosen, wait, why


def batches_of(chosen: list[Row[*tuple[Any, ...]]], first: int) -> list[PickedBatch]:
    """Those whose windows are of one length go together."""
    alike: dict[tuple[int, int], list[str]] = {}
    for row in chosen:
        alike.setdefault((row.baseline_seconds, row.bake_seconds), []).append(row.endpoint_id)
    batches: list[PickedBatch] = []
    for (baseline, bake), idents in sorted(alike.items()):
        for start in range(0, len(idents), limits.BATCH_SIZE):
            batches.append(
                PickedBatch(first + len(batches), idents[start : start + limits.BATCH_SIZE], baseline, bake)
            )
    return batches
