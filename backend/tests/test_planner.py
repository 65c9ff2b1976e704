"""The plan of a rollout: frozen, complete, and with a reason for everyone left out."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from weir.branches.models import Branch, BranchState
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import BadRequestError
from weir.kit.clock import now
from weir.projects.models import Project
from weir.rollouts.intent import Selector, Strategy
from weir.rollouts.models import MemberMode
from weir.rollouts.plan.planner import Candidate, Planned, held_out, make_plan, whole_cycles

ORG = UUID(int=1)


def candidate(
    number: int,
    rate: float | None = None,
    *,
    open_rollout: str | None = None,
    size: int | None = None,
    project: dict[str, Any] | None = None,
    **fields: Any,
) -> Candidate:
    endpoint = Endpoint(
        id=f"ep-{number:05}",
        project_id=f"p-{number}",
        branch_id=f"br-{number}",
        desired_state=EndpointState.ACTIVE,
        state=EndpointState.ACTIVE,
        full_page_writes=True,
        disabled=False,
        pg_settings={},
    )
    for name, value in fields.items():
        setattr(endpoint, name, value)
    branch = Branch(id=f"br-{number}", state=BranchState.READY)
    owner = {"account_id": ORG, "region_id": "local", "cell": "local-1", "tags": {}, "pg_version": 15}
    row = ComputeRow(endpoint, branch, Project(id=f"p-{number}", name=f"project {number}", **owner | (project or {})))
    return Candidate(row, rate, open_rollout, wal_rate=rate, size_bytes=size)


def members(plan: Planned, wave: int) -> list[str]:
    return [item.compute_id for item in plan.computes if item.wave == wave]


def sizes(count: int, waves: list[dict[str, Any]] | None = None) -> list[int]:
    strategy = Strategy.model_validate({"waves": waves} if waves else {})
    plan = make_plan([candidate(n) for n in range(count)], strategy, now())
    counts = Counter(item.wave for item in plan.computes)
    assert [wave.computes for wave in plan.waves] == [counts[wave.index] for wave in plan.waves]
    return [wave.computes for wave in plan.waves]


def test_a_canary_and_then_the_rest() -> None:
    plan = make_plan([candidate(n, float(n)) for n in range(4)], Strategy(), now())
    assert [(wave.name, wave.computes) for wave in plan.waves] == [("canary", 1), ("everyone", 3)]
    assert plan.excluded == []
    assert plan.summary().expected_wal_saved_bytes_per_second == 6.0
    # Neither the quietest nor the busiest goes first.
    assert members(plan, 0) == ["ep-00002"]


def test_the_default_waves_fit_any_fleet() -> None:
    assert sizes(1) == [1]
    assert sizes(2) == [1, 1]
    assert sizes(20) == [1, 4, 15]
    assert sizes(1000) == [1, 9, 40, 200, 750]


def test_percents_are_cumulative_and_small_waves_round_up() -> None:
    waves = [{"count": 1}, {"percent": 1}, {"percent": 5}, {"percent": 25}, {"percent": 100}]
    assert sizes(1000, waves) == [1, 9, 40, 200, 750]
    assert sizes(10, waves) == [1, 2, 7]
    assert sizes(1, waves) == [1]


def test_percents_that_shrink_are_refused() -> None:
    with pytest.raises(BadRequestError, match="must grow"):
        sizes(10, [{"percent": 50}, {"percent": 20}])


def test_every_compute_is_in_exactly_one_wave_or_left_out_with_a_reason() -> None:
    odd = [
        candidate(1, full_page_writes=False),
        candidate(2, desired_state=EndpointState.IDLE),
        candidate(3, disabled=True),
        candidate(4, open_rollout="ro-other"),
        candidate(5, delete_requested_at=now()),
    ]
    good = [candidate(n) for n in range(10, 17)]
    waves = [{"count": 2}, {"percent": 50}]
    strategy = Strategy.model_validate({"waves": waves, "include_suspended": False})
    plan = make_plan(odd + good, strategy, now())
    placed = [item.compute_id for item in plan.computes]
    left_out = {item.compute_id: item.code for item in plan.excluded}
    everyone = {item.row.endpoint.id for item in odd + good}
    assert len(placed) == len(set(placed)) == 4
    assert set(placed) | set(left_out) == everyone
    assert left_out["ep-00001"] == "already_on"
    assert left_out["ep-00002"] == "suspended"
    assert left_out["ep-00003"] == "disabled"
    assert left_out["ep-00004"] == "in_other_rollout"
    assert left_out["ep-00005"] == "being_deleted"
    assert list(left_out.values()).count("not_covered") == 3
    summary = plan.summary()
    assert summary.excluded_total == 8
    assert {item.code: item.computes for item in summary.excluded_by_code}["not_covered"] == 3


def test_suspended_computes_go_last_and_switch_when_they_start_next() -> None:
    resting = [candidate(n, desired_state=EndpointState.IDLE) for n in range(3)]
    running = [candidate(n) for n in range(10, 14)]
    plan = make_plan(resting + running, Strategy(), now())
    modes = {item.compute_id: (item.wave, item.mode) for item in plan.computes}
    assert all(modes[item.row.endpoint.id] == (1, MemberMode.AT_NEXT_START) for item in resting)
    assert all(modes[item.row.endpoint.id][1] == MemberMode.RUNNING for item in running)
    assert plan.summary().at_next_start_total == 3
    # A rollout that stops short of the whole fleet leaves them out; one over nobody else takes them alone.
    short = make_plan(resting + running, Strategy.model_validate({"waves": [{"count": 4}]}), now())
    assert {item.code for item in short.excluded} == {"not_covered"}
    assert [wave.computes for wave in make_plan(resting, Strategy(), now()).waves] == [3]


def test_every_wave_is_a_sample_of_cells_sizes_and_write_rates() -> None:
    fleet = [
        candidate(n, rate=float(n % 10), size=10 ** (4 + 3 * (n % 2)), project={"cell": f"local-{n % 4}"})
        for n in range(2000)
    ]
    plan = make_plan(fleet, Strategy(), now())
    assert [wave.computes for wave in plan.waves] == [1, 19, 80, 400, 1500]
    by_id = {item.row.endpoint.id: item for item in fleet}
    for wave in plan.waves[2:]:
        chosen = [by_id[ident] for ident in members(plan, wave.index)]
        cells = Counter(item.row.project.cell for item in chosen)
        assert max(cells.values()) - min(cells.values()) <= 2
        assert dict(cells) == wave.by_cell
        large = sum(item.size_bytes == 10**7 for item in chosen) / len(chosen)
        assert large == pytest.approx(0.5, abs=0.05)
        mean_rate = sum(item.wal_rate or 0 for item in chosen) / len(chosen)
        assert mean_rate == pytest.approx(4.5, abs=0.5)


def test_a_selector_chooses_by_every_field_and_says_what_it_cannot_tell() -> None:
    fleet = [
        candidate(0, 10.0, size=100, project={"cell": "a", "tags": {"tier": "gold", "team": "x"}}),
        candidate(1, 99.0, size=100, project={"cell": "a", "tags": {"tier": "gold"}}),
        candidate(2, 10.0, size=100, project={"cell": "b", "tags": {"tier": "gold"}}),
        candidate(3, 10.0, size=999, project={"cell": "a", "tags": {"tier": "gold"}}),
        candidate(4, 10.0, size=100, project={"cell": "a", "tags": {"tier": "free"}}),
        candidate(5, None, size=100, project={"cell": "a", "tags": {"tier": "gold"}}),
        candidate(6, 10.0, size=None, project={"cell": "a", "tags": {"tier": "gold"}}),
        candidate(7, 10.0, size=100, project={"cell": "a", "tags": {"tier": "gold"}, "pg_version": 17}),
        candidate(8, 10.0, size=100, project={"cell": "a", "tags": {"tier": "gold"}, "account_id": UUID(int=2)}),
    ]
    selector = Selector.model_validate(
        {
            "org_ids": [str(ORG)],
            "region_ids": ["local"],
            "cells": ["a"],
            "tags": {"tier": "gold"},
            "pg_versions": [15],
            "size_bytes": {"min": 50, "max": 100},
            "wal_bytes_per_second": {"max": 50},
        }
    )
    plan = make_plan(fleet, Strategy(), now(), selector)
    assert [item.compute_id for item in plan.computes] == ["ep-00000"]
    assert {item.compute_id: item.code for item in plan.excluded} == {
        "ep-00005": "unknown_write_rate",
        "ep-00006": "unknown_size",
    }


def test_the_holdout_is_the_same_every_time_and_of_the_size_asked_for() -> None:
    fleet = [candidate(n) for n in range(4000)]
    strategy = Strategy.model_validate({"holdout_percent": 5})
    out = {item.compute_id for item in make_plan(fleet, strategy, now()).excluded}
    assert out == {item.compute_id for item in make_plan(fleet[::-1], strategy, now()).excluded}
    assert len(out) == pytest.approx(200, abs=50)
    # A larger share holds out the same ones and more.
    assert all(held_out("image_pushdown", ident, 10) for ident in out)


def test_windows_are_whole_checkpoint_cycles() -> None:
    assert whole_cycles(60, 30) == 60
    assert whole_cycles(60, 45) == 90
    assert whole_cycles(5, 300) == 300
    assert whole_cycles(0, 300) == 0
    plan = make_plan(
        [candidate(1, pg_settings={"checkpoint_timeout": "1min"}), candidate(2)],
        Strategy(baseline_seconds=90, bake_seconds=30),
        now(),
    )
    assert {(item.compute_id, item.baseline_seconds, item.bake_seconds) for item in plan.computes} == {
        ("ep-00001", 120, 60),
        ("ep-00002", 300, 300),
    }


@pytest.mark.parametrize(
    "strategy",
    [
        {"waves": [{}]},
        {"waves": [{"count": 1, "percent": 10}]},
        {"waves": []},
        {"bake_seconds": -1},
        {"holdout_percent": 90},
        {"freeze_windows": [{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}]},
        {"freeze_windows": [{"weekdays": [8], "start_time": "00:00", "end_time": "01:00"}]},
    ],
)
def test_strategies_that_mean_nothing_are_refused(strategy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Strategy.model_validate(strategy)


def test_a_plan_of_ten_thousand_takes_no_time() -> None:
    fleet = [candidate(n, float(n % 97), size=n) for n in range(10_000)]
    started = now()
    plan = make_plan(fleet, Strategy(), now())
    assert (now() - started).total_seconds() < 5
    assert [wave.computes for wave in plan.waves] == [1, 99, 400, 2000, 7500]
