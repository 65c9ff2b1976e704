"""A rollout's selector and strategy for people: in named lines instead of JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from weir.rollouts.intent import Selector, Span, Strategy, WaveSpec
from weir.rollouts.report import format as text

Line = tuple[str, str]


def selector(stored: dict[str, Any]) -> list[Line]:
    """One line for each field that was given; a single one when none was."""
    wanted = Selector.model_validate(stored)
    lists: list[tuple[str, Sequence[object] | None]] = [
        ("Organisations", wanted.org_ids),
        ("Projects", wanted.project_ids),
        ("Regions", wanted.region_ids),
        ("Cells", wanted.cells),
        ("Tags", [f"{name}={value}" for name, value in wanted.tags.items()] if wanted.tags else None),
        ("Postgres versions", wanted.pg_versions),
    ]
    lines = [(name, _some(values)) for name, values in lists if values]
    if wanted.size_bytes is not None:
        lines.append(("Size in storage", _span(wanted.size_bytes, "bytes")))
    if wanted.wal_bytes_per_second is not None:
        lines.append(("WAL then", _span(wanted.wal_bytes_per_second, "bytes/s")))
    return lines or [("Computes", "every one")]


def strategy(stored: dict[str, Any]) -> list[Line]:
    chosen = Strategy.model_validate(stored)
    lines = [
        *([("Postgres", chosen.target_version)] if chosen.target_version is not None else []),
        ("Waves", ", then ".join(_wave(index, wave, chosen) for index, wave in enumerate(chosen.waves))),
        ("Windows", _windows(chosen)),
        ("Judged by", _judged(chosen)),
        ("Hard bounds", "; ".join(_bounds(chosen))),
        ("Approval", _approval(chosen)),
        ("At once", _caps(chosen)),
        ("A wave stops", f"when more than {chosen.max_failed_percent:g} % of it regress or fail"),
        ("Held out", f"{chosen.holdout_percent:g} % of computes, the same in every rollout"),
        ("Suspended computes", "switch at their next start" if chosen.include_suspended else "left out"),
        ("Maintenance windows", "kept to" if chosen.respect_maintenance_windows else "not looked at"),
    ]  # fmt: skip
    return lines + [("Freeze", _freeze(window)) for window in stored.get("freeze_windows", [])]


def _some(values: Sequence[object], shown: int = 12) -> str:
    more = f" and {len(values) - shown} more" if len(values) > shown else ""
    return ", ".join(map(str, values[:shown])) + more


def _span(span: Span, unit: str) -> str:
    low = "" if span.min is None else f"from {span.min:,.0f} {unit}"
    high = "" if span.max is None else f"to {span.max:,.0f} {unit}"
    return f"{low} {high}".strip() or "any that is known"


def _wave(index: int, wave: WaveSpec, chosen: Strategy) -> str:
    amount = f"{wave.percent:g} %" if wave.percent is not None else f"{wave.count} computes"
    if wave.count == 1:
        amount = "1 compute"
    named = f"{wave.name} ({amount})" if wave.name and wave.name != amount else amount
    soak = chosen.soak_of(wave)
    last = index == len(chosen.waves) - 1
    return named if last or not soak else f"{named} and {soak} s of soak"


def _windows(chosen: Strategy) -> str:
    if not chosen.baseline_seconds and not chosen.bake_seconds:
        return "none: switched and confirmed, not measured"
    seconds = (
        f"baseline {chosen.baseline_seconds} s, {chosen.settle_seconds} s to settle, bake {chosen.bake_seconds} s"
    )
    return f"{seconds}; baseline and bake rounded up to whole checkpoint cycles"


def _judged(chosen: Strategy) -> str:
    if not chosen.bake_seconds:
        return "nobody: a compute passes once its switch is confirmed"
    if chosen.judge_by == "bounds":
        return "the hard bounds alone"
    ratio = (chosen.tolerated_ratio - 1) * 100
    return f"comparison with computes that were not switched; a pass rules out that a p99 got worse by {ratio:.0f} %"


def _bounds(chosen: Strategy) -> Iterable[str]:
    slack = text.duration(chosen.p99_slack_seconds)
    yield f"a p99 at most {chosen.max_p99_ratio:g} times its baseline, or {slack} above it"
    if chosen.target_version is not None:
        return
    yield f"page images at most {chosen.max_image_share * 100:g} % of WAL after the switch"
    if chosen.max_chain_length is not None:
        yield f"99 % of storage reads below {chosen.max_chain_length:g} deltas"


def _approval(chosen: Strategy) -> str:
    asked = [
        *(["the plan"] if chosen.plan_approval_required else []),
        *(["every wave after the first"] if chosen.approval_required else []),
    ]
    return f"asked for {' and '.join(asked)}" if asked else "only where a wave was held"


def _caps(chosen: Strategy) -> str:
    caps = [f"at most {chosen.max_concurrent} computes"]
    if chosen.max_concurrent_per_cell is not None:
        caps.append(f"{chosen.max_concurrent_per_cell} of a cell")
    if chosen.max_concurrent_per_org is not None:
        caps.append(f"{chosen.max_concurrent_per_org} of an organisation")
    return ", ".join(caps)


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _freeze(window: dict[str, Any]) -> str:
    why = f": {window['reason']}" if window.get("reason") else ""
    if "weekdays" in window:
        days = ", ".join(_DAYS[day - 1] for day in window["weekdays"])
        return f"{days} from {window['start_time']} to {window['end_time']} UTC{why}"
    return f"from {window['from']} to {window['to']}{why}"
