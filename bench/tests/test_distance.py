"""What the distance bench counts is what Postgres wrote, and a point is the run its parts come from."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench.distance import ARMS, MIB, Load, Run, series, template


def run(arm: str, distance: int, wal: int, image: int) -> Run:
    return Run(arm, distance, 100, wal, image, wal - image, 1, 1.0)


def test_a_point_is_the_run_of_median_volume_with_the_spread_of_its_repeats():
    arm = next(iter(ARMS))
    runs = [run(arm, 32, wal, image) for wal, image in ((900, 500), (700, 600), (800, 100))]
    (point,) = series([*runs])
    assert (point["wal_bytes"], point["image_bytes"]) == (800, 100)
    assert (point["wal_bytes_min"], point["wal_bytes_max"], point["repeats"]) == (700, 900, 3)
    assert point["wal_bytes_per_transaction"] == 8.0


def test_points_come_by_arm_and_then_by_distance():
    arms = list(ARMS)
    runs = [run(arm, distance, 1, 0) for distance in (64, 32) for arm in reversed(arms)]
    assert [(p["arm"], p["max_wal_size_bytes"]) for p in series(runs)] == [(a, d) for a in arms for d in (32, 64)]


def test_more_distance_means_fewer_images_and_pushdown_none():
    with template(Load(scale=1, transactions=6000, clients=2, seed=1)) as cluster:
        near = cluster.run("full_page_writes", 32 * MIB)
        far = cluster.run("full_page_writes", 1024 * MIB)
        pushdown = cluster.run("pushdown", 32 * MIB)
    assert near.checkpoints > far.checkpoints == 0
    assert near.image_bytes > far.image_bytes > 0
    assert pushdown.image_bytes == 0
    # The same work: what is written beside the images hardly depends on them.
    assert pushdown.record_bytes == pytest.approx(far.record_bytes, rel=0.05)
    assert pushdown.wal_bytes < far.wal_bytes / 2
