"""A rollout judged by comparison with computes that are not switched, on figures that Prometheus really scraped."""

from datetime import datetime

import pytest
from weir_testing.fleet import Fleet

from weir.rollouts.evidence.store import kept_series

# As many intervals as a verdict needs, and no more.
WINDOW = 30


async def test_a_slow_compute_regresses_against_its_controls_and_a_like_one_passes(fleet: Fleet) -> None:
    """The bounds are out of reach: only the comparison can tell."""
    (slow,) = await fleet.add(1, test__mode="slow")
    (good,) = await fleet.add(1)
    chosen = [item["project"]["id"] for item in fleet.projects]
    controls = await fleet.add(3)
    body = {
        "selector": {"project_ids": chosen},
        "strategy": {
            "waves": [{"count": 2}],
            "baseline_seconds": WINDOW,
            "bake_seconds": WINDOW,
            "settle_seconds": 1,
            "max_p99_ratio": 100,
            "p99_slack_seconds": 60,
        },
    }
    ident = (await fleet.weir.call("POST", "/rollouts", 201, json=body))["rollout"]["id"]
    held = await fleet.until(ident, "held", seconds=600)
    by_id = {item["compute_id"]: item for item in held["computes"]}
    assert by_id[slow]["state"] == "regressed", by_id[slow]
    assert "commit p99" in by_id[slow]["reason"]
    assert all(bound["ok"] for bound in by_id[slow]["evidence"]["bounds"])
    analysis = by_id[slow]["evidence"]["analysis"]
    # Any compute that ran with images all the while is as good a control as the test's own three.
    assert len(analysis["controls"]) >= len(controls)
    assert not {slow, good} & set(analysis["controls"])
    worse = next(figure for figure in analysis["figures"] if figure["name"] == "commit_p99")
    assert worse["answer"] == "regress"
    assert worse["low"] > 1
    assert by_id[good]["state"] == "passed", by_id[good]
    assert await fleet.switch_of(slow) == (True, True)
    assert await fleet.switch_of(good) == (False, False)
    # The windows are kept for when Prometheus has forgotten them.
    kept = await fleet.weir.call("GET", f"/rollouts/{ident}/evidence/{good}")
    assert kept["evidence"]["after"]["wal_image_bytes_per_second"] == pytest.approx(0, abs=1)
    async with fleet.weir.resources.database.transaction() as session:
        series = await kept_series(session, ident, slow)
    assert series is not None
    assert series["controls"]["computes"] == len(analysis["controls"])
    assert len(series["controls"]["commit_p99_seconds"]) == len(series["times"])
    # The chart shows what was to be expected: a slow commit is above it.
    course = (await fleet.weir.call("GET", f"/rollouts/{ident}/computes/{slow}/course"))["course"]
    assert course["controls"] == len(analysis["controls"])
    last = max(
        index
        for index, at in enumerate(course["times"])
        if at <= datetime.fromisoformat(by_id[slow]["after"]["to"]).timestamp()
    )
    assert course["series"]["commit_p99_seconds"][last] > course["expected"]["commit_p99_seconds"][last]
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    assert await fleet.switch_of(good) == (True, True)
