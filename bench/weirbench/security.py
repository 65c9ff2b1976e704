"""What protection costs, the part without a Weir: which settings the two arms have, and what their figures say."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .spread import spread
from .write.workloads import Run

ON, OFF = "on", "off"
# What is promised: the share of transactions a second that protection may take, and milliseconds of a start.
MOST_SHARE, MOST_START_MS = 0.05, 50.0
# By section and name in weir.toml, what is switched off in the arm without protection, and the variable that would
# override both arms at once.
SWITCHES: Mapping[tuple[str, str], tuple[bool | str, str]] = {
    ("security", "tls"): (False, "WEIR_TLS"),
    ("computes", "users"): ("", "WEIR_COMPUTE_USERS"),
    ("computes", "cgroup"): ("", "WEIR_COMPUTE_CGROUP"),
    ("services", "users"): ("", "WEIR_SERVICES_USERS"),
}
# What both arms have, and why.
IN_BOTH = {
    "tokens": "no setting takes them away",
    "system calls, namespaces, own port, rights of root": "no setting takes them away; `in_force` of each arm says "
    "what the kernel does of them",
    "TLS at the proxy": "clients' connections are not those between parts",
    "encryption at rest": "off in both: `bench/pageserver.py --only encryption` measures it",
}
_CONTROLLERS = ("memory", "cpu", "pids", "blkio", "io")


def with_settings(text: str, changes: Mapping[tuple[str, str], bool | int | str]) -> str:
    """The text of a weir.toml with these settings changed, by section and name. Raises ValueError for one that the
    text does not have: a measurement of a switch that is none would compare a thing with itself."""
    left, section, lines = dict(changes), "", list[str]()
    for line in text.splitlines():
        if found := re.fullmatch(r"\[([a-z_.]+)\]", line.strip()):
            section = found[1]
        name = line.partition("=")[0].strip()
        if (section, name) in left and "=" in line:
            line = f"{name} = {_toml(left.pop((section, name)))}"  # noqa: PLW2901
        lines.append(line)
    if left:
        raise ValueError("weir.toml has no setting " + ", ".join(f"[{of}] {name}" for of, name in sorted(left)))
    return "\n".join(lines) + "\n"


def _toml(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def group_parents(own: str, root: Path) -> list[Path]:
    """Where this process may make a control group without leaving limits that somebody has put it under: the
    hierarchies in whose root it is itself. `own`: the text of /proc/self/cgroup; `root`: where hierarchies are
    mounted."""
    found: list[Path] = []
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        known = [name for name in names.split(",") if path == "/" and (name in _CONTROLLERS or not name)]
        found.extend(root / name if name else root for name in known)
    return found


def arms_in(number: int) -> tuple[str, str]:
    """The arms of a round in order: who is first in one round is second in the next."""
    return (ON, OFF) if number % 2 else (OFF, ON)


@dataclass(frozen=True)
class Start:
    """Milliseconds from a client's call, at a suspended database, until its first row."""

    arm: str
    round: int
    milliseconds: float


def compared(runs: Sequence[Run]) -> dict[str, Any]:
    """By workload and clients: both arms' figures over the rounds, and ratios round by round, on over off: of
    transactions a second (`rate`), of commits' p50 and p99. Runs are in the order of their rounds."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(f"{run.workload}/{run.clients}" for run in runs):
        own = {arm: [r for r in runs if f"{r.workload}/{r.clients}" == name and r.arm == arm] for arm in (ON, OFF)}
        pairs = list(zip(own[ON], own[OFF], strict=True))
        found[name] = {
            "rounds": len(pairs),
            "arms": {
                arm: {
                    "per_second": spread([run.per_second for run in of], 1),
                    "p50_ms": spread([run.p50_ms or 0 for run in of], 3),
                    "p99_ms": spread([run.p99_ms or 0 for run in of], 3),
                    "cpu_us_per_transaction": round(
                        statistics.median(sum(run.cpu_us_per_transaction.values()) for run in of), 1
                    ),
                }
                for arm, of in own.items()
            },
            "ratios": {
                "rate": spread([on.per_second / off.per_second for on, off in pairs], 4),
                "p50": spread([(on.p50_ms or 0) / (off.p50_ms or 1) for on, off in pairs], 4),
                "p99": spread([(on.p99_ms or 0) / (off.p99_ms or 1) for on, off in pairs], 4),
            },
        }
    return found


def started(starts: Sequence[Start]) -> dict[str, Any]:
    """Both arms' starts, and what protection adds: the difference of each round's medians."""
    rounds = sorted({start.round for start in starts})
    by_round = {
        arm: [statistics.median(s.milliseconds for s in starts if (s.arm, s.round) == (arm, n)) for n in rounds]
        for arm in (ON, OFF)
    }
    return {
        "arms": {arm: spread([s.milliseconds for s in starts if s.arm == arm], 1) for arm in (ON, OFF)},
        "added_ms": spread([on - off for on, off in zip(by_round[ON], by_round[OFF], strict=True)], 1),
    }


def verdict(workloads: Mapping[str, Any], starts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Whether each promise was kept, by medians over the rounds; `starts` None: they were not measured."""
    costs = {name: _taken(of) for name, of in workloads.items()}
    kept = {name: cost <= MOST_SHARE for name, cost in costs.items()}
    found: dict[str, Any] = {"most_share": MOST_SHARE, "share_taken": costs, "writes_kept": all(kept.values())}
    if starts is not None:
        added = starts["added_ms"]["median"]
        found |= {"most_start_ms": MOST_START_MS, "start_added_ms": added, "start_kept": added <= MOST_START_MS}
    found["kept"] = found["writes_kept"] and found.get("start_kept", True)
    return found


def _taken(workload: Mapping[str, Any]) -> float:
    """The share of transactions a second that protection takes; below 0 where it was faster."""
    return round(1 - workload["ratios"]["rate"]["median"], 4)


def lines(workloads: Mapping[str, Any], starts: Mapping[str, Any] | None) -> list[list[str]]:
    """Rows of a table for a person: what, off, on, on over off with least and most, and whether it is as promised."""
    rows: list[list[str]] = []
    for name, of in workloads.items():
        rate, arms = of["ratios"]["rate"], of["arms"]
        rows.append(
            [
                f"{name}, transactions/s",
                *(f"{arms[arm]['per_second']['median']:,.0f}" for arm in (OFF, ON)),
                f"x{rate['median']:.3f} ({rate['min']:.3f} to {rate['max']:.3f})",
                _said(_taken(of) <= MOST_SHARE),
            ]
        )
        for figure in ("p50", "p99"):
            ratio = of["ratios"][figure]
            medians = [f"{arms[arm][f'{figure}_ms']['median']:.2f}" for arm in (OFF, ON)]
            spans = f"x{ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})"
            rows.append([f"{name}, commit {figure}, ms", *medians, spans, ""])
    if starts is not None:
        added = starts["added_ms"]
        medians = [f"{starts['arms'][arm]['median']:.0f}" for arm in (OFF, ON)]
        spans = f"{added['median']:+.0f} ms ({added['min']:+.0f} to {added['max']:+.0f})"
        rows.append(["start to the first row, ms", *medians, spans, _said(added["median"] <= MOST_START_MS)])
    return rows


def _said(kept: bool) -> str:
    return "kept" if kept else "NOT kept"
