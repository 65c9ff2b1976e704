"""The names in a PromQL expression, and the units that its result has."""

from __future__ import annotations

import re

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
_MATCHERS = re.compile(r"\{[^{}]*\}")
_WINDOW = re.compile(r"\[[^\]]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_WORD = re.compile(r"(?<![\w:.$])[A-Za-z_:][\w:]*(?!\s*\()(?![\w:])")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"})
_KEYWORDS_OF_JOINS = frozenset({"group_left", "group_right", "inf", "nan", "Inf", "NaN"})
# Of a name's end, the unit of the series itself, and of its rate.
_UNITS = (
    ("_milliseconds_total", None, None),
    ("_seconds_total", None, "percentunit"),
    ("_bytes_total", None, "Bps"),
    ("_total", None, "count/s"),
    ("_seconds_bucket", "s", None),
    ("_latency_bucket", "s", None),
    ("_seconds_count", None, "count/s"),
    ("_seconds_sum", None, None),
    ("_timestamp_seconds", "s", None),
    ("_seconds", "s", None),
    ("_bytes", "bytes", None),
    (":rate", None, None),
)
PER_SECOND = frozenset({"ops", "reqps", "cps"})


def names(expr: str) -> set[str]:
    """Names of metrics."""
    bare = _WINDOW.sub("", _MATCHERS.sub("", _TEXT.sub("", expr)))
    bare = _LABELS.sub(" ", bare)
    return {word for word in _WORD.findall(bare) if word not in _KEYWORDS and word not in _KEYWORDS_OF_JOINS}


def units(expr: str) -> set[str]:
    """Grafana's units that fit the expression by the ends of its metrics' names; the empty set where a name says no
    unit, and every unit is good. A share, and a count of series, have no unit of their own."""
    if re.match(r"\s*(topk\(\d+, )?count\b", expr) or " > bool " in expr:
        return {"none"}
    if re.search(r"\)\s*/\s*(sum|\()", expr):
        return {"percentunit"}
    found: set[str] = set()
    for name in names(expr):
        found |= _of_one(name, expr)
    return found


def _of_one(name: str, expr: str) -> set[str]:
    ending = "increase" if re.search(rf"increase\({name}\b", expr) else ""
    rated = re.search(rf"rate\({re.escape(name)}\b", expr) is not None
    if name.startswith("weir:"):
        return {
            "weir:wal_bytes:rate": {"Bps"},
            "weir:transactions:rate": set(PER_SECOND),
            "weir:commit_quorum_seconds_bucket:rate": {"s"},
            "weir:page_read_seconds_bucket:rate": {"s"},
        }.get(name, {"none"})
    if ending:
        return {"bytes"} if name.endswith("_bytes_total") else {"none"}
    if name.endswith("_milliseconds_total") and rated and "/ 1000" in expr:
        return {"percentunit"}
    for end, plain, per_second in _UNITS:
        if name.endswith(end):
            unit = per_second if rated and per_second else plain
            if unit is None:
                return {f"no unit for {name}"}
            return set(PER_SECOND) if unit == "count/s" else {unit}
    if rated and not name.endswith("_bucket"):
        # Temporal's counters have no end that says so.
        return set(PER_SECOND)
    return {"none"}
