"""`weir-computes`: the computes of this machine, without API, database or Temporal.

`stop-all` is for taking the installation down: it does not change what is wanted, so the computes that should
run are started again by the next `up`.
"""

import argparse
import asyncio
import sys

from weir.clients.connections import Connections
from weir.config import get_settings
from weir_workflows.computes import control
from weir_workflows.runtime.local import LocalRuntime


async def _stop_all(runtime: LocalRuntime, mode: str) -> int:
    known = runtime.known()
    async with Connections() as http:
        results = await asyncio.gather(
            *(control.stop(runtime, http, compute_id, mode) for compute_id in known), return_exceptions=True
        )
    failed = 0
    for compute_id, result in zip(known, results, strict=True):
        if isinstance(result, BaseException):
            failed += 1
            sys.stderr.write(f"{compute_id}: {result}\n")
    return 1 if failed else 0


def _list(runtime: LocalRuntime) -> int:
    for compute_id in runtime.known():
        process = runtime.process(compute_id)
        spec = runtime.spec(compute_id) or {}
        state = "not running" if process is None else f"pid {process.pid}"
        sys.stdout.write(f"{compute_id}\t{spec.get('port', '-')}\t{state}\n")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="weir-computes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="id, Postgres port and pid of every compute that has a directory")
    stop = commands.add_parser("stop-all", help="stop every compute, remove dead mounts")
    stop.add_argument("--mode", choices=["suspend", "immediate"], default="suspend")
    commands.add_parser(
        "metadata-server", help="copy the installed Postgres, for the metadata store from its next start on"
    )
    arguments = parser.parse_args()
    runtime = LocalRuntime(get_settings())
    if arguments.command == "list":
        sys.exit(_list(runtime))
    if arguments.command == "metadata-server":
        server = runtime.servers.use_for_metadata()
        sys.stdout.write(f"{server.version}\t{server.bin_dir}\n")
        return
    sys.exit(asyncio.run(_stop_all(runtime, arguments.mode)))
