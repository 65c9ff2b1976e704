"""Recorded transaction latencies of computes that ran at the same time, as small files.

A trace is one session: per compute and per interval of `SECONDS`, a histogram of transaction latencies. Bounds are
those of the compute agents' latency histograms (20 us times powers of 1.25), each split in four, so that a
regression can be planted finer than what production sees and then be seen through production's own buckets.

In the .npz, per compute `i`: `codes_i` (uint8, the bucket), `counts_i` (uint16, how many in it), and `sizes_i`
(uint8, how many of these entries belong to each interval). `meta` is JSON in UTF-8 bytes: what ran, how, when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECONDS = 2
SPLIT = 4
CODES = 256
FIRST_BOUND_SECONDS = 0.000_02
RATIO = 1.25
FOLDER = Path(__file__).resolve().parent / "traces"


def fine_bounds() -> NDArray[np.float64]:
    """Upper bounds, in seconds, of the stored buckets; the last takes whatever is longer."""
    return FIRST_BOUND_SECONDS * RATIO ** (np.arange(CODES) / SPLIT)


def encode(latencies_seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """The stored bucket of each latency: the first whose upper bound is not below it."""
    return np.minimum(np.searchsorted(fine_bounds(), latencies_seconds, side="left"), CODES - 1)


@dataclass(frozen=True, eq=False)
class Trace:
    """`counts[compute, interval, bucket]` of stored buckets, all computes over the same intervals."""

    name: str
    meta: dict[str, Any]
    counts: NDArray[np.int64]

    @property
    def computes(self) -> int:
        return self.counts.shape[0]

    @property
    def intervals(self) -> int:
        return self.counts.shape[1]


def histograms(
    ended: NDArray[np.float64], latencies_seconds: NDArray[np.float64], intervals: int
) -> NDArray[np.int64]:
    """Counts by interval and stored bucket; `ended` is in seconds since the session began, others are left out."""
    which = np.floor(ended / SECONDS).astype(np.int64)
    inside = (which >= 0) & (which < intervals)
    flat = which[inside] * CODES + encode(latencies_seconds[inside])
    return np.bincount(flat, minlength=intervals * CODES).reshape(intervals, CODES)


def save(path: Path, meta: dict[str, Any], counts: NDArray[np.int64]) -> None:
    arrays: dict[str, NDArray[Any]] = {"meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)}
    for index, compute in enumerate(counts):
        interval, code = np.nonzero(compute)
        values = compute[interval, code]
        if values.size and values.max() > np.iinfo(np.uint16).max:
            raise ValueError(
                f"compute {index} has {values.max()} transactions in one bucket, more than a trace holds"
            )
        arrays[f"codes_{index}"] = code.astype(np.uint8)
        arrays[f"counts_{index}"] = values.astype(np.uint16)
        arrays[f"sizes_{index}"] = np.bincount(interval, minlength=compute.shape[0]).astype(np.uint8)
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]


def load(path: Path) -> Trace:
    with np.load(path) as stored:
        meta = json.loads(stored["meta"].tobytes().decode())
        computes = [
            _dense(stored[f"codes_{i}"], stored[f"counts_{i}"], stored[f"sizes_{i}"]) for i in _indices(stored)
        ]
    return Trace(path.stem, meta, np.stack(computes))


def load_all(folder: Path = FOLDER) -> list[Trace]:
    return [load(path) for path in sorted(folder.glob("*.npz"))]


def _indices(stored: Iterable[str]) -> list[int]:
    return sorted(int(name.removeprefix("sizes_")) for name in stored if name.startswith("sizes_"))


def _dense(codes: NDArray[Any], counts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.int64]:
    dense = np.zeros((sizes.size, CODES), dtype=np.int64)
    dense[np.repeat(np.arange(sizes.size), sizes), codes] = counts
    return dense
