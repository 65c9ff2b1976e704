"""A table read from its first page to its last, from the disk: through a compute's volume, and from the page service.

Nothing is in memory when a scan begins: a pageserver of its own for each, whose objects the kernel has been told to
forget, and an empty volume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .dialogue import Dialogue
from .recorded import program, run_json
from .spread import spread

MIB = 1 << 20
PAGE = 8192
# How the volume reads: only what is asked for, a page a request, the kernel's own read-ahead off too; what the kernel
# asks for, no more; and as a compute does.
ARMS: dict[str, list[str]] = {
    "page_by_page": ["--read-ahead-pages", "0", "--page-by-page"],
    "kernel_only": ["--read-ahead-pages", "0"],
    "read_ahead": [],
}
# What a request spends on the way in the second measurement, as within a data centre.
LATENCY_US = 500


def one(
    bench: Path, scan: Path, objects: Path, relation: str, options: Sequence[str], urgent: Sequence[str]
) -> dict[str, Any]:
    """One cold scan through a volume."""
    command = [*urgent, bench, "serve", "--objects", objects, "--relation", relation]
    with Dialogue(command) as server:
        place = server.hear()
        given = [f"--{name}={place[name]}" for name in ("address", "tenant", "timeline", "lsn", "blocks")]
        found = run_json([*urgent, scan, *given, "--file", f"base/5/{relation}", *options])
        spent = server.end()
    return {**found, "pages": place["blocks"], "server_cpu_seconds": spent["cpu_seconds"]}


def rate(scan: Mapping[str, Any]) -> float:
    """MiB/s."""
    return scan["pages"] * PAGE / MIB / scan["seconds"]


def through_volume(scans: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """How much faster it is with read-ahead, and each way's own figures. ValueError if they did not read the same."""
    if len({scan["sum"] for of in scans.values() for scan in of}) != 1:
        raise ValueError("the ways of reading did not read the same bytes")
    seconds = {name: [scan["seconds"] for scan in of] for name, of in scans.items()}
    fast = seconds["read_ahead"]
    # Rounds in pairs: what else the machine does slows both.
    ratios = [slow / quick for slow, quick in zip(seconds["page_by_page"], fast, strict=True)]
    return {
        "speedup": spread(ratios, 2),
        "speedup_over_kernel": round(float(np.median(seconds["kernel_only"]) / np.median(fast)), 2),
        "mib_s": {
            name: spread([scan["pages"] * PAGE / MIB / scan["seconds"] for scan in of], 0)
            for name, of in scans.items()
        },
        "pages_read_ahead": scans["read_ahead"][-1]["pages_read_ahead"],
        "read_ahead_used": scans["read_ahead"][-1]["read_ahead_used"],
    }


def by_request(found: Mapping[str, Any]) -> dict[str, Any]:
    """The page service alone, one request at a time: MiB/s by the pages of a request."""
    seconds = {int(batch): values for batch, values in found["seconds_by_batch"].items()}
    megabytes = found["blocks"] * PAGE / MIB
    return {
        str(batch): spread([megabytes / value for value in values], 2) for batch, values in sorted(seconds.items())
    }


def measure(
    bench: Path, objects: Path, relation: str, rounds: int, urgent: Sequence[str], progress: Callable[[str], None]
) -> dict[str, Any]:
    scan = program("compute", "scan")
    late = ["--latency-us", str(LATENCY_US)]
    report: dict[str, Any] = {}
    for key, more in (("scan_through_volume", []), ("scan_through_volume_late", late)):
        scans: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
        for number in range(rounds):
            for name, options in ARMS.items():
                scans[name].append(one(bench, scan, objects, relation, [*options, *more], urgent))
                progress(f"{key} {number + 1}, {name}: {scans[name][-1]['seconds']:.2f} s")
        report[key] = through_volume(scans)
    report["scan_through_volume_late"]["latency_us"] = LATENCY_US
    requests = run_json(
        [*urgent, bench, "scan", "--objects", objects, "--relation", relation, "--rounds", str(rounds)]
    )
    return {
        "cold_scan_speedup": report["scan_through_volume"]["speedup"]["median"],
        "pages": requests["blocks"],
        **report,
        "mib_s_by_pages_a_request": by_request(requests),
    }
