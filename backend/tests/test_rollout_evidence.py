"""Evidence of a rollout comes from the database, summed by wave, cell and fleet, and goes into its report."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import delete, select
from weir_testing.fixtures import Weir

from weir.computes import metrics
from weir.identity import audit
from weir.identity.models import Account
from weir.kit.clock import now
from weir.rollouts.evidence import summary as evidence
from weir.rollouts.evidence.models import RolloutMeasurement
from weir.rollouts.evidence.store import MeasuredMember, keep_measurement
from weir.rollouts.models import (
    MemberState,
    Rollout,
    RolloutEvidence,
    RolloutExclusion,
    RolloutMember,
    RolloutStatus,
    RolloutWave,
    WaveState,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAME = "<b>everyone</b>"


def window(image: float, rest: float, commits: float) -> dict[str, Any]:
    return {
        "from": START.isoformat(),
        "to": (START + timedelta(seconds=10)).isoformat(),
        "seconds": 10.0,
        "wal": {"Heap": {"image": image, "rest": rest}},
        "transactions": {"commit": commits, "abort": 0.0},
        "checkpoints": 1,
        "histograms": {"commit": [[0.001, 0.002, commits]], "storage_read": None, "chain": None},
        "storage": {"images": None, "image_bytes": None, "images_pending_max": None, "image_lag_bytes_max": None},
    }


def measured(image: float, rest: float, commits: float) -> dict[str, Any]:
    series = {"step_seconds": 1.0, "window_seconds": 15, "times": [START.timestamp() + at for at in range(3)]}
    charted = (
        "wal_image_bytes_per_second", "wal_rest_bytes_per_second", "transactions_per_second", "commit_p50_seconds",
        "commit_p99_seconds", "storage_read_p50_seconds", "storage_read_p99_seconds", "chain_length_p99",
    )  # fmt: skip
    return {
        "before": window(image, rest, commits),
        "after": window(0.0, rest, commits),
        "series": series | {name: [1.0, None, 2.0] for name in charted},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rollout(weir: Weir) -> tuple[str, list[str]]:
    """Three computes in two waves and two cells; the first two are measured, a fourth is excluded."""
    computes: list[tuple[str, str]] = []
    for name in "abcd":
        created = await weir.call("POST", "/projects", 201, json={"project": {"name": f"evidence-{name}"}})
        computes.append((created["endpoints"][0]["id"], created["project"]["id"]))
    plan = {
        "waves": [], "computes_total": 3, "at_next_start_total": 0, "excluded_total": 1, "excluded_by_code": [],
        "expected_wal_saved_bytes_per_second": None, "created_at": START.isoformat(),
    }  # fmt: skip
    async with weir.resources.database.transaction() as session:
        admin = (await session.scalars(select(Account).where(Account.name == "admin"))).one()
        session.add(
            # Of its own projects only: a completed rollout of everybody makes new computes start switched.
            Rollout(id="evidence-1", name=NAME, account_id=admin.id, feature="image_pushdown", strategy={}, plan=plan,
                    selector={"project_ids": [project for _, project in computes]},
                    status=RolloutStatus.COMPLETED, dispatched_at=START)
        )  # fmt: skip
        await session.flush()
        for index, wave in enumerate(("canary", "everyone")):
            session.add(RolloutWave(rollout_id="evidence-1", index=index, name=wave, state=WaveState.PASSED))
        for index, (compute, project) in enumerate(computes[:3]):
            session.add(
                RolloutMember(rollout_id="evidence-1", endpoint_id=compute, project_id=project, wave=min(index, 1),
                              region_id="local", cell=f"cell-{index % 2}", state=MemberState.PASSED,
                              baseline_seconds=10, bake_seconds=10, switched_at=START + timedelta(seconds=11),
                              baseline_start=START, baseline_end=START + timedelta(seconds=10))
            )  # fmt: skip
        excluded, project = computes[3]
        session.add(
            RolloutExclusion(rollout_id="evidence-1", endpoint_id=excluded, project_id=project, region_id="local",
                             cell="cell-0", code="disabled", reason="the endpoint is disabled")
        )  # fmt: skip
        session.add(
            RolloutEvidence(rollout_id="evidence-1", endpoint_id=computes[0][0], verdict="pass", reason="all is well",
                            before={}, after={}, bounds={"items": [{"name": "x", "ok": True, "detail": "y"}]},
                            created_at=now())
        )  # fmt: skip
        await session.flush()
        await keep_measurement(session, "evidence-1", computes[0][0], measured(1.0, 1.0, 1.0))
        await keep_measurement(session, "evidence-1", computes[0][0], measured(90_000.0, 10_000.0, 100.0))
        second = measured(10_000.0, 10_000.0, 100.0)
        second["series"]["controls"] = {"computes": 3} | {
            name: [4.0, 4.0, 2.0] for name, values in second["series"].items() if isinstance(values, list)
        }
        await keep_measurement(session, "evidence-1", computes[1][0], second)
        audit.record_system(session, "maria", "rollout.approve", "rollout/evidence-1", wave=1)
    return "evidence-1", [compute for compute, _ in computes]


async def test_evidence_is_summed_by_wave_cell_and_fleet(weir: Weir, rollout: tuple[str, list[str]]) -> None:
    ident, computes = rollout
    answer = await weir.call("GET", f"/rollouts/{ident}/evidence")
    assert (answer["members_total"], answer["members_measured"]) == (3, 2)
    fleet = answer["fleet"]
    assert (fleet["computes"], fleet["before"]["wal_bytes_per_second"]) == (2, 12_000)
    assert fleet["before"]["wal_bytes_per_transaction"] == 600
    assert fleet["after"]["wal_bytes_per_transaction"] == 100
    assert fleet["wal_saved_bytes_per_second"] == 500 * 20
    assert [(wave["name"], wave["computes"]) for wave in answer["waves"]] == [("canary", 1), ("everyone", 1)]
    assert answer["waves"][0]["before"]["wal_bytes_per_transaction"] == 1000
    assert [(cell["cell"], cell["computes"]) for cell in answer["cells"]] == [("cell-0", 1), ("cell-1", 1)]
    by_id = {row["compute_id"]: row for row in answer["members"]}
    assert by_id[computes[0]]["verdict"] == "pass"
    assert by_id[computes[0]]["before"]["from"] == START.isoformat()
    assert by_id[computes[2]]["before"] is None, "not measured is not zero"


async def test_sums_are_made_again_only_when_a_measurement_has_changed(
    weir: Weir, rollout: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ident, computes = rollout
    kept = await weir.call("GET", f"/rollouts/{ident}/evidence")
    added: list[str] = []
    add = evidence.Summing.add

    def counted(self: evidence.Summing, found: MeasuredMember) -> None:
        added.append(found.member.endpoint_id)
        add(self, found)

    monkeypatch.setattr(evidence.Summing, "add", counted)
    assert (await weir.call("GET", f"/rollouts/{ident}/evidence"))["fleet"] == kept["fleet"]
    assert added == []
    async with weir.resources.database.transaction() as session:
        await keep_measurement(session, ident, computes[2], measured(0.0, 50_000.0, 100.0))
    changed = await weir.call("GET", f"/rollouts/{ident}/evidence")
    assert sorted(added) == sorted(computes[:3])
    assert (changed["fleet"]["computes"], changed["fleet"]["before"]["wal_bytes_per_second"]) == (3, 17_000)
    async with weir.resources.database.transaction() as session:
        await session.execute(delete(RolloutMeasurement).where(RolloutMeasurement.endpoint_id == computes[2]))
    assert (await weir.call("GET", f"/rollouts/{ident}/evidence"))["fleet"] == kept["fleet"]


async def test_members_come_in_pages_and_by_wave(weir: Weir, rollout: tuple[str, list[str]]) -> None:
    ident, computes = rollout
    seen: list[str] = []
    cursor = ""
    while True:
        answer = await weir.call("GET", f"/rollouts/{ident}/evidence", params={"limit": 2, "cursor": cursor})
        assert answer["fleet"]["computes"] == 2, "sums are of all, whichever page"
        seen += [row["compute_id"] for row in answer["members"]]
        cursor = answer["pagination"]["cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(computes[:3])
    assert len(seen) == 3
    canary = await weir.call("GET", f"/rollouts/{ident}/evidence?wave=0")
    assert [row["compute_id"] for row in canary["members"]] == [computes[0]]


async def test_one_computes_evidence_has_its_series_and_bounds(weir: Weir, rollout: tuple[str, list[str]]) -> None:
    ident, computes = rollout
    found = (await weir.call("GET", f"/rollouts/{ident}/evidence/{computes[0]}"))["evidence"]
    assert found["series"]["commit_p99_seconds"] == [1.0, None, 2.0]
    assert found["bounds"] == [{"name": "x", "ok": True, "detail": "y"}]
    bare = (await weir.call("GET", f"/rollouts/{ident}/evidence/{computes[2]}"))["evidence"]
    assert (bare["series"], bare["after"]) == (None, None)


async def test_a_computes_course_is_as_kept_when_prometheus_does_not_answer(
    weir: Weir, rollout: tuple[str, list[str]]
) -> None:
    ident, computes = rollout

    async def course(compute: str) -> dict[str, Any]:
        return (await weir.call("GET", f"/rollouts/{ident}/computes/{compute}/course"))["course"]

    alone = await course(computes[0])
    assert (alone["source"], alone["controls"], alone["expected"]) == ("kept", 0, None)
    assert alone["series"]["commit_p99_seconds"] == [1.0, None, 2.0]
    beside = await course(computes[1])
    assert beside["controls"] == 3, beside
    # Over the baseline it had 1 and 2, they 4 and 2: half of theirs is what it would have had.
    assert beside["expected"]["commit_p99_seconds"] == [2.0, 2.0, 1.0]
    assert beside["expected"]["wal_bytes_per_second"] == [4.0, 4.0, 2.0]
    assert (await course(computes[2]))["times"] == [], "nothing was measured of it"
    assert "ep-none" in (await weir.call("GET", f"/rollouts/{ident}/computes/ep-none/course", 404))["message"]


async def test_a_computes_course_is_read_with_its_controls_while_prometheus_remembers(
    weir: Weir, rollout: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ident, computes = rollout
    asked: list[str] = []

    async def chart(_prometheus: Any, selector: str, start: datetime, *_span: Any) -> metrics.Chart:
        asked.append(selector)
        values: list[float | None] = [3.0, 3.0] if computes[0] in selector else [6.0, 12.0]
        times = [START.timestamp() + 5, START.timestamp() + 40]
        assert start < START, "a margin before the baseline"
        return metrics.Chart(times, {figure.name: values for figure in metrics.CHARTED})

    monkeypatch.setattr(metrics, "chart", chart)
    async with weir.resources.database.transaction() as session:
        row = (await session.scalars(select(RolloutEvidence).where(RolloutEvidence.rollout_id == ident))).one()
        row.analysis = {"controls": [computes[1], computes[2]]}
    found = (await weir.call("GET", f"/rollouts/{ident}/computes/{computes[0]}/course"))["course"]
    assert (found["source"], found["controls"]) == ("prometheus", 2)
    assert asked == [metrics.of_compute(computes[0]), metrics.of_computes(computes[1:3])]
    assert found["expected"]["commit_p99_seconds"] == [3.0, 6.0]
    assert found["expected"]["wal_bytes_per_second"] == [6.0, 12.0]


async def test_the_report_says_who_approved_and_who_was_left_out(weir: Weir, rollout: tuple[str, list[str]]) -> None:
    ident, computes = rollout
    answer = await weir.client.get(f"/api/v2/rollouts/{ident}/report")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for said in ("maria", "rollout.approve", "the endpoint is disabled", computes[0], "&lt;b&gt;everyone&lt;/b&gt;"):
        assert said in answer.text, said
    assert NAME not in answer.text
    same = await weir.call("GET", f"/rollouts/{ident}/report?format=json")
    assert same["fleet"]["after"]["wal_bytes_per_transaction"] == 100
    assert [row["reason"] for row in same["exclusions"]] == ["the endpoint is disabled"]
    assert [(row["actor"], row["action"]) for row in same["decisions"]] == [("maria", "rollout.approve")]


@pytest.mark.parametrize("path", ["evidence", "evidence/ep-none", "report", "report?format=json"])
async def test_an_unknown_rollout_is_404(weir: Weir, path: str) -> None:
    assert (await weir.call("GET", f"/rollouts/not-there/{path}", 404))["code"] == "NOT_FOUND"
