"""How fast the API answers in an installation of 10,000 projects, at 200 requests a second.

A Weir of its own is started with the simulated runtime: API, metadata store, Temporal, worker, Prometheus and console
are the real ones, computes and storage a model behind the same HTTP APIs (docs/adr/0013). Projects are written
straight into the metadata store. Requests come by the clock, whether earlier ones are answered or not, and each
answer's time counts from when its request was due. About one request in a hundred starts a compute, by its workflow.

Requests come by twenty keys, as those of many customers do: one key has a rate of its own, below that of all
together. The API has as many processes as `WEIR_API_PROCESSES` says.

The generator runs on the same processors; how late it was itself is in the result, and part of every time.

`--cost` measures something else: the processor time that each kind of request takes of the API's process, and how
many statements it asks of the metadata store. With `--beside CHECKOUT` the API of that checkout takes turns with it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
from weirbench import api_cost, api_seed, open_loop, reconciler_seed
from weirbench.open_loop import Answer, Kind, Request
from weirbench.progress import say
from weirbench.scale_stack import ScaleStack, simulated_weir
from weirbench.scale_watch import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "api.json"
COST_RESULTS = ROOT / "bench" / "results" / "api-cost.json"
PORT_BASE = 18_400
# Of `--cost`: requests of each kind in a round, rounds, requests of each kind whose statements are counted, and
# requests at once.
OF_A_KIND = 200
ROUNDS = 5
COUNTED = 20
AT_ONCE = 6
# Above the ports of the installation.
COST_PORTS = 600
PROJECTS = 10_000
RATE = 200.0
SECONDS = 120.0
WARM_UP_SECONDS = 15.0
NO_ANSWER_SECONDS = 30.0
KEYS = 20
# The promise: 99 of 100 answers, milliseconds.
TARGETS: dict[Kind, float] = {"read": 50.0, "write": 150.0}
SERVICES = ("api", "worker", "temporal", "postgres", "prometheus", "simulator")


def make_keys(stack: ScaleStack) -> list[str]:
    api = stack.api()
    return [str(api.request("POST", "/api_keys", {"key_name": f"bench-{n}"})["key"]) for n in range(KEYS)]


async def drive(url: str, keys: list[str], mix: api_seed.Mix, due: list[float]) -> list[Answer]:
    bearers = itertools.cycle([{"Authorization": f"Bearer {key}"} for key in keys])
    timeout = aiohttp.ClientTimeout(total=NO_ANSWER_SECONDS)
    # As many connections as there are requests under way: none waits for another's answer.
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:

        async def send(request: Request) -> int:
            try:
                path, headers = f"{url}/api/v2{request.path}", next(bearers)
                async with client.request(request.method, path, json=request.body, headers=headers) as answer:
                    await answer.read()
                    return answer.status
            except (aiohttp.ClientError, TimeoutError):
                return 0

        return await open_loop.drive(mix.planned(due), send)


def _cpu(stack: ScaleStack) -> dict[str, float]:
    found = {service: cpu_seconds(stack.pid(service)) for service in SERVICES}
    return found | {"generator": time.process_time()}


def measure(stack: ScaleStack, projects: int, rate: float, seconds: float, seed: int) -> tuple[list[Answer], Any]:
    fleet = reconciler_seed.fleet_of(projects)
    installation = stack.installation
    api_seed.fill(installation.environment()["WEIR_DATABASE_URL"], installation.simulator_url, fleet)
    say(f"{projects} projects are filled in")
    random = Random(seed)  # noqa: S311  a load that can be repeated
    mix = api_seed.Mix(fleet, random)
    keys = make_keys(stack)

    def load(for_seconds: float) -> list[Answer]:
        due = open_loop.arrivals(rate, for_seconds, random)
        return asyncio.run(drive(installation.api_url, keys, mix, due))

    load(WARM_UP_SECONDS)
    before, began = _cpu(stack), time.monotonic()
    answers = load(seconds)
    took = time.monotonic() - began
    processors = {name: round((spent - before[name]) / took, 3) for name, spent in _cpu(stack).items()}
    return answers, processors


def measure_cost(
    stack: ScaleStack, arguments: argparse.Namespace, checkouts: dict[str, Path]
) -> dict[str, dict[str, Any]]:
    """By name of the checkout: microseconds and statements of a request."""
    projects, seed, rounds = arguments.projects, arguments.seed, arguments.rounds
    fleet = reconciler_seed.fleet_of(projects)
    installation = stack.installation
    environment = installation.environment()
    database_url = environment["WEIR_DATABASE_URL"]
    api_seed.fill(database_url, installation.simulator_url, fleet)
    say(f"{projects} projects are filled in")
    mix = api_seed.Mix(fleet, Random(seed))  # noqa: S311  a load that can be repeated
    weights, (key, *_) = mix.weights(), make_keys(stack)
    counted = api_cost.Counted(database_url, installation.log_file("postgres"))
    with ExitStack() as opened:
        apis = [
            opened.enter_context(api_cost.served(name, path, environment, port))
            for port, (name, path) in enumerate(checkouts.items(), arguments.port_base + COST_PORTS)
        ]
        clients = {
            api.name: [opened.enter_context(closing(api_cost.Client(api, key))) for _ in range(AT_ONCE)]
            for api in apis
        }
        costs: dict[str, dict[str, list[float]]] = {api.name: {what: [] for what in weights} for api in apis}
        # The first round is to warm up.
        for number in range(rounds + 1):
            for api in apis if number % 2 else apis[::-1]:
                for requests in mix.of_each(arguments.of_a_kind):
                    cost = api_cost.microseconds(api, clients[api.name], requests)
                    if number:
                        costs[api.name][requests[0].what].append(cost)
            say(f"round {number} of {rounds}")
        found = {name: api_cost.summary(of, weights) for name, of in costs.items()}
        with counted.on():
            for name, (client, *_) in clients.items():
                found[name]["statements"] = {
                    requests[0].what: counted.fewest(client, requests) for requests in mix.of_each(COUNTED)
                }
    return found


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _say_kinds(answers: list[Answer]) -> None:
    for kind, target in TARGETS.items():
        of = open_loop.summary([answer for answer in answers if answer.request.kind == kind])
        say(
            f"  {kind}s: {of['requests']}, p50 {of['p50']} ms, p99 {of['p99']} ms (may be {target:g}), longest "
            f"{of['longest']} ms, {of['failed']} failed"
        )


def _written(result: dict[str, Any], machine: dict[str, Any], to: Path) -> None:
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    heading = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "machine": machine,
    }
    to.write_text(json.dumps(heading | result, indent=2) + "\n")
    say(f"written to {to}")


def latency(arguments: argparse.Namespace) -> int:
    machine = _machine()
    with simulated_weir(arguments.port_base, arguments.seed, 15) as stack:
        say("a Weir of its own is up")
        answers, processors = measure(stack, arguments.projects, arguments.rate, arguments.seconds, arguments.seed)
    _say_kinds(answers)
    for what, of in open_loop.by_name(answers).items():
        say(f"    {what}: {of['requests']}, p50 {of['p50']} ms, p99 {of['p99']} ms")
    for status, times in open_loop.statuses(answers).items():
        say(f"    FAILED {status}, {times} times")
    say(f"  sent late by {open_loop.late_ms(answers)} ms (p99); processors: {processors}")
    missed = open_loop.missed(answers, TARGETS)
    say("; ".join(missed) if missed else "held")
    result = {
        "settings": {
            "runtime": "simulated; all computes suspended but those that are started",
            "projects": arguments.projects,
            "operations_a_project": api_seed.OPERATIONS,
            "api_processes": int(os.environ.get("WEIR_API_PROCESSES", "1")),
            "requests_a_second": arguments.rate,
            "seconds": arguments.seconds,
            "seed": arguments.seed,
        },
        "targets_p99_ms": TARGETS,
        "held": not missed,
        "missed": missed,
        "milliseconds": {
            kind: open_loop.summary([answer for answer in answers if answer.request.kind == kind]) for kind in TARGETS
        },
        "by_request": open_loop.by_name(answers),
        "generator_late_p99_ms": open_loop.late_ms(answers),
        "processors_used": processors,
    }
    if not arguments.no_result:
        _written(result, machine, arguments.results or RESULTS)
    return 1 if missed else 0


def cost(arguments: argparse.Namespace) -> int:
    machine = _machine()
    checkouts = {"this": ROOT} | ({"beside": arguments.beside.resolve()} if arguments.beside else {})
    with simulated_weir(arguments.port_base, arguments.seed, 15) as stack:
        say("a Weir of its own is up")
        found = measure_cost(stack, arguments, checkouts)
    for name, of in found.items():
        say(f"  {name}: {of['a_request']} us of processor time a request of the mix")
        for what, microseconds in of["by_request"].items():
            say(f"    {what}: {microseconds} us, {of['statements'][what]} statements")
    result = {
        "settings": {
            "projects": arguments.projects,
            "operations_a_project": api_seed.OPERATIONS,
            "requests_of_a_kind": arguments.of_a_kind,
            "rounds": arguments.rounds,
            "seed": arguments.seed,
        },
        "microseconds": found,
    }
    if not arguments.no_result:
        _written(result, machine, arguments.results or COST_RESULTS)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=int, default=PROJECTS)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port-base", type=int, default=PORT_BASE)
    parser.add_argument("--cost", action="store_true", help="processor time and statements of a request instead")
    parser.add_argument("--beside", type=Path, help="with --cost: another checkout, to compare with")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="with --cost: how often each kind is measured")
    parser.add_argument("--of-a-kind", type=int, default=OF_A_KIND, help="with --cost: requests of a kind in a round")
    parser.add_argument("--results", type=Path, help=f"where to ({RESULTS.name}, or {COST_RESULTS.name})")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    if arguments.beside and not arguments.cost:
        parser.error("--beside compares what requests cost: it goes with --cost")
    return cost(arguments) if arguments.cost else latency(arguments)


if __name__ == "__main__":
    sys.exit(main())
