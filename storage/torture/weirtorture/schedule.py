"""Which faults a trial has, and when: drawn from its seed and nothing else.

The schedule is the same on every machine; what the programs are doing when a fault comes is not. A seed is therefore
the same storm again, not the same run again.

No schedule takes more disks for good than the log survives: `Fault.loses_a_disk` is true of at most one fault of a
trial, and the log always has three voters or more when it comes. Whatever is only away for a while comes without a
limit, all safekeepers at once included.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

# The seeds of `make test`, which have every kind of fault together, and how long their load lasts, seconds.
SHORT = (1, 13, 18, 23, 38, 54, 116, 154, 210, 244)
SHORT_SECONDS = 10.0
FOUNDERS = (1, 2, 3)
SPARES = (4, 5)

SAFEKEEPER_KINDS = (
    "safekeeper_killed",
    "safekeeper_restarted",
    "safekeeper_stopped",
    "safekeeper_disk_full",
    "safekeeper_disk_fails",
    "safekeeper_disk_stuck",
    "safekeeper_clock_moved",
    "node_partition",
)
DISK_KINDS = ("safekeeper_disk_lost", "safekeeper_disk_restored")
NETWORK_KINDS = (
    "partition",
    "one_way_partition",
    "pageserver_partition",
    "links_closed",
    "links_slow",
    "links_lossy",
    "links_cut",
)
CLOCK_KINDS = ("safekeeper_clock_moved", "pageserver_clock_moved", "compute_clock_moved")
# By how much a clock is wrong at most, hours.
CLOCK_HOURS = 48.0
# How long a fault lasts, seconds, and how often it is drawn beside the others.
KINDS: dict[str, tuple[float, float, float]] = {
    "safekeeper_killed": (0.2, 5, 2),
    "safekeeper_restarted": (0.2, 3, 1),
    "safekeeper_stopped": (0.5, 6, 1.5),
    "safekeeper_disk_full": (1, 6, 1),
    "safekeeper_disk_fails": (0.5, 5, 1),
    "safekeeper_disk_stuck": (0.5, 5, 1),
    "safekeeper_disk_lost": (0.2, 2, 1),
    "safekeeper_disk_restored": (0.2, 2, 1),
    "majority_killed": (0.5, 5, 1),
    "all_safekeepers_killed": (0.2, 4, 1),
    "partition": (1, 6, 1.5),
    "one_way_partition": (1, 6, 1.5),
    "node_partition": (1, 6, 1.5),
    "pageserver_partition": (1, 6, 1),
    "links_closed": (0.5, 4, 1),
    "links_slow": (2, 6, 1),
    "links_lossy": (2, 6, 1),
    "links_cut": (2, 6, 1),
    "pageserver_killed": (0.2, 4, 1),
    "pageserver_stopped": (0.5, 5, 1),
    "pageserver_disk_lost": (0.2, 3, 1),
    "compute_killed": (0.1, 2, 1.5),
    "compute_stopped": (0.5, 5, 1),
    "backend_killed": (0.1, 0.2, 1),
    "takeover": (0.5, 4, 1),
    "isolated_takeover": (1, 5, 1),
    "members_five_and_back": (3, 6, 1),
    "safekeeper_clock_moved": (1, 8, 1),
    "pageserver_clock_moved": (1, 8, 1),
    "compute_clock_moved": (1, 8, 1),
}
# Member changes and takeovers take their time; a trial begins them early.
EARLY = ("members_five_and_back", "safekeeper_disk_lost", "safekeeper_disk_restored", "takeover", "isolated_takeover")


@dataclass(frozen=True)
class Fault:
    kind: str
    # Seconds after the load began, and how long it lasts.
    at: float
    seconds: float
    # The safekeepers it is about, by their numbers; none for a fault of something else.
    safekeepers: tuple[int, ...] = ()
    # What else was drawn: how slow, how lossy, how the old compute ends.
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def loses_a_disk(self) -> bool:
        return self.kind in DISK_KINDS

    def words(self) -> str:
        where = f" of {', '.join(map(str, self.safekeepers))}" if self.safekeepers else ""
        more = "".join(f" {name}={value}" for name, value in self.details.items())
        return f"{self.at:5.1f} s {self.kind}{where} for {self.seconds:.1f} s{more}"


@dataclass(frozen=True)
class Schedule:
    seed: int
    seconds: float
    full_page_writes: bool
    faults: tuple[Fault, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def draw(seed: int, seconds: float, *, mounting: bool = True, only: tuple[str, ...] = ()) -> Schedule:
    """The schedule of a seed. Without `mounting` no disk is full; with `only`, faults are of these kinds."""
    chance = random.Random(f"torture {seed}")  # noqa: S311 - not for secrets
    full_page_writes = chance.random() < 0.5
    kinds = list(only or KINDS)
    if not mounting:
        kinds = [kind for kind in kinds if kind != "safekeeper_disk_full"]
    wanted = chance.randint(5, 8)
    faults: list[Fault] = []
    while len(faults) < wanted and kinds:
        (kind,) = chance.choices(kinds, [KINDS[kind][2] for kind in kinds])
        kinds.remove(kind)
        if kind in DISK_KINDS:
            kinds = [other for other in kinds if other not in DISK_KINDS]
        faults.append(_fault(chance, kind, seconds))
    return Schedule(seed, seconds, full_page_writes, tuple(sorted(faults, key=lambda fault: fault.at)))


def _fault(chance: random.Random, kind: str, seconds: float) -> Fault:
    shortest, longest, _ = KINDS[kind]
    last = seconds * (0.4 if kind in EARLY else 0.9)
    at = round(chance.uniform(1.0, last), 2)
    lasts = round(chance.uniform(shortest, longest), 2)
    if kind in SAFEKEEPER_KINDS or kind in DISK_KINDS:
        return Fault(kind, at, lasts, (chance.choice(FOUNDERS),), _details(chance, kind, at))
    if kind == "majority_killed":
        return Fault(kind, at, lasts, tuple(sorted(chance.sample(FOUNDERS, 2))))
    if kind == "all_safekeepers_killed":
        return Fault(kind, at, lasts, FOUNDERS)
    if kind in NETWORK_KINDS:
        count = chance.choice((1, 1, 2, 3))
        safekeepers = tuple(sorted(chance.sample(FOUNDERS, count)))
        return Fault(kind, at, lasts, safekeepers, _network_details(chance, kind))
    if kind == "takeover":
        return Fault(kind, at, lasts, (), {"old_is": chance.choice(("left", "killed_after"))})
    if kind == "isolated_takeover":
        # Not drawn: what comes later in the seed's schedule stays as it is.
        return Fault(kind, at, lasts, (), {"old_is": ("cut_off", "stopped")[round(at * 100) % 2]})
    return Fault(kind, at, lasts, (), _details(chance, kind, at))


def _details(chance: random.Random, kind: str, at: float) -> dict[str, Any]:
    if kind == "safekeeper_disk_restored":
        # How old the copy is that is put back, seconds.
        return {"copy_age": round(chance.uniform(0.3, at - 0.5), 2)}
    if kind == "node_partition":
        # What goes to the safekeeper, what comes back from it, or both.
        return {"lost": chance.choice(("there", "back", "both"))}
    if kind in CLOCK_KINDS:
        return {"hours": round(chance.uniform(0.05, CLOCK_HOURS) * chance.choice((-1, 1)), 2)}
    return {}


def _network_details(chance: random.Random, kind: str) -> dict[str, Any]:
    if kind == "one_way_partition":
        return {"lost": chance.choice(("there", "back"))}
    if kind == "links_slow":
        return {"delay_ms": chance.randint(20, 150), "jitter_ms": chance.randint(0, 100)}
    if kind == "links_lossy":
        return {"loss": round(chance.uniform(0.01, 0.15), 3)}
    if kind == "links_cut":
        return {"cuts_per_second": round(chance.uniform(0.1, 1.0), 2)}
    return {}
