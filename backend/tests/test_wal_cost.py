"""The what-if of a compute's WAL follows the measured curve, and says nothing where the curve says nothing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from weir_testing.fixtures import Weir

from weir.computes import wal_cost_curve
from weir.computes.wal_cost import what_if
from weir.computes.wal_cost_curve import COMPRESSED, PLAIN, PUSHDOWN, Curve
from weir.computes.wal_cost_schemas import WalTotals

MIB = 1 << 20
BENCH = Path(__file__).parents[2] / "bench" / "results" / "wal-distance.json"


def first_touches(distance: float) -> float:
    """The share of changes that are their page's first since a checkpoint, uniformly random over 64 MiB of pages."""
    touches = distance / (64 * MIB)
    return -math.expm1(-touches) / touches


def model() -> Curve:
    """A curve by a formula, with runs long enough for checkpoints at every distance."""
    rows: list[dict[str, Any]] = []
    for step in range(10):
        distance = 32 * MIB << step
        for arm, page in ((PLAIN, 8000.0), (COMPRESSED, 4000.0), (PUSHDOWN, 0.0)):
            image, rest = page * first_touches(distance), 500.0
            rows.append(
                {
                    "arm": arm,
                    "max_wal_size_bytes": distance,
                    "transactions": 1000,
                    "wal_bytes": round(1000 * (image + rest)),
                    "image_bytes": round(1000 * image),
                    "checkpoints": 5,
                    "wal_bytes_per_transaction": image + rest,
                    "image_bytes_per_transaction": image,
                    "wal_bytes_min": round(1000 * (image + rest)),
                    "wal_bytes_max": round(1000 * (image + rest)),
                    "repeats": 3,
                }
            )
    settings = {"transactions": 1000, "scale": 1, "server_version": "15.18 (x)", "at": "2026-11-21T00:00:00+00:00"}
    return Curve({"settings": settings, "method": "a formula", "series": rows})


def totals(image: float | None, rest: float | None) -> WalTotals:
    total = None if image is None or rest is None else image + rest
    return WalTotals(
        image_bytes_per_second=image,
        rest_bytes_per_second=rest,
        image_share=image / total if image is not None and total else None,
        image_bytes_per_transaction=None,
        rest_bytes_per_transaction=None,
        transactions_per_second=None,
    )


def at(distance: float) -> WalTotals:
    """A compute that is like the model, ten transactions a second at a distance."""
    return totals(10 * 8000 * first_touches(distance), 5000.0)


@pytest.mark.parametrize("today", [64 * MIB, 100 * MIB, 300 * MIB])
def test_a_compute_like_the_curve_is_placed_where_it_is_and_told_what_it_would_write(today: int):
    answer = what_if(model(), at(today), "off", 1e6)
    assert answer.placed is not None
    assert answer.placed.curve_max_wal_size_bytes == pytest.approx(today, rel=0.1)
    for estimate in answer.estimates:
        there = 10 * first_touches(today * estimate.distance_factor)
        assert estimate.wal_bytes_per_second.full_page_writes == pytest.approx(5000 + 8000 * there, rel=0.1)
        assert estimate.wal_bytes_per_second.full_page_writes_lz4 == pytest.approx(5000 + 4000 * there, rel=0.1)
        assert estimate.wal_bytes_per_second.pushdown == 5000, "what is written beside the images now"
        assert estimate.wal_bytes_between_checkpoints == 1e6 * estimate.distance_factor


def test_today_is_what_is_measured_whichever_arm_the_compute_is_on():
    compressed = totals(10 * 4000 * first_touches(128 * MIB), 5000.0)
    for now, compression, field in ((at(128 * MIB), "off", PLAIN), (compressed, "lz4", COMPRESSED)):
        answer = what_if(model(), now, compression, None)
        assert answer.placed is not None
        assert answer.placed.arm == field
        assert now.image_bytes_per_second is not None
        today = getattr(answer.estimates[0].wal_bytes_per_second, field)
        assert today == pytest.approx(now.image_bytes_per_second + 5000)
        assert answer.estimates[0].wal_bytes_between_checkpoints is None


def test_beyond_the_curve_nothing_is_estimated():
    answer = what_if(model(), at(4096 * MIB), "off", None)
    told = {item.distance_factor: item.wal_bytes_per_second for item in answer.estimates}
    assert told[4].full_page_writes is not None
    assert told[8].full_page_writes is None, "the curve ends at 16 GB"
    assert told[8].pushdown == 5000
    beyond = what_if(model(), totals(1.0, 20.0), "off", None)
    assert (beyond.estimates, beyond.placed) == ([], None)
    assert "less than at any distance measured" in str(beyond.reason)
    before = what_if(model(), totals(10_000_000.0, 5000.0), "off", None)
    assert before.placed is not None
    assert before.placed.clamped


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (totals(None, None), "wrote no WAL"),
        (totals(0.0, 0.0), "wrote no WAL"),
        (totals(0.0, 500.0), "would save any"),
    ],
)
def test_without_images_there_is_nothing_to_estimate(now: WalTotals, why: str):
    answer = what_if(model(), now, None, None)
    assert why in str(answer.reason)
    assert answer.estimates == []
    assert answer.curve.series, "the curve is shown all the same"


def test_points_whose_runs_hardly_checkpointed_place_nobody():
    document = model().document
    for row in document["series"]:
        row["checkpoints"] = 5 if row["max_wal_size_bytes"] <= 128 * MIB else 1
    answer = what_if(Curve(document), at(64 * MIB), "off", None)
    told = {item.distance_factor: item.wal_bytes_per_second.full_page_writes for item in answer.estimates}
    assert told[2] is not None
    assert told[4] is None


def test_the_curve_shipped_is_the_one_the_bench_measured():
    shipped = json.loads(wal_cost_curve.DATA.read_text())
    assert shipped == json.loads(BENCH.read_text()), f"copy {BENCH} to {wal_cost_curve.DATA}"
    points = {(row["arm"], row["max_wal_size_bytes"]): row for row in shipped["series"]}
    assert len({distance for _, distance in points}) == 10
    for (arm, distance), row in points.items():
        if arm == PUSHDOWN:
            assert row["image_bytes"] == 0
        else:
            assert row["wal_bytes"] > 2 * points[PUSHDOWN, distance]["wal_bytes"]
    assert points[PLAIN, 32 * MIB]["wal_bytes"] > 2 * points[PLAIN, 16384 * MIB]["wal_bytes"], "distance helps"


async def test_an_unknown_compute_is_404_and_a_silent_prometheus_503(unmeasured: Weir):
    missing = await unmeasured.call("GET", "/computes/ep-not-there-000000/wal_cost", 404)
    assert missing["code"] == "NOT_FOUND"
    created = await unmeasured.project(name="wal-cost")
    path = f"/computes/{created['endpoints'][0]['id']}/wal_cost"
    answer = await unmeasured.call("GET", path, 503)
    assert answer["code"] == "DEPENDENCY_UNAVAILABLE"
    await unmeasured.call("GET", f"{path}?window_seconds=1", 400)
