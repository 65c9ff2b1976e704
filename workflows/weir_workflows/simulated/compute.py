"""One simulated compute over time: its WAL, its transactions, its latencies, its switch.

Pure: every method takes the time (seconds since the epoch) and nothing sleeps. The model:

- Transactions come at the profile's rate times `load`, and write the rest of the WAL in proportion.
- Page images come in bursts: each checkpoint starts one that dies away with a time constant of a quarter of the
  checkpoint interval; over a whole interval they are the profile's image bytes per transaction. With
  full_page_writes off there are none from the moment of the switch; back on, they begin with the next checkpoint.
- Commit latency is log-normal around the profile's median. Chain length is exponential around a mean, cut at the
  timeline's image threshold; the mean moves to its new level within a minute of a switch. Read latency is
  log-normal around `base + per delta * mean chain length`.
- A `Plant` bends this: what a test wants to be found.

LSNs are byte positions that advance with the WAL.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Any

from weir.durability.levels import SETTING, Durability
from weir.postgres_versions import TESTED
from weir_workflows.simulated.profile import Profile, load

COMMIT_BOUNDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03)
READ_BOUNDS = (0.0001, 0.0002, 0.0003, 0.0005, 0.0008, 0.0015, 0.004)
CHAIN_BOUNDS = (2.0, 8.0, 16.0, 32.0, 128.0)
AUDIT_READS_PER_SECOND = 20.0
SWITCH_RECORD_BYTES = 40
CHAIN_SETTLES_SECONDS = 20.0
IMAGE_BURST_SHARE = 0.25
RESTART_AFTER_SECONDS = 2.0
POSTGRES_MAJOR = 15
_ROOT_2 = math.sqrt(2)


def server_directory(version: str) -> str:
    """What stands for the programs of a minor in a spec."""
    return f"/simulated/{version}/bin"


def version_in(directory: str) -> str:
    """The minor of a `server_directory`; the newest tested for any other directory."""
    parts = directory.split("/")
    return parts[2] if parts[1:2] == ["simulated"] and len(parts) > 2 else TESTED[POSTGRES_MAJOR][-1]


@dataclass(frozen=True)
class Plant:
    """A fault or a regression given to one compute. Ratios apply only while full_page_writes is off."""

    read_ratio: float = 1.0
    commit_ratio: float = 1.0
    images_stay: bool = False
    restart_after_switch: bool = False
    refuse_switch: bool = False
    silent: bool = False


NOTHING = Plant()


@dataclass(slots=True)
class Histogram:
    """Cumulative counts below each bound; the last entry is the count of all."""

    bounds: tuple[float, ...]
    counts: list[float] = field(default_factory=list[float])
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0.0] * (len(self.bounds) + 1)

    def add(self, events: float, shares: list[float], mean: float) -> None:
        for index, share in enumerate(shares):
            self.counts[index] += events * share
        self.counts[-1] += events
        self.total += events * mean


def log_normal_shares(bounds: tuple[float, ...], median: float, spread: float) -> list[float]:
    """The share of a log-normal distribution below each bound."""
    centre, width = math.log(median), spread * _ROOT_2
    return [0.5 * (1 + math.erf((math.log(bound) - centre) / width)) for bound in bounds]


def chain_shares(mean: float, longest: float) -> list[float]:
    """The share of an exponential distribution, cut at `longest`, below each bound."""
    whole = 1 - math.exp(-longest / mean)
    return [min(1.0, (1 - math.exp(-bound / mean)) / whole) for bound in CHAIN_BOUNDS]


def images_until(at: float, interval: float, phase: float) -> float:
    """Integral from the epoch of the image rate relative to its mean, in seconds: one `interval` a checkpoint."""
    cycles = at / interval + phase
    whole = math.floor(cycles)
    shape = 1 / IMAGE_BURST_SHARE
    return interval * (whole + (1 - math.exp(-(cycles - whole) * shape)) / (1 - math.exp(-shape)))


@dataclass(slots=True)
class Compute:
    compute_id: str
    tenant_id: str
    timeline_id: str
    profile: Profile
    port: int
    checkpoint_seconds: float
    full_page_writes: bool
    started_at: float
    at: float
    lsn: float
    start_lsn: int
    # Longest chain storage allows with images and without, from the tenant's configuration.
    thresholds: tuple[int, int] = (128, 16)
    postgres_version: str = TESTED[POSTGRES_MAJOR][-1]
    # What sessions would begin with.
    synchronous_commit: str = "on"
    settings: dict[str, Any] = field(default_factory=dict)
    term: int = 1
    restarts: int = 0
    plant: Plant = NOTHING
    switch_lsn: int | None = None
    switched_at: float | None = None
    # Before this no image is written although full_page_writes is on: they come with the next checkpoint.
    images_from: float = 0.0
    restarts_at: float | None = None
    chain: float = 0.0
    image_bytes: float = 0.0
    rest_bytes: float = 0.0
    transactions: float = 0.0
    commits: Histogram = field(default_factory=lambda: Histogram(COMMIT_BOUNDS))
    reads: Histogram = field(default_factory=lambda: Histogram(READ_BOUNDS))
    chains: Histogram = field(default_factory=lambda: Histogram(CHAIN_BOUNDS))
    noise: random.Random = field(default_factory=random.Random)
    # As every metric of it is labelled.
    labels: str = ""

    def __post_init__(self) -> None:
        self.chain = self.chain or self._chain_target()
        self.labels = f'compute_id="{self.compute_id}",tenant_id="{self.tenant_id}",timeline_id="{self.timeline_id}"'

    def advance(self, now: float) -> None:
        """Everything that happened since the last look."""
        if self.restarts_at is not None and now >= self.restarts_at:
            self.restarts_at = None
            self.restarts += 1
            self.term += 1
        span = now - self.at
        if span <= 0:
            return
        busy = load(self.profile.phase, now) * math.exp(self.noise.gauss(0, 0.05))
        transactions = self.profile.transactions_per_second * span * busy
        rest = transactions * self.profile.rest_bytes_per_transaction
        images = self._images(self.at, now) * busy
        self.transactions += transactions
        self.rest_bytes += rest
        self.image_bytes += images
        self.lsn += rest + images
        target = self._chain_target()
        self.chain = target + (self.chain - target) * math.exp(-span / CHAIN_SETTLES_SECONDS)
        self._observe(transactions, span)
        self.at = now

    def _images(self, start: float, end: float) -> float:
        if self.full_page_writes:
            start = max(start, min(end, self.images_from))
        elif not self.plant.images_stay:
            return 0.0
        interval, phase = self.checkpoint_seconds, self.profile.phase
        seconds = images_until(end, interval, phase) - images_until(start, interval, phase)
        return seconds * self.profile.transactions_per_second * self.profile.image_bytes_per_transaction

    def _chain_target(self) -> float:
        longest = self.thresholds[0 if self.full_page_writes else 1]
        return min(self.profile.chain_length, longest / 3)

    def _observe(self, transactions: float, span: float) -> None:
        ratios = NOTHING if self.full_page_writes else self.plant
        commit = self.profile.commit_seconds * ratios.commit_ratio * math.exp(self.noise.gauss(0, 0.04))
        # Less WAL is fsynced a little sooner.
        commit *= 1.0 if self.full_page_writes else 0.95
        self.commits.add(
            transactions, log_normal_shares(COMMIT_BOUNDS, commit, self.profile.commit_spread), commit * 1.1
        )
        read = self.profile.read_base_seconds + self.profile.read_seconds_per_delta * self.chain
        read *= ratios.read_ratio * math.exp(self.noise.gauss(0, 0.04))
        reads = AUDIT_READS_PER_SECOND * span
        self.reads.add(reads, log_normal_shares(READ_BOUNDS, read, self.profile.read_spread), read * 1.13)
        longest = self.thresholds[0 if self.full_page_writes else 1]
        self.chains.add(reads, chain_shares(self.chain, longest), self.chain)

    def switch(self, enabled: bool, now: float) -> int | None:
        """Makes full_page_writes what is asked; the end LSN of the record that made it so, None when it has been so
        since the start."""
        if enabled != self.full_page_writes:
            self.advance(now)
            self.full_page_writes = enabled
            self.switched_at = now
            self.lsn = math.ceil(self.lsn) + SWITCH_RECORD_BYTES
            self.switch_lsn = int(self.lsn)
            if enabled:
                cycles = math.floor(now / self.checkpoint_seconds + self.profile.phase) + 1
                self.images_from = (cycles - self.profile.phase) * self.checkpoint_seconds
            elif self.plant.restart_after_switch:
                self.restarts_at = now + RESTART_AFTER_SECONDS
        return self.switch_lsn

    def take(self, spec: dict[str, Any]) -> None:
        """What commits wait for, as the agent makes it of a spec, and its settings."""
        self.settings = dict(spec["settings"])
        level = Durability(spec.get("durability", Durability.FLUSH))
        self.synchronous_commit = str(spec["settings"].get(SETTING, level.synchronous_commit))

    def ingested(self, now: float) -> bool:
        """Whether storage has the switch record: it lags behind the commit."""
        return self.switched_at is None or now >= self.switched_at + self.profile.ingest_lag_seconds

    def ingest_lag_bytes(self, now: float) -> int:
        return 0 if self.ingested(now) else SWITCH_RECORD_BYTES
