"""Who is taken up next: caps, maintenance windows, and computes that could not be taken up before. Pure."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState
from weir_workflows.rollout.limits import AGAIN_SECONDS, BATCH_SIZE, LONGEST_WAIT_SECONDS
from weir_workflows.rollout.picking import Room, batches_of, choose

# A Saturday, noon.
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def waiting(number: int, **fields: Any) -> Any:
    row = {
        "endpoint_id": f"ep-{number:03}",
        "cell": "a",
        "org_id": "one",
        "baseline_seconds": 60,
        "bake_seconds": 60,
        "state": MemberState.PENDING,
        "reason": None,
        "updated_at": AT - timedelta(hours=1),
        "maintenance_window": None,
    }
    return SimpleNamespace(**row | fields)


def ids(rows: list[Any]) -> list[str]:
    return [row.endpoint_id for row in rows]


def test_caps_hold_in_all_in_a_cell_and_of_an_organisation() -> None:
    strategy = Strategy(max_concurrent=5, max_concurrent_per_cell=3, max_concurrent_per_org=4)
    fleet = [waiting(n, cell="ab"[n % 2], org_id="xy"[n // 5]) for n in range(10)]
    room = Room(strategy)
    room.take("a", "x", 2)
    chosen, wait, why = choose(fleet, room, strategy, AT)
    # Of cell a one fits, of cell b three, of organisation x two more; three in all.
    assert ids(chosen) == ["ep-000", "ep-001", "ep-005"]
    assert room.left == 0
    assert (wait, why) == (LONGEST_WAIT_SECONDS, None)


def test_a_maintenance_window_must_be_open_when_the_switch_comes() -> None:
    strategy = Strategy()
    soon = {"weekdays": [6], "start_time": "12:01", "end_time": "13:00"}
    late = {"weekdays": [6], "start_time": "12:30", "end_time": "13:00"}
    chosen, wait, why = choose(
        [waiting(1, maintenance_window=soon), waiting(2, maintenance_window=late)], Room(strategy), strategy, AT
    )
    # The baseline of a minute ends as the first one opens.
    assert ids(chosen) == ["ep-001"]
    assert wait == 29 * 60
    assert why is not None
    assert "2026-11-21T12:29:00" in why
    careless = Strategy(respect_maintenance_windows=False)
    chosen, _, _ = choose([waiting(2, maintenance_window=late)], Room(careless), careless, AT)
    assert ids(chosen) == ["ep-002"]


def test_who_could_not_be_taken_up_rests_before_the_next_try() -> None:
    strategy = Strategy()
    busy = waiting(1, reason="its project is busy", updated_at=AT - timedelta(seconds=AGAIN_SECONDS - 1))
    rested = waiting(2, reason="its project is busy", updated_at=AT - timedelta(seconds=AGAIN_SECONDS + 1))
    chosen, wait, why = choose([busy, rested], Room(strategy), strategy, AT)
    assert ids(chosen) == ["ep-002"]
    assert wait == AGAIN_SECONDS
    assert why is not None
    assert "tried again" in why


def test_batches_hold_computes_whose_windows_are_of_one_length() -> None:
    fleet = [waiting(n, baseline_seconds=60 if n % 3 else 300) for n in range(3 * BATCH_SIZE)]
    batches = batches_of(fleet, 7)
    assert [batch.number for batch in batches] == [7, 8, 9]
    assert [(batch.baseline_seconds, len(batch.compute_ids)) for batch in batches] == [
        (60, BATCH_SIZE),
        (60, BATCH_SIZE),
        (300, BATCH_SIZE),
    ]
