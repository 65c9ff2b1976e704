"""What one simulated compute is like: drawn once from the fleet's seed and the compute's id, and so the same on
every run. The spreads are those of a mixed fleet: most computes are quiet, a few write a hundred times as much.
"""

import math
import random
from dataclasses import dataclass

MEDIAN_TRANSACTIONS_PER_SECOND = 12.0
MEDIAN_REST_BYTES_PER_TRANSACTION = 1_500.0
# Images per byte of the rest: between one and fifteen times, as write rates and checkpoint distances differ.
MEDIAN_IMAGE_RATIO = 5.0
LEAST_IMAGE_RATIO, MOST_IMAGE_RATIO = 1.0, 15.0
MEDIAN_COMMIT_SECONDS = 0.0018
MEDIAN_READ_BASE_SECONDS = 0.00012
MEDIAN_READ_SECONDS_PER_DELTA = 0.000_005
MEDIAN_CHAIN_LENGTH = 22.0
MEDIAN_SWITCH_SECONDS = 0.03
MEDIAN_INGEST_LAG_SECONDS = 0.02
MEDIAN_SIZE_BYTES = 2e9


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates are per second, sizes in bytes, latencies in seconds, phases in [0, 1)."""

    transactions_per_second: float
    rest_bytes_per_transaction: float
    image_bytes_per_transaction: float
    commit_seconds: float
    commit_spread: float
    read_base_seconds: float
    read_seconds_per_delta: float
    read_spread: float
    chain_length: float
    switch_seconds: float
    ingest_lag_seconds: float
    size_bytes: int
    phase: float


def draw(seed: int, compute_id: str) -> Profile:
    chance = random.Random(f"{seed}/{compute_id}")  # noqa: S311  a model, no secret

    def around(median: float, spread: float) -> float:
        return median * math.exp(chance.gauss(0, spread))

    rest = around(MEDIAN_REST_BYTES_PER_TRANSACTION, 0.4)
    ratio = min(MOST_IMAGE_RATIO, max(LEAST_IMAGE_RATIO, around(MEDIAN_IMAGE_RATIO, 0.5)))
    return Profile(
        transactions_per_second=around(MEDIAN_TRANSACTIONS_PER_SECOND, 1.2),
        rest_bytes_per_transaction=rest,
        image_bytes_per_transaction=rest * ratio,
        commit_seconds=around(MEDIAN_COMMIT_SECONDS, 0.25),
        commit_spread=0.45,
        read_base_seconds=around(MEDIAN_READ_BASE_SECONDS, 0.2),
        read_seconds_per_delta=around(MEDIAN_READ_SECONDS_PER_DELTA, 0.2),
        read_spread=0.5,
        chain_length=around(MEDIAN_CHAIN_LENGTH, 0.35),
        switch_seconds=around(MEDIAN_SWITCH_SECONDS, 0.3),
        ingest_lag_seconds=around(MEDIAN_INGEST_LAG_SECONDS, 0.5),
        size_bytes=round(around(MEDIAN_SIZE_BYTES, 1.5)),
        phase=chance.random(),
    )


def load(phase: float, at: float) -> float:
    """How busy a compute is now, around 1: two slow waves of its own over one that the whole fleet shares, so that a
    comparison with computes that are not switched has something to correct."""
    return (
        1.0
        + 0.10 * math.sin(2 * math.pi * at / 600)
        + 0.10 * math.sin(2 * math.pi * (at / 97 + phase))
        + 0.05 * math.sin(2 * math.pi * (at / 41 + 2 * phase))
    )
