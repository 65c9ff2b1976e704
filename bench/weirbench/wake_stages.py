"""Where the time of one wake went, and how much processor time it took of the whole installation.

The worker and the proxy count stages in histograms. While one compute is woken at a time, what such a histogram grew
by is that wake's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

STAGES = "weir_compute_start_stage_seconds"
WAKES = "weir_proxy_wake_seconds"
# As they follow each other; `agent_*` are parts of `agent`.
OF_THE_START = ("queue", "spec", "description", "process", "agent", "record")
OF_THE_AGENT = ("elect", "bundle", "layout", "spawn", "recover", "answer", "apply", "trial")
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class NotOneWakeError(Exception):
    """Something else was started meanwhile, so that nobody can say whose the time was."""


@dataclass(frozen=True)
class Counted:
    """Sums in seconds and counts of observations of both histograms, by stage."""

    sums: Mapping[str, float]
    counts: Mapping[str, float]


def read(metrics_urls: list[str], token: Path) -> Counted:
    """`token`: the file of Prometheus's token, which the control plane's figures want. Raises httpx.HTTPError where
    one of these does not answer."""
    shown = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for url in metrics_urls:
        answer = httpx.get(url, headers=shown, timeout=10)
        answer.raise_for_status()
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples if family.name in (STAGES, WAKES) else ():
                stage = sample.labels.get("stage", "wake")
                if sample.name.endswith("_sum"):
                    sums[stage] = sample.value
                elif sample.name.endswith("_count"):
                    counts[stage] = sample.value
    return Counted(sums, counts)


def between(before: Counted, after: Counted, row_ms: float) -> dict[str, float]:
    """Milliseconds by stage of the wake that took a client `row_ms`. `login`: what is not the proxy's wake, so the
    client's login before it, that at the compute behind it and the row. `api`: what of the proxy's wake is not the
    start's stages: the API's question and answer. `agent_process`: what of `agent` is not the agent's own account.
    Raises NotOneWakeError."""
    found: dict[str, float] = {}
    for stage, count in after.counts.items():
        more = count - before.counts.get(stage, 0.0)
        if more > 1:
            raise NotOneWakeError(f"{more:.0f} starts were counted in stage {stage}, where one was waited for")
        if more == 1:
            found[stage] = (after.sums[stage] - before.sums.get(stage, 0.0)) * 1000
    if "wake" in found:
        found["login"] = row_ms - found["wake"]
        found["api"] = found["wake"] - sum(found.get(stage, 0.0) for stage in OF_THE_START)
    if "agent" in found:
        found["agent_process"] = found["agent"] - sum(found.get(f"agent_{name}", 0.0) for name in OF_THE_AGENT)
    return found


def processor_ms(home: Path) -> dict[int, float]:
    """Processor time by process of an installation, with that of children which have ended; for its owner or root."""
    mark = b"WEIR_HOME=" + os.fsencode(home)
    found: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                text = (folder / "stat").read_text()
                fields = text[text.rindex(")") + 2 :].split()
                found[int(folder.name)] = sum(int(field) for field in fields[11:15]) * _TICK_MS
        except OSError:
            continue
    return found


def used(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Milliseconds of processor time between two looks; of processes that began between them, all they used."""
    return sum(max(0.0, total - before.get(pid, 0.0)) for pid, total in after.items())
