"""What is said of the adaptive mode must follow from the runs: medians by read, products, and the promise itself."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import adaptive


def run(us: list[float], written: int) -> dict[str, Any]:
    model = {"request": 30, "page": 6}
    return {"us": us, "pages": [1] * len(us), "replayed": [4] * len(us), "written_bytes": written, "model": model}


def test_what_disturbs_a_read_in_one_round_is_not_its_cost():
    quiet = [10.0] * 100
    disturbed = [10.0] * 50 + [5000.0] * 50
    of = adaptive.figures([run(quiet, 1_000_000), run(disturbed, 3_000_000), run(quiet, 2_000_000)])
    assert (of["p99_us"], of["bytes_written"], of["product"]) == (10.0, 2_000_000, 20.0)
    assert of["p99_us_by_round"] == [10.0, 5000.0, 10.0]
    assert of["modelled_product"] == pytest.approx((30 + 6 + 4) * 2)


def test_costs_are_what_the_fixed_arms_differ_by():
    def arm(replayed: int, us: float) -> dict[str, Any]:
        return {"replayed_p99": replayed, "p99_us": us, "pages_p99": 16}

    grows = {"fixed_8": arm(10, 102.0), "fixed_64": arm(60, 112.0), "fixed_256": arm(200, 140.0)}
    flat = {"fixed_8": arm(10, 100.0), "fixed_256": arm(200, 90.0)}
    found = adaptive.costs({"grows": {**grows, adaptive.ADAPTIVE: arm(400, 999.0)}, "flat": flat})
    assert found["grows"] == {"pages": 16, "request_us": 100, "delta_us": 0.2, "in_deltas": 500}
    assert found["flat"]["in_deltas"] is None, "longer chains made nothing slower"


def test_the_promise_is_each_workload_and_all_of_them():
    def arms(small: float, large: float, mode: float) -> dict[str, dict[str, Any]]:
        values = {"fixed_8": small, "fixed_256": large, adaptive.ADAPTIVE: mode}
        return {arm: {"product": value} for arm, value in values.items()}

    good = adaptive.promise({"one": arms(10, 20, 10.5), "two": arms(20, 10, 10.5)}, "product")
    assert good["held"]
    assert (good["worst_ratio_to_best_fixed"], good["geometric_mean"]["fixed_8"]) == (1.05, 14.1)
    # Far ahead over all, and too far behind on one.
    assert not adaptive.promise({"one": arms(10, 20, 11.5), "two": arms(20, 10, 1)}, "product")["held"]
    # Never far behind, and never ahead.
    assert not adaptive.promise({"one": arms(10, 20, 10.5), "two": arms(10, 20, 10.5)}, "product")["held"]
