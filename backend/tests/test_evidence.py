"""Evidence is counts at a window's edges; figures of several computes come from their summed counts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from weir.clients.prometheus import Prometheus, Sample
from weir.rollouts.evidence.collect import EvidenceSubject, collect_evidence, collect_evidence_batch
from weir.rollouts.evidence.figures import figures, quantile, together

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
END = START + timedelta(seconds=60)
A = EvidenceSubject("ep-a", "t1", "b1")
B = EvidenceSubject("ep-b", "t2", "b2")
COMMIT = "weir_compute_commit_quorum_seconds_bucket"


class Recorded(Prometheus):
    """Answers what was scraped at each edge, to whatever is asked of the compute's or of storage's counters."""

    def __init__(self, start: list[Sample], end: list[Sample]) -> None:
        super().__init__("http://127.0.0.1:9", httpx.AsyncClient())
        self._edges = {START: start, END: end}

    async def instant(self, query: str, at: datetime | None = None) -> list[Sample]:
        assert at is not None
        of_storage = "weir_pageserver" in query
        if query.startswith("max_over_time"):
            name = query.removeprefix("max_over_time(").split("{")[0]
            return [(labels, value) for labels, value in self._edges[at] if labels["__name__"] == name]
        return [
            (labels, value)
            for labels, value in self._edges[at]
            if labels["__name__"].startswith("weir_pageserver") == of_storage
        ]


def wal(compute: str, part: str, rmgr: str, value: float) -> Sample:
    return {"__name__": "weir_compute_wal_bytes_total", "compute_id": compute, "part": part, "rmgr": rmgr}, value


def commits(compute: str, value: float) -> Sample:
    return {"__name__": "weir_compute_transactions_total", "compute_id": compute, "result": "commit"}, value


def bucket(compute: str, le: str, value: float) -> Sample:
    return {"__name__": COMMIT, "compute_id": compute, "le": le}, value


def paced(compute: str, value: float) -> Sample:
    return {"__name__": "weir_compute_wal_paced_seconds_total", "compute_id": compute}, value


def stored(metric: str, value: float) -> Sample:
    return {
        "__name__": f"weir_pageserver_{metric}",
        "tenant_id": "t1",
        "timeline_id": "b1",
        "reason": "pushdown",
    }, value


async def test_a_window_is_the_growth_between_its_edges_and_a_new_series_began_at_zero():
    prometheus = Recorded(
        [
            wal("ep-a", "image", "Heap", 1000),
            wal("ep-a", "rest", "Heap", 100),
            commits("ep-a", 5),
            stored("images_made_total", 7),
        ],
        [
            wal("ep-a", "image", "Heap", 7000),
            wal("ep-a", "rest", "Heap", 700),
            wal("ep-a", "rest", "Btree", 60),
            commits("ep-a", 35),
            stored("images_made_total", 127),
            stored("images_pending", 3),
        ],
    )
    window = await collect_evidence(prometheus, A, START, END)
    assert window["wal"] == {"Heap": {"image": 6000, "rest": 600}, "Btree": {"image": 0, "rest": 60}}
    found = figures(window)
    assert found.wal_image_bytes_per_second == 100
    assert found.wal_rest_bytes_per_second == 11
    assert found.wal_bytes_per_transaction == pytest.approx(6660 / 30)
    assert found.storage_images_per_second == 2
    assert found.storage_images_pending == 3
    assert [(row.rmgr, row.rest_bytes_per_transaction) for row in found.by_rmgr] == [("Heap", 20), ("Btree", 2)]
    assert found.checkpoints is None, "not scraped is not the same as none"
    assert json.loads(json.dumps(window)) == window, "what is kept is JSON"


async def test_a_counter_that_began_again_counts_from_there():
    prometheus = Recorded(
        [wal("ep-a", "rest", "Heap", 5000), commits("ep-a", 100)],
        [wal("ep-a", "rest", "Heap", 600), commits("ep-a", 6)],
    )
    found = figures(await collect_evidence(prometheus, A, START, END))
    assert (found.wal_rest_bytes_per_second, found.transactions_per_second) == (10, 0.1)


async def test_a_compute_not_watched_at_the_first_edge_has_no_figures_rather_than_all_it_ever_did():
    prometheus = Recorded([commits("ep-a", 1)], [commits("ep-a", 61), commits("ep-b", 9000)])
    windows = await collect_evidence_batch(prometheus, [A, B], START, END)
    assert figures(windows["ep-a"]).transactions_per_second == 1
    found = figures(windows["ep-b"])
    assert found.transactions_per_second is None
    assert found.wal_bytes_per_second is None
    assert found.commit_p99_seconds is None


async def test_the_time_that_wal_waited_at_its_limit_is_a_share_and_the_mean_of_several():
    start = [paced("ep-a", 2), commits("ep-a", 1), paced("ep-b", 0), commits("ep-b", 1)]
    windows = await collect_evidence_batch(Recorded(start, [*start[1:], paced("ep-a", 47)]), [A, B], START, END)
    assert windows["ep-a"]["wal_paced_seconds"] == 45
    assert figures(windows["ep-a"]).wal_paced_share == 0.75
    assert together(windows.values()).wal_paced_share == 0.375
    # Windows that were kept before it was counted say nothing of it.
    old = {name: value for name, value in windows["ep-b"].items() if name != "wal_paced_seconds"}
    assert figures(old).wal_paced_share is None
    assert together([windows["ep-a"], old]).wal_paced_share == 0.75


async def test_percentiles_of_several_are_those_of_their_summed_histograms():
    zero = [bucket(ep, le, 0) for ep in ("ep-a", "ep-b") for le in ("0.001", "0.002", "+Inf")]
    prometheus = Recorded(
        zero,
        [
            bucket("ep-a", "0.001", 990), bucket("ep-a", "0.002", 1000), bucket("ep-a", "+Inf", 1000),
            bucket("ep-b", "0.001", 0), bucket("ep-b", "0.002", 10), bucket("ep-b", "+Inf", 10),
        ],
    )  # fmt: skip
    windows = await collect_evidence_batch(prometheus, [A, B], START, END)
    one, other = figures(windows["ep-a"]), figures(windows["ep-b"])
    both = together(windows.values())
    assert one.commit_p50_seconds == pytest.approx(0.5 * 1000 / 990 / 1000)
    assert other.commit_p50_seconds == pytest.approx(0.0015)
    # 505 of 1010 are reached within the first bucket's 990: far from the mean of both medians.
    assert both.commit_p50_seconds == pytest.approx(0.001 * 505 / 990)
    assert both.seconds == 60


def test_a_quantile_in_the_open_bucket_is_its_lower_end_and_of_nothing_is_none():
    assert quantile({(0.0, 1.0): 1, (1.0, None): 99}, 0.5) == 1.0
    assert quantile({}, 0.5) is None


async def test_a_branch_that_needed_no_image_made_none_rather_than_being_unknown():
    watched = [stored("images_pending", 0)]
    found = figures(await collect_evidence(Recorded(watched, watched), A, START, END))
    assert (found.storage_images_per_second, found.storage_image_bytes_per_second) == (0, 0)
    unknown = figures(await collect_evidence(Recorded([], []), A, START, END))
    assert unknown.storage_images_per_second is None


async def test_a_window_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match="must end after"):
        await collect_evidence(Recorded([], []), A, END, START)


def test_nothing_together_is_nothing_measured():
    empty: list[dict[str, Any]] = []
    assert together(empty).model_dump(exclude_none=True) == {"by_rmgr": []}
