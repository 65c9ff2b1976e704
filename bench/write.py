"""What writing costs on Weir beside a stock Postgres, and a stock Postgres with a synchronous standby.

Needs a Weir that runs. Four arms with the same settings, all there at once, of which one works at a time; each round
runs every workload in every arm, the arms in a new order. Before each run the arm makes a checkpoint and the machine
comes to rest. Results: medians and spread of the rounds, and ratios of medians, in bench/results/write.json; a chart
beside it. A run of some workloads (`--only`) leaves the results of the others as they are, so that a long measurement
can be made in parts: ratios are always of arms that were measured in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from weirbench import charts
from weirbench.api import ApiError
from weirbench.postgres import SqlError, query
from weirbench.progress import say
from weirbench.report import table
from weirbench.spread import spread
from weirbench.write.arms import ARMS, SETTINGS, Arm, all_arms, arm_name
from weirbench.write.usage import wait_until_idle
from weirbench.write.workloads import Run, chosen, prepare

from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "write.json"
RATIOS = {
    "pushdown_vs_standby": ("weir_pushdown", "standby"),
    "pushdown_vs_stock": ("weir_pushdown", "stock"),
    "pushdown_vs_images": ("weir_pushdown", "weir_images"),
}
RECORDED = ("rounds", "seconds", "scale", "warehouses", "wal_rate", "seed")
ARMS_HELP = (
    f"{' '.join(ARMS)}; also weir_pushdown_N (an image after N deltas of a page), weir_adaptive, stock_no_fsync"
)
WEIR_ARMS = "--arms weir_images weir_pushdown"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or usual)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="of each run that time ends (20)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64], help="of pgbench (1 4 16 64)")
    parser.add_argument("--scale", type=int, default=30, help="of pgbench's tables (30: 450 MB)")
    parser.add_argument("--warehouses", type=int, default=4, help="of TPROC-C (4: 500 MB)")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), type=arm_name, help=ARMS_HELP)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORKLOAD", help="tpcb, select, tproc-c, copy ...")
    parser.add_argument(
        "--wal-rate", type=int, default=0, metavar="MB", help="hold the WAL of Weir's arms to so many MB a second"
    )
    parser.add_argument("--minutes", type=float, default=180, help="begin no round that would end after this")
    parser.add_argument("--seed", type=int, default=20, help="of the order of arms")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def summary(runs: list[Run]) -> dict[str, Any]:
    """By workload and clients: each arm's figures over the rounds, and ratios of medians (above 1: more a second)."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(f"{run.workload}/{run.clients}" for run in runs):
        own = [run for run in runs if f"{run.workload}/{run.clients}" == name]
        arms: dict[str, Any] = {}
        for arm in dict.fromkeys(run.arm for run in own):
            of = [run for run in own if run.arm == arm]
            arms[arm] = {
                "per_second": spread([run.per_second for run in of], 2),
                "p50_ms": _middle([run.p50_ms for run in of]),
                "p99_ms": _middle([run.p99_ms for run in of]),
                "wal_bytes_per_transaction": spread([run.wal_bytes_per_transaction for run in of], 1),
                **{
                    field: _by_group([getattr(run, field) for run in of])
                    for field in ("cpu_us_per_transaction", "written_bytes_per_transaction", "fsyncs_per_transaction")
                },
                "context_switches_per_transaction": spread([run.context_switches_per_transaction for run in of], 2),
                "busy_share": spread([run.busy_share for run in of], 3),
            }
        ratios = {
            ratio: round(arms[one]["per_second"]["median"] / max(1e-9, arms[other]["per_second"]["median"]), 3)
            for ratio, (one, other) in RATIOS.items()
            if one in arms and other in arms
        }
        found[name] = {"unit": f"{own[0].unit}/s", "rounds": len(own) // len(arms), "arms": arms, "ratios": ratios}
    return found


def _middle(values: list[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return spread(known, 3) if known else None


def _by_group(values: list[dict[str, float]]) -> dict[str, float]:
    return {group: spread([each[group] for each in values], 4)["median"] for group in values[0]}


def show(found: dict[str, Any], arms: list[str]) -> str:
    def cell(of: dict[str, Any], arm: str) -> str:
        return f"{of['arms'][arm]['per_second']['median']:,.0f}" if arm in of["arms"] else "-"

    rows = [
        [
            name,
            *(cell(of, arm) for arm in arms),
            *(f"x{of['ratios'][ratio]:.2f}" if ratio in of["ratios"] else "-" for ratio in RATIOS),
        ]
        for name, of in found.items()
    ]
    return table("a second, medians", ["workload/clients", *arms, *RATIOS], rows)


def measure(chosen_options: argparse.Namespace) -> int:
    home = chosen_options.home.absolute() if chosen_options.home else installations.home_from_environment()
    installation = installations.load(home)
    shuffle, runs = random.Random(chosen_options.seed), list[Run]()  # noqa: S311  an order of arms
    with (
        tempfile.TemporaryDirectory(prefix="weir-write-rows-") as folder,
        all_arms(installation, chosen_options.arms) as arms,
    ):
        version = query(arms[0].uri, "SHOW server_version")
        for arm in arms:
            say(f"{arm.name}: loading")
            prepare(arm, chosen_options.scale, chosen_options.warehouses)
        limit_wal(arms, chosen_options.wal_rate)
        workloads = chosen(
            Path(folder),
            chosen_options.clients,
            chosen_options.scale,
            chosen_options.warehouses,
            chosen_options.only,
        )
        began = time.monotonic()
        for number in range(1, chosen_options.rounds + 1):
            elapsed = time.monotonic() - began
            if number > 1 and elapsed * number / (number - 1) > chosen_options.minutes * 60:
                say(f"{elapsed / 60:.0f} minutes are used: round {number} is not begun")
                break
            for workload in workloads:
                shuffle.shuffle(arms)
                for arm in arms:
                    if not wait_until_idle():
                        say("the machine does not come to rest; what else does it do?")
                    run = workload.run(arm, chosen_options.seconds)
                    runs.append(run)
                    say(f"round {number}: {workload.label:<24} {arm.name:<14} {run.per_second:>10,.0f} {run.unit}/s")
            write(chosen_options, version, runs)
    print(show(summary(runs), chosen_options.arms))
    return 0


def limit_wal(arms: list[Arm], megabytes: int) -> None:
    """After the tables were loaded, which no figure is about."""
    if not megabytes:
        return
    for arm in arms:
        if arm.limit_wal is None:
            raise RuntimeError(f"{arm.name} has no limit of its WAL; --wal-rate is for Weir's arms: {WEIR_ARMS}")
        arm.limit_wal(megabytes * 1_000_000)


def write(chosen_options: argparse.Namespace, version: str, runs: list[Run]) -> None:
    """After each round, so that a run that is broken off leaves what was measured."""
    settings = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "server_version": version,
        "postgres": SETTINGS,
        **{name: getattr(chosen_options, name) for name in RECORDED},
    }
    before = json.loads(chosen_options.results.read_text()) if chosen_options.results.exists() else {}
    document = merged(before, settings, runs)
    chosen_options.results.write_text(json.dumps(document, indent=1) + "\n")
    charts.write_rates(document["workloads"], chosen_options.results.with_suffix(".png"))


def merged(before: Mapping[str, Any], settings: Mapping[str, Any], runs: list[Run]) -> dict[str, Any]:
    """The result with `runs` in it. A workload that was measured takes the place of its earlier measurement; the
    others stay as they were, each with the settings and the time of its own run."""
    found = summary(runs)
    workloads: dict[str, Any] = {
        name: {"settings": before["settings"], **earlier}
        for name, earlier in before.get("workloads", {}).items()
        if name not in found
    }
    workloads |= {name: {"settings": dict(settings), **measured} for name, measured in found.items()}
    kept = [run for run in before.get("runs", []) if f"{run['workload']}/{run['clients']}" not in found]
    return {
        "settings": dict(settings),
        "workloads": dict(sorted(workloads.items(), key=_place)),
        "runs": [*kept, *(asdict(run) for run in runs)],
    }


def _place(workload: tuple[str, Any]) -> tuple[str, int]:
    name, clients = workload[0].rsplit("/", 1)
    return name, int(clients)


def main() -> int:
    try:
        return measure(options())
    except (ApiError, SqlError, CliError, httpx.HTTPError, RuntimeError) as error:
        say(f"The benchmark stopped: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
