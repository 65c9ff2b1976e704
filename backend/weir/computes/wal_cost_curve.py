"""What-if by the measured curve of WAL volume against checkpoint distance. Pure.

The curve was measured elsewhere (`make bench-wal-distance`, kept beside this module with how it was done). It is
placed beside a compute by what it and the compute have in common: the share of page images in the WAL, which says how
often a page changes between two checkpoints. From that place, as many times the distance lead along the curve, and
what the curve saves there of the images, the compute is taken to save of its own. What is left without images needs
no curve: it is what the compute writes beside them now.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("wal_distance.json")
PLAIN, COMPRESSED, PUSHDOWN = "full_page_writes", "full_page_writes_lz4", "pushdown"
FACTORS = (1, 2, 4, 8, 16)
# Less than this and there is nothing to save, nor a place on the curve.
LEAST_IMAGE_SHARE = 0.005
# A run with fewer checkpoints says more about where it ended than about its distance.
LEAST_CHECKPOINTS = 2


@dataclass(frozen=True)
class Point:
    """What one transaction wrote at one distance, in bytes."""

    distance: int
    image_bytes: float
    rest_bytes: float
    checkpoints: int

    @property
    def image_share(self) -> float:
        return self.image_bytes / (self.image_bytes + self.rest_bytes)


@dataclass(frozen=True)
class Place:
    """Where on an arm of the curve a compute stands. `clamped`: its share lies beyond the curve's first point."""

    arm: str
    distance: float
    image_share: float
    clamped: bool


@dataclass(frozen=True)
class Estimate:
    """Bytes/s at `factor` times today's distance; None where the curve was not measured."""

    factor: int
    full_page_writes: float | None
    full_page_writes_lz4: float | None
    pushdown: float


class Curve:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._arms: dict[str, list[Point]] = {}
        for row in document["series"]:
            transactions = row["transactions"]
            point = Point(
                row["max_wal_size_bytes"],
                row["image_bytes"] / transactions,
                (row["wal_bytes"] - row["image_bytes"]) / transactions,
                row["checkpoints"],
            )
            self._arms.setdefault(row["arm"], []).append(point)
        for points in self._arms.values():
            points.sort(key=lambda point: point.distance)

    def place(self, arm: str, image_share: float) -> Place | None:
        """None when the share is smaller than distance alone made it in the measurement."""
        points = self._telling(arm)
        if image_share >= points[0].image_share:
            return Place(arm, points[0].distance, image_share, clamped=image_share > points[0].image_share)
        for left, right in pairwise(points):
            if left.image_share >= image_share > right.image_share:
                part = (left.image_share - image_share) / (left.image_share - right.image_share)
                return Place(arm, _between(left.distance, right.distance, part), image_share, clamped=False)
        return None

    def images(self, arm: str, distance: float) -> float | None:
        """Bytes of images a transaction at a distance; between two points, linear in the distance's logarithm."""
        points = self._telling(arm)
        if points[0].distance == distance:
            return points[0].image_bytes
        for left, right in pairwise(points):
            if left.distance < distance <= right.distance:
                part = math.log(distance / left.distance) / math.log(right.distance / left.distance)
                return left.image_bytes + part * (right.image_bytes - left.image_bytes)
        return None

    def estimates(self, place: Place, image_rate: float, rest_rate: float) -> list[Estimate]:
        """What a compute that writes so many bytes/s of images and of the rest would write at other distances."""
        here = self.images(place.arm, place.distance)
        if here is None:
            raise ValueError(f"{place} is not on the curve")

        def rate(arm: str, factor: int) -> float | None:
            there = self.images(arm, place.distance * factor)
            return None if there is None else rest_rate + image_rate * there / here

        return [Estimate(factor, rate(PLAIN, factor), rate(COMPRESSED, factor), rest_rate) for factor in FACTORS]

    def _telling(self, arm: str) -> list[Point]:
        """The arm's points whose runs had checkpoints enough. Compressed images reach a distance later than plain
        ones do, so the plain arm's distances are those of both."""
        enough = {point.distance for point in self._arms[PLAIN] if point.checkpoints >= LEAST_CHECKPOINTS}
        return [point for point in self._arms[arm] if point.distance in enough]


def _between(low: float, high: float, part: float) -> float:
    return low * (high / low) ** part


@cache
def curve() -> Curve:
    """The curve this version of Weir was shipped with."""
    return Curve(json.loads(DATA.read_text()))
