"""How far a commit on Weir is from what Postgres, the kernel and three fsyncs cost by themselves.

Needs a Weir that runs. Three arms in turn: `stock_no_fsync`, a Postgres whose commits wait for nothing; `standby`,
one with a synchronous standby; `weir_pushdown`. In the same run the disk and a loopback connection are measured
without any database. From these come two floors for each workload, which no program that keeps each commit on a
majority of three logs on this machine can pass:

- latency, one client: Postgres's own, two round trips over loopback (walsender to proposer to safekeeper and back),
  and the sync of the second of three logs that are synced at once;
- rate, many clients: all processors do nothing but Postgres's own work (the client's included) and the fsyncs that
  the commits took.

Results: bench/results/floors.json, with the measured value over its floor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from weirbench.api import ApiError
from weirbench.postgres import SqlError
from weirbench.progress import say
from weirbench.report import table
from weirbench.spread import spread
from weirbench.write import disk
from weirbench.write.arms import NO_FSYNC, SETTINGS, Arm, all_arms
from weirbench.write.usage import wait_until_idle
from weirbench.write.workloads import Run, messages, pgbench, prepare

from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "floors.json"
FLOOR_ARMS = (NO_FSYNC, "standby", "weir_pushdown")
COMMIT_BYTES, SIZES = 512, (512, 8192, 32768, 131072)
CORES = os.cpu_count() or 1


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or usual)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each run of pgbench (10)")
    parser.add_argument("--scale", type=int, default=30, help="of pgbench's tables (30: 450 MB)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk of the logs (/var/tmp)")  # noqa: S108
    parser.add_argument("--seed", type=int, default=20, help="of the order of arms")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def floors(runs: Sequence[Run], synced: Sequence[disk.Synced], loopback_us: float) -> dict[str, Any]:
    """By workload and clients: the floors and what was measured, from medians of the rounds. Times in milliseconds,
    CPU in microseconds of the whole machine for a transaction."""
    [commit] = [each for each in synced if each.bytes == COMMIT_BYTES and each.appends_a_sync == 1]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(f"{run.workload}/{run.clients}" for run in runs):
        own = [run for run in runs if f"{run.workload}/{run.clients}" == name]
        alone, standby, weir = ([run for run in own if run.arm == arm] for arm in FLOOR_ARMS)
        latency = _median([run.p50_ms or 0 for run in alone]) + (2 * loopback_us + commit.quorum_us) / 1000
        fsyncs = _median([sum(run.fsyncs_per_transaction.values()) for run in weir])
        cpu = _median([machine_cpu_us(run) for run in alone]) + fsyncs * commit.cpu_us
        rate = CORES * 1e6 / cpu
        measured = _median([run.per_second for run in weir])
        found[name] = {
            "latency_floor_ms": round(latency, 3),
            "latency_ms": _latencies(standby, weir),
            "latency_over_floor": round(_median([run.p50_ms or 0 for run in weir]) / latency, 2),
            "fsyncs_per_transaction": round(fsyncs, 3),
            "cpu_floor_us": round(cpu, 1),
            "cpu_us": {
                arm: round(_median([machine_cpu_us(run) for run in of]), 1)
                for arm, of in zip(FLOOR_ARMS, (alone, standby, weir), strict=True)
            },
            "rate_floor_per_second": round(rate, 1),
            "per_second": {
                arm: spread([run.per_second for run in of], 1)
                for arm, of in zip(FLOOR_ARMS, (alone, standby, weir), strict=True)
            },
            "rate_over_floor": round(measured / rate, 3),
        }
    return found


def machine_cpu_us(run: Run) -> float:
    """What the whole machine worked for a transaction, the client included."""
    return run.busy_share * CORES * run.seconds * 1e6 / max(1, run.transactions)


def appends(runs: Sequence[Run], synced: Sequence[disk.Synced]) -> dict[str, Any]:
    """By bytes of a message and clients: bytes a second that Weir acknowledged over those a majority of three files
    takes with a sync for each of the same groups."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(f"{run.workload}/{run.clients}" for run in runs):
        own = [run for run in runs if f"{run.workload}/{run.clients}" == name]
        size, clients = int(own[0].workload.split()[-1]), own[0].clients
        [bare] = [each for each in synced if each.bytes == size and each.appends_a_sync == min(clients, 16)]
        disk_rate = size * bare.appends_a_sync / (bare.quorum_us / 1e6)
        rate = _median([run.per_second for run in own]) * size
        found[name] = {
            "mib_a_second": round(rate / 2**20, 1),
            "disk_mib_a_second": round(disk_rate / 2**20, 1),
            "of_disk": round(rate / disk_rate, 3),
            "fsyncs_per_message": round(_median([sum(run.fsyncs_per_transaction.values()) / 3 for run in own]), 3),
        }
    return found


def _latencies(standby: Sequence[Run], weir: Sequence[Run]) -> dict[str, float]:
    named = (("standby", standby), ("weir_pushdown", weir))
    return {name: round(_median([run.p50_ms or 0 for run in of]), 3) for name, of in named}


def _median(values: Sequence[float]) -> float:
    return spread(values)["median"]


def show(found: dict[str, Any], messages_found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{each['latency_floor_ms']:.2f}",
            f"{each['latency_ms']['standby']:.2f}",
            f"{each['latency_ms']['weir_pushdown']:.2f}",
            f"{each['rate_floor_per_second']:,.0f}",
            f"{each['per_second']['standby']['median']:,.0f}",
            f"{each['per_second']['weir_pushdown']['median']:,.0f}",
        ]
        for name, each in found.items()
    ]
    heads = ["workload/clients", "floor ms", "standby ms", "weir ms", "floor /s", "standby /s", "weir /s"]
    sizes = [
        [name, f"{each['disk_mib_a_second']:,.0f}", f"{each['mib_a_second']:,.0f}", f"{each['of_disk']:.2f}"]
        for name, each in messages_found.items()
    ]
    return "\n".join(
        [
            table("commits beside their floors, medians", heads, rows),
            table("messages, MiB a second", ["bytes/clients", "three files", "Weir", "ratio"], sizes),
        ]
    )


def measure(chosen: argparse.Namespace) -> int:
    home = chosen.home.absolute() if chosen.home else installations.home_from_environment()
    installation = installations.load(home)
    with tempfile.TemporaryDirectory(prefix="weir-floors-", dir=chosen.folder) as folder:
        wait_until_idle()
        synced = disk.sizes(Path(folder), SIZES)
        loopback = disk.loopback_us()
    say(f"disk and loopback ({loopback:.0f} us) are measured")
    with all_arms(installation, FLOOR_ARMS) as arms:
        for arm in arms:
            say(f"{arm.name}: loading")
            prepare(arm, chosen.scale)
        runs = _rounds(chosen, arms)
        weir = [arm for arm in arms if arm.name == "weir_pushdown"]
        sent = _messages(chosen, weir[0])
    found, messages_found = floors(runs, synced, loopback), appends(sent, synced)
    document = {
        "settings": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "cores": CORES,
            "postgres": SETTINGS,
            **{name: getattr(chosen, name) for name in ("rounds", "seconds", "scale", "seed")},
        },
        "disk": [asdict(each) for each in synced],
        "loopback_us": loopback,
        "commits": found,
        "messages": messages_found,
        "runs": [asdict(run) for run in [*runs, *sent]],
    }
    chosen.results.write_text(json.dumps(document, indent=1) + "\n")
    print(show(found, messages_found))
    return 0


def _rounds(chosen: argparse.Namespace, arms: list[Arm]) -> list[Run]:
    shuffle, runs = random.Random(chosen.seed), list[Run]()  # noqa: S311  an order of arms
    workloads = [
        pgbench(name, clients, "-b", script)
        for clients in (1, 16)
        for name, script in (("tpcb", "tpcb-like"), ("simple update", "simple-update"))
    ]
    for number in range(1, chosen.rounds + 1):
        for workload in workloads:
            shuffle.shuffle(arms)
            for arm in arms:
                wait_until_idle()
                run = workload.run(arm, chosen.seconds)
                runs.append(run)
                say(f"round {number}: {workload.label:<24} {arm.name:<14} {run.per_second:>10,.0f} {run.unit}/s")
    return runs


def _messages(chosen: argparse.Namespace, arm: Arm) -> list[Run]:
    runs: list[Run] = []
    for number in range(1, chosen.rounds + 1):
        for size in SIZES[1:]:
            for clients in (1, 16):
                wait_until_idle()
                run = messages(clients, size).run(arm, min(5, chosen.seconds))
                runs.append(run)
                say(f"round {number}: {run.workload:<24} {clients:>2} clients {run.per_second:>10,.0f} messages/s")
    return runs


def main() -> int:
    try:
        return measure(options())
    except (ApiError, SqlError, CliError, httpx.HTTPError, RuntimeError) as error:
        say(f"The benchmark stopped: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
