"""What a trial changes, and whom it kills meanwhile: drawn from its seed and nothing else."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

# Installations of trials have one safekeeper more than a log has members.
SAFEKEEPERS = 4

# How often a victim is drawn beside the others. `compute` is the agent with its Postgres.
VICTIMS: dict[str, float] = {
    "api": 3,
    "worker": 4,
    "temporal": 1,
    "postgres": 1,
    "pageserver": 1,
    "safekeeper-1": 0.5,
    "safekeeper-2": 0.5,
    "safekeeper-3": 0.5,
    "safekeeper-4": 0.5,
    "compute": 1,
}
CHANGES: dict[str, float] = {
    # One member of the log gives way to the spare, while clients write.
    "replace_safekeeper": 3,
    # The same for a branch without a compute, which then starts on the new members.
    "replace_safekeeper_suspended": 1,
    "restart": 1,
    "suspend_and_start": 2,
    # Asked for twice at the same time; the branch is looked into, and deleted.
    "branch": 2,
}
# After a change was asked for, seconds.
LATEST_KILL = 4.0


@dataclass(frozen=True)
class Kill:
    victim: str
    # Seconds after the change was asked for. The API may die with the request in its hands.
    after: float


@dataclass(frozen=True)
class Change:
    kind: str
    kills: tuple[Kill, ...]

    def words(self) -> str:
        return f"{self.kind} ({', '.join(f'{kill.victim} at {kill.after:.2f} s' for kill in self.kills)})"


@dataclass(frozen=True)
class Schedule:
    seed: int
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _moment(chance: random.Random) -> float:
    """Rather early than late: most of a change happens within a second."""
    return round(chance.uniform(0, 1) ** 2 * LATEST_KILL, 2)


def draw(seed: int, count: int = 3) -> Schedule:
    """`count` changes of different kinds, one after the other. API and worker each die during one at least."""
    chance = random.Random(f"storm {seed}")  # noqa: S311 - not for secrets
    kinds: list[str] = []
    while len(kinds) < count:
        (kind,) = chance.choices(list(CHANGES), list(CHANGES.values()))
        if kind not in kinds:
            kinds.append(kind)
    forced = ["api", "worker"]
    chance.shuffle(forced)
    changes: list[Change] = []
    for kind in kinds:
        victims = {forced.pop()} if forced else set[str]()
        wanted = chance.choice((1, 2, 2, 3))
        while len(victims) < wanted:
            victims.update(chance.choices(list(VICTIMS), list(VICTIMS.values())))
        kills = [Kill(victim, _moment(chance)) for victim in sorted(victims)]
        changes.append(Change(kind, tuple(sorted(kills, key=lambda kill: kill.after))))
    return Schedule(seed, tuple(changes))
