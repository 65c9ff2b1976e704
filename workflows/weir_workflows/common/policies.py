"""Timeouts and retry policies, by how long a step may take and who waits for it."""

from datetime import timedelta
from typing import TypedDict

from temporalio.common import RetryPolicy


class ActivityOptions(TypedDict, total=False):
    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy


_FAST = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5))

# Reports into the metadata database: without them nobody learns the outcome, so they are repeated for ever.
RECORD = ActivityOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_FAST)

# A call or a few to storage, which may be restarting: minutes of patience.
STORAGE = ActivityOptions(
    start_to_close_timeout=timedelta(seconds=120),
    schedule_to_close_timeout=timedelta(minutes=5),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=_FAST,
)

# Copying what a branch reads of its ancestors: it takes as long as there are bytes, and what fails is repeated for
# half an hour.
COPY = ActivityOptions(
    start_to_close_timeout=timedelta(hours=12),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30), maximum_attempts=70
    ),
)

# One change of a log's members. A learner takes as long to catch up as there is WAL, and what waits for its turn has
# his branch has not failed; what fails is repeated for some ten minutes.
MEMBERS = ActivityOptions(
    start_to_close_timeout=timedelta(minutes=30),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=15), maximum_attempts=40
    ),
)

# Starting or stopping a process.
COMPUTE = ActivityOptions(
    start_to_close_timeout=timedelta(seconds=150),
    schedule_to_close_timeout=timedelta(minutes=6),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10), maximum_attempts=5
    ),
)

# Undoing: long patience, but not endless; what is left over is named in the operation's error.
UNDO = ActivityOptions(
    start_to_close_timeout=timedelta(seconds=120),
    schedule_to_close_timeout=timedelta(minutes=15),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=_FAST,
)

# A step of a rollout on many computes at once: each of them has its own patience inside. What is limited is how often
# it fails, for about an hour, and not how long it takes: while no worker or no Temporal runs, nothing fails.
BATCH = ActivityOptions(
    start_to_close_timeout=timedelta(minutes=20),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30), maximum_attempts=130
    ),
)

# The verdict over a wave. When it cannot be had, for some minutes, the wave is held and a person decides.
JUDGE = ActivityOptions(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10), maximum_attempts=30
    ),
)

# Taking computes back: for as long as it takes. Nobody may be left switched because a machine was off for an hour.
BACK = ActivityOptions(
    start_to_close_timeout=timedelta(minutes=20), heartbeat_timeout=timedelta(seconds=20), retry_policy=_FAST
)


def long_batch(seconds: float) -> ActivityOptions:
    """A step that watches computes for so long. Repeated for as long as it takes: what it has seen is stored."""
    return ActivityOptions(
        start_to_close_timeout=timedelta(seconds=seconds) + timedelta(minutes=20),
        heartbeat_timeout=timedelta(seconds=20),
        retry_policy=_FAST,
    )


# One round of the reconciler: never repeated, the next round is the repetition.
ROUND = ActivityOptions(
    start_to_close_timeout=timedelta(seconds=60),
    heartbeat_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(maximum_attempts=1),
)
