"""Databases moved onto another minor of Postgres while they are written to, and back: the second feature of rollouts.

Needs a Weir that runs and two minors: the installed one and one that set-up has put into the cache. Each database is
written to by sessions that connect again when they are disconnected; reported is how long each was away, by Weir's
account and by its clients', and that every acknowledged row is there.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from weirbench.api import ApiError, Database, Weir
from weirbench.minors import INSTALLED, copy_into, other_minor
from weirbench.postgres import SqlError, query
from weirbench.progress import say
from weirbench.steady import Steady

from weir import postgres_versions
from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "minor-upgrade.json"
OPEN = {"planned", "running", "rolling_back"}
SETTINGS = {"checkpoint_timeout": "30s", "max_wal_size": "1GB"}


@dataclass(frozen=True)
class Move:
    """One compute moved once. `away`: by Weir's account; `gap`: the longest between two commits of one session."""

    name: str
    onto: str
    away_seconds: float | None
    gap_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or usual)")
    parser.add_argument("--computes", type=int, default=4)
    parser.add_argument("--window", type=int, default=60, help="seconds of baseline and of bake")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    other, installed = other_minor(), postgres_versions.of_programs(INSTALLED)
    if other is None or installed is None:
        say("There is only one minor of Postgres here, so that nothing can be moved; `make setup` gets a second.")
        return 1
    try:
        return run(arguments, other, installed)
    except (ApiError, SqlError, CliError, httpx.HTTPError) as error:
        say(f"The demo stopped: {error}")
        say("`weir status` and `weir logs` show more. What was created is still there.")
        return 1


def run(arguments: argparse.Namespace, other: tuple[str, Path], installed: str) -> int:
    home = arguments.home.absolute() if arguments.home else installations.home_from_environment()
    installation = installations.load(home)
    weir = Weir(installation.api_url, installation.api_key_file.read_text().strip())
    for programs in (INSTALLED, other[1]):
        copy_into(home, programs)
    names = [f"minor-{index + 1}" for index in range(arguments.computes)]
    with ThreadPoolExecutor(4) as pool:
        databases = list(pool.map(lambda name: weir.create_database(name, SETTINGS), names))
    start = query(databases[0].uri, "SHOW server_version").split()[0]
    target = other[0] if start == installed else installed
    say(f"{len(databases)} computes on Postgres {start}; {target} is there as well")
    loads = {each.compute_id: Steady(each.uri) for each in databases}
    for load in loads.values():
        load.start()
    try:
        time.sleep(5)
        for load in loads.values():
            load.longest_gap()
        rollout = follow(weir, begin(weir, databases, target, arguments.window)["id"], databases)
        moves = moved(rollout, databases, loads, target, "downtime_seconds")
        weir.request("POST", f"/rollouts/{rollout['id']}/rollback")
        back = follow(weir, rollout["id"], databases)
        moves += moved(back, databases, loads, start, "back_downtime_seconds")
    finally:
        for load in loads.values():
            load.finish()
    missing = {each.name: len(loads[each.compute_id].missing()) for each in databases}
    committed = sum(load.committed for load in loads.values())
    problems = [f"{name} lacks {count} acknowledged rows" for name, count in missing.items() if count]
    if rollout["status"] != "completed" or back["status"] != "rolled_back":
        problems.append(f"the rollout ended {rollout['status']} ({rollout['status_reason']}), then {back['status']}")
    for move in moves:
        away = "not measured" if move.away_seconds is None else f"{move.away_seconds:.2f} s"
        say(f"{move.name} onto {move.onto}: away {away} by Weir, {move.gap_seconds:.2f} s between two commits")
    say(f"{committed:,} rows acknowledged, {sum(missing.values())} missing; {'; '.join(problems) or 'no problem'}")
    body = {"at": datetime.now(UTC).isoformat(), "from": start, "onto": target, "committed": committed,
            "missing": sum(missing.values()), "moves": [asdict(move) for move in moves]}  # fmt: skip
    arguments.results.write_text(json.dumps(body, indent=2) + "\n")
    for each in databases:
        weir.delete_project(each.project_id)
    return 1 if problems else 0


def begin(weir: Weir, databases: list[Database], target: str, window: int) -> dict[str, Any]:
    strategy = {
        "waves": [{"count": 1, "name": "canary"}, {"percent": 100, "name": "the rest"}],
        "baseline_seconds": window,
        "bake_seconds": window,
        "soak_seconds": 0,
        "target_version": target,
        # Bounds alone, and wide: all of Weir, the load and the restarts share one small machine.
        "judge_by": "bounds",
        "max_p99_ratio": 10.0,
    }
    selector = {"project_ids": [each.project_id for each in databases]}
    body = {"name": f"Postgres {target}", "feature": "postgres_minor", "selector": selector, "strategy": strategy}
    rollout = weir.request("POST", "/rollouts", body)["rollout"]
    say(f"rollout {rollout['id']} started: {weir.url}/rollouts/{rollout['id']}")
    return rollout


def follow(weir: Weir, rollout_id: str, databases: list[Database]) -> dict[str, Any]:
    """Until the rollout is over, saying what changes."""
    names = {each.compute_id: each.name for each in databases}
    seen: dict[str, str] = {}
    while True:
        rollout = weir.rollout(rollout_id)
        for item in rollout["computes"]:
            name, state = names[item["compute_id"]], item["state"]
            if seen.get(name) != state:
                say(f"{name}: {state}" + (f": {item['reason']}" if item["reason"] else ""))
            seen[name] = state
        if rollout["status"] not in OPEN:
            say(f"rollout {rollout_id} is {rollout['status']}")
            return rollout
        time.sleep(1)


def moved(
    rollout: dict[str, Any], databases: list[Database], loads: dict[str, Steady], onto: str, column: str
) -> list[Move]:
    members = {item["compute_id"]: item for item in rollout["computes"]}
    moves: list[Move] = []
    for each in databases:
        runs = query(each.uri, "SHOW server_version").split()[0]
        if runs != onto:
            raise ApiError(f"{each.name} runs {runs}, not {onto}: {members[each.compute_id]['reason']}")
        gap = loads[each.compute_id].longest_gap()
        moves.append(Move(each.name, onto, members[each.compute_id][column], round(gap, 3)))
    return moves


if __name__ == "__main__":
    raise SystemExit(main())
