"""Where the time of a start goes, for `/metrics` of the worker.

Stages follow each other; those that begin with `agent_` are parts of `agent`, as the compute's agent has measured
them.
"""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prometheus_client import Histogram

from weir.kit.clock import now

# Of a start that somebody asked for, in this order: until a worker has it; what the compute is to be; that the object
# store knows it; its files, user and process; its agent; that it runs.
STAGES = ("queue", "spec", "description", "process", "agent", "record")
# Of `agent`, by the names that the agent has for them. What they leave is the agent's own process, and its answer.
AGENT_STAGES = ("elect", "bundle", "layout", "spawn", "recover", "answer", "apply", "trial")
# From 0.5 ms to 30 s.
_BUCKETS = (0.0005, *(factor * 10**power for power in (-3, -2, -1, 0) for factor in (1, 2, 3, 5, 7)), 10, 30)
SECONDS = Histogram(
    "weir_compute_start_stage_seconds", "Time of one stage of a compute's start", ["stage"], buckets=_BUCKETS
)
for _stage in (*STAGES, *(f"agent_{name}" for name in AGENT_STAGES)):
    SECONDS.labels(_stage)


class Laps:
    """The first stage begins as this is made."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def end(self, stage: str) -> None:
        """The next stage begins."""
        at = time.monotonic()
        SECONDS.labels(stage).observe(at - self._since)
        self._since = at


def count_queue(asked: datetime | None) -> None:
    """A start that was asked for then has reached a worker. Between machines whose clocks differ it may seem to have
    done so before, which counts as no time."""
    if asked is not None:
        SECONDS.labels("queue").observe(max(0.0, (now() - asked).total_seconds()))


def count_agent(start: Mapping[str, Any] | None) -> None:
    """`start`: of the status of a compute that has started just now; None, and what an older agent does not say,
    count nothing."""
    for name in AGENT_STAGES:
        milliseconds = (start or {}).get(f"{name}_ms")
        if milliseconds is not None:
            SECONDS.labels(f"agent_{name}").observe(milliseconds / 1000)
