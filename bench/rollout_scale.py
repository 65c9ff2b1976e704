"""A rollout over 100, 1,000 and 10,000 computes on the simulated runtime: how long the plan takes, how many computes
a second are switched and confirmed, what the worker needs, how fast the console stays.

Everything but the computes and their storage is real: API, metadata store, Temporal, worker, Prometheus, console. The
fleet is a model behind the same HTTP APIs (docs/adr/0013), so no figure here is a database's. Each size gets a fresh
Weir. Projects, branches and endpoints are written straight into the metadata store; the rollout is made and steered
through the public API, with soak, baseline, bake and settle at 0 and the caps open.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weirbench import scale_seed, scale_watch
from weirbench.api import Weir
from weirbench.parts import client
from weirbench.progress import say
from weirbench.prom import Prometheus
from weirbench.scale_stack import ScaleStack, simulated_weir

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "rollout-scale.json"
SIZES = (100, 1_000, 10_000)
PORT_BASE = 18_000
# Computes' ports are numbers nobody listens on, above those of any real installation.
FIRST_COMPUTE_PORT = 40_000
PLANS = 3
TARGETS = {
    "plan_seconds": 10.0,
    "computes_per_second": 50.0,
    "worker_rss_mib": 1024.0,
    "console_ms": 1000.0,
    "control_seconds": 5.0,
}
SERVICES = ("api", "worker", "temporal", "postgres", "prometheus", "simulator")
ENDED = {"completed", "aborted", "rolled_back", "failed"}


def strategy(computes: int) -> dict[str, Any]:
    """A canary of 1 %, then everyone; nothing waits, and no cap binds."""
    return {
        "waves": [{"percent": 1, "name": "canary", "soak_seconds": 0}, {"percent": 100, "name": "everyone"}],
        "baseline_seconds": 0,
        "bake_seconds": 0,
        "settle_seconds": 0,
        "soak_seconds": 0,
        "max_concurrent": min(10_000, max(1, computes)),
    }


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.monotonic()
    answer = call()
    return time.monotonic() - start, answer


def wait_scraped(prometheus: Prometheus, computes: int, scrape_seconds: int) -> None:
    """Until every compute has a rate: the plan asks for them."""
    query = f"count(sum by (compute_id) (rate(weir_compute_wal_bytes_total[{max(15, 4 * scrape_seconds)}s])))"

    def done() -> bool:
        found = prometheus.at(query, time.time())
        return bool(found) and found[0][1] >= computes

    scale_watch.wait(f"rates of {computes} computes in Prometheus", done, 60 + 10 * scrape_seconds, 1.0)


def plan(api: Weir, body: dict[str, Any], computes: int) -> dict[str, Any]:
    seconds: list[float] = []
    for _ in range(PLANS):
        took, answer = timed(lambda: api.request("POST", "/rollouts/plan", body))
        seconds.append(took)
        planned = answer["plan"]["computes_total"]
        if planned != computes:
            raise RuntimeError(f"the plan has {planned} computes of {computes}: {answer['plan']['excluded_by_code']}")
    return {"plan_seconds": statistics.median(seconds), "plan_seconds_each": seconds}


def wait_status(api: Weir, rollout_id: str, statuses: set[str], seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        rollout = api.get(f"/rollouts/{rollout_id}")["rollout"]
        if rollout["status"] in statuses:
            return rollout
        if rollout["status"] in ENDED | {"held"} or time.monotonic() > deadline:
            wanted = " or ".join(statuses)
            raise RuntimeError(
                f"rollout {rollout_id} is {rollout['status']} ({rollout['status_reason']}), not {wanted}"
            )
        time.sleep(0.5)


def pause_and_resume(api: Weir, store: scale_watch.Store, rollout_id: str) -> dict[str, Any]:
    """Seconds from asking until the last switch before the stand-still and until the first after it."""
    running = api.get(f"/rollouts/{rollout_id}")["rollout"]["counts"]
    paused_at = time.time()
    pause_answered, _ = timed(lambda: api.request("POST", f"/rollouts/{rollout_id}/pause"))
    settled = store.progress(rollout_id)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 3.0:
        time.sleep(0.2)
        now = store.progress(rollout_id)
        if now.switched != settled.switched:
            settled, quiet_since = now, time.monotonic()
    resumed_at = time.time()
    resume_answered, _ = timed(lambda: api.request("POST", f"/rollouts/{rollout_id}/resume"))
    scale_watch.wait(
        "the first switch after resume", lambda: store.around_pause(rollout_id, resumed_at)[1] is not None, 60, 0.1
    )
    last_before, first_after = store.around_pause(rollout_id, resumed_at)
    if last_before is None or first_after is None:
        raise RuntimeError("nothing was switched before the pause or after the resume")
    return {
        "counts_when_asked": running,
        "pause_answered_seconds": pause_answered,
        # Not below 0: every switch may have been before the request.
        "pause_effective_seconds": max(0.0, last_before - paused_at),
        "resume_answered_seconds": resume_answered,
        "resume_effective_seconds": first_after - resumed_at,
        "stood_still_seconds": resumed_at - last_before,
    }


def roll_out(stack: ScaleStack, api: Weir, computes: int) -> dict[str, Any]:
    """The rollout forward with a pause in it, then all of it back."""
    store = scale_watch.Store(stack.installation.environment()["WEIR_DATABASE_URL"])
    worker = stack.pid("worker")
    sampler = scale_watch.Sampler(worker)
    sampler.start()
    pids = {name: stack.pid(name) for name in SERVICES}
    before = {name: scale_watch.cpu_seconds(pid) for name, pid in pids.items()}
    body = {"name": f"scale {computes}", "strategy": strategy(computes)}
    created, answer = timed(lambda: api.request("POST", "/rollouts", body))
    created_at = time.time()
    rollout_id = answer["rollout"]["id"]
    patience = 600 + computes / 5
    control: dict[str, Any] | None = None
    if computes >= 1_000:
        scale_watch.wait(
            "a fifth of the computes", lambda: store.progress(rollout_id).switched >= computes / 5, patience
        )
        control = pause_and_resume(api, store, rollout_id)
    wait_status(api, rollout_id, {"completed"}, patience)
    forward = store.progress(rollout_id)
    if (forward.switched, forward.confirmed) != (computes, computes):
        raise RuntimeError(f"{forward.switched} switched and {forward.confirmed} confirmed of {computes}")
    cpu = {name: scale_watch.cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    say(f"  forward: {forward}")
    back_began = time.time()
    api.request("POST", f"/rollouts/{rollout_id}/rollback")
    wait_status(api, rollout_id, {"rolled_back"}, patience)
    back = store.progress(rollout_id)
    if back.back != computes or store.full_page_writes_off() != 0:
        raise RuntimeError(f"{back.back} of {computes} computes went back; off: {store.full_page_writes_off()}")
    store.close()
    assert forward.last_confirm is not None  # noqa: S101  all of them were confirmed
    assert back.last_back is not None  # noqa: S101
    # Less the time in which it stood still because it was told to; getting going again counts.
    still = 0.0 if control is None else control["stood_still_seconds"]
    took = forward.last_confirm - created_at - still
    return {
        "rollout_id": rollout_id,
        "create_seconds": created,
        "switch_and_confirm_seconds": took,
        "computes_per_second": computes / took,
        "rollback_computes_per_second": computes / (back.last_back - back_began),
        "worker_rss_mib": sampler.stop(),
        # What the way forward cost, whoever else used the machine meanwhile.
        "cpu_seconds": cpu,
        "cpu_ms_per_compute": 1000 * sum(cpu.values()) / computes,
        "control": control,
        "progress": asdict(forward),
    }


def console(stack: ScaleStack, rollout_id: str, computes: int) -> dict[str, Any]:
    pages = [
        {"name": "rollout", "path": f"/rollouts/{rollout_id}", "heading": f"scale {computes}"},
        {"name": "rollouts", "path": "/rollouts", "heading": "Rollouts"},
        {"name": "fleet", "path": "/fleet", "heading": "Fleet"},
        {"name": "computes", "path": "/computes", "heading": "Computes"},
    ]
    key = stack.installation.api_key_file.read_text().strip()
    measured = scale_watch.console_pages(stack.installation.api_url, key, pages, ROOT / "e2e")
    by_name = {entry["name"]: {**entry, "median_ms": statistics.median(entry["ms"])} for entry in measured}
    return {"console_ms": max(entry["median_ms"] for entry in by_name.values()), "console": by_name}


def measure(computes: int, seed: int, scrape_seconds: int, *, with_console: bool) -> dict[str, Any]:
    with simulated_weir(PORT_BASE, seed, scrape_seconds) as stack:
        installation = stack.installation
        say(f"{computes} computes: Weir is up in {stack.home}")
        seconds, _ = timed(
            lambda: scale_seed.fill(
                installation.environment()["WEIR_DATABASE_URL"],
                installation.simulator_url,
                FIRST_COMPUTE_PORT,
                computes,
            )
        )
        say(f"  filled in {seconds:.1f} s")
        wait_scraped(Prometheus(client(installation, "prometheus")), computes, scrape_seconds)
        api = stack.api()
        result: dict[str, Any] = {"computes": computes, "fill_seconds": seconds, "load_before": os.getloadavg()[0]}
        result |= plan(api, {"strategy": strategy(computes)}, computes)
        say(f"  plan: {result['plan_seconds']:.2f} s")
        result |= roll_out(stack, api, computes)
        say(f"  {result['computes_per_second']:.0f} computes/s, worker {result['worker_rss_mib']:.0f} MiB")
        result["histories"] = scale_watch.histories(installation.address("temporal"))
        if with_console:
            result |= console(stack, result["rollout_id"], computes)
            say(f"  console: {result['console_ms']:.0f} ms")
        result["rss_mib"] = {
            name: scale_watch.resident_mib(stack.pid(name)) for name in SERVICES if name != "postgres"
        }
    return result | {"load_after": os.getloadavg()[0]}


def verdicts(largest: dict[str, Any]) -> dict[str, bool]:
    control = largest.get("control") or {}
    slowest = max(
        (control[name] for name in ("pause_effective_seconds", "resume_effective_seconds") if name in control),
        default=None,
    )
    held = {
        "plan_seconds": largest["plan_seconds"] <= TARGETS["plan_seconds"],
        "computes_per_second": largest["computes_per_second"] >= TARGETS["computes_per_second"],
        "worker_rss_mib": largest["worker_rss_mib"] <= TARGETS["worker_rss_mib"],
    }
    if "console_ms" in largest:
        held["console_ms"] = largest["console_ms"] <= TARGETS["console_ms"]
    if slowest is not None:
        held["control_seconds"] = slowest <= TARGETS["control_seconds"]
    return held


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
        # Of everything measured here, beside whatever else runs: below 0 it comes before others.
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--computes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scrape-seconds", type=int, default=15, help="Prometheus's interval (default %(default)s)")
    parser.add_argument("--no-console", action="store_true", help="do not time the console's pages")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    series = [
        measure(computes, arguments.seed, arguments.scrape_seconds, with_console=not arguments.no_console)
        for computes in arguments.computes
    ]
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    held = verdicts(series[-1])
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "machine": {**machine(), "load_before": load_before, "load_after": os.getloadavg()[0]},
        "settings": {
            "runtime": "simulated",
            "seed": arguments.seed,
            "scrape_seconds": arguments.scrape_seconds,
            "strategy": strategy(series[-1]["computes"]),
            "filled_by": "bulk inserts into the metadata store and one call to the simulated fleet, not by the API",
            "console": "headless Chromium, median of five loads, the slowest of four pages",
        },
        "targets": TARGETS,
        "targets_held_at_largest": held,
        "series": series,
    }
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(document, indent=2) + "\n")
    say(f"written to {arguments.results}")
    for name, good in held.items():
        say(f"  {name}: {'held' if good else 'MISSED'} (target {TARGETS[name]:g})")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
