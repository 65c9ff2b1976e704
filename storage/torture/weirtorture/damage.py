"""Bytes of committed WAL that a safekeeper's disk changes under the running process, and their repair from peers.

Only what the control file has stored as committed is changed: a start takes damage behind that for a write that never
ended, which is what a disk that keeps its promises would have left there.
"""

from __future__ import annotations

import time
from typing import Any

import httpx
from harness import lsn, wait_for
from stored_wal import flip, segment

from .checks import stored_commits
from .cluster import Cluster

# Less than this of committed WAL is not worth damaging, bytes.
ENOUGH = 8 << 10
# After all faults have ended: until nothing of the log is damaged any more, seconds.
REPAIRED = 60.0


def plant(cluster: Cluster, number: int, shares: list[float]) -> None:
    """Flips one bit at each of the places, which are shares of what is committed; none where that is little."""
    engine, timeline = cluster.engine, cluster.timeline
    status = engine.safekeeper_status(number - 1, timeline)
    # What the pageserver has is no part of the log any more, also where its file is still there.
    oldest = max(lsn(status["oldest_lsn"]), lsn(status["remote_consistent_lsn"]))
    durable = stored_commits(cluster.root, engine.bin_dir, timeline.id)[number - 1]
    stored = lsn(durable or "0/0")
    if stored - oldest < ENOUGH:
        return
    for place in sorted({oldest + int((stored - oldest) * share) for share in shares}):
        if segment(engine, number - 1, timeline, place).exists():
            flip(engine, number - 1, timeline, place)


def evidence(cluster: Cluster, number: int) -> list[str]:
    """The segments that were replaced, as the repair kept them."""
    kept = cluster.disk(number) / cluster.timeline.tenant / cluster.timeline.id / "damaged"
    return sorted(path.name for path in kept.iterdir()) if kept.exists() else []


def found_in(cluster: Cluster, number: int) -> list[dict[str, Any]]:
    """What the safekeeper finds damaged when it looks at the whole log; it repairs that behind its answer."""
    url = cluster.engine.safekeeper_url(number - 1, cluster.timeline)
    return httpx.post(f"{url}/verify", timeout=30).raise_for_status().json()["damage"]


def wait_repaired(cluster: Cluster, number: int) -> None:
    """Asks for a look at the whole log, again and again while the safekeeper is away, until nothing is damaged."""

    def whole() -> bool:
        if not found_in(cluster, number):
            return True
        time.sleep(0.5)
        return not cluster.engine.safekeeper_status(number - 1, cluster.timeline)["damage"]

    wait_for(f"the damaged WAL of safekeeper {number} to be repaired", whole, REPAIRED)
