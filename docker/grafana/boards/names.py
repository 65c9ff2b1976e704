"""Which metrics there are: those of our programs as their sources register them, those that rules record, and those
of Temporal from a list of what its server says."""

from __future__ import annotations

import json
import re
from pathlib import Path

GRAFANA = Path(__file__).resolve().parents[1]
REPO = GRAFANA.parents[1]
# Made by Prometheus itself.
OF_PROMETHEUS = frozenset({"up", "ALERTS"})
_NAME = re.compile(r'"(weir_[a-z0-9_]+)"')
# Words before a name in Rust that say what kind of metric it is.
_KIND = re.compile(r"\b(?:register_)?(?:int_)?(histogram|counter|gauge)s?(?:_vec)?!?\s*\(\s*$|\b(histogram)s?\(\s*$")
_PYTHON = re.compile(r'\b(Counter|Gauge|Histogram)\(\s*"(weir_\w+)"')
_PARTS = ("_bucket", "_sum", "_count")


def of_programs(repo: Path = REPO) -> dict[str, str]:
    """`counter`, `gauge` or `histogram` by name."""
    found: dict[str, str] = {}
    for path in sorted((repo / "storage" / "crates").glob("*/src/**/*.rs")):
        text = path.read_text()
        for match in _NAME.finditer(text):
            kind = _KIND.search(text[: match.start()][-80:])
            if kind:
                found[match[1]] = kind[1] or kind[2]
    for folder in ("backend/weir", "workflows/weir_workflows"):
        for path in sorted((repo / folder).rglob("*.py")):
            for match in _PYTHON.finditer(path.read_text()):
                found[match[2]] = match[1].lower()
    return found


def recorded() -> set[str]:
    groups = json.loads((REPO / "docker" / "prometheus" / "rules.yml").read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"]}


def of_temporal() -> dict[str, str]:
    """Kinds by name, from what a server of the version of docker/tools.Dockerfile answered (`# TYPE` lines)."""
    lines = (GRAFANA / "temporal-metrics.txt").read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def series() -> set[str]:
    """Every name that PromQL can ask for."""
    names = set(OF_PROMETHEUS) | recorded()
    for name, kind in {**of_programs(), **of_temporal()}.items():
        names |= {name + part for part in _PARTS} if kind == "histogram" else {name}
    return names
