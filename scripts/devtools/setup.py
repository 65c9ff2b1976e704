"""`scripts/setup`: from a clean checkout to everything built. Safe to run again; a step with nothing to do says so.

Only system packages need root. Everything else goes below ~/.cache/weir (or $WEIR_CACHE), where it is kept
between checkouts, so that nothing is downloaded twice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import builds, servers, system
from .paths import CACHE, LOGS
from .run import StepError, duration, say


@dataclass(frozen=True)
class Step:
    name: str
    what: str
    run: Callable[[], str]


STEPS = (
    Step("tools", "compilers and interpreters", system.check_tools),
    Step("packages", "Debian packages: PostgreSQL 15, FUSE, Prometheus, Chromium, a JDK", system.install_packages),
    Step("host", "what the kernel and the accounts must offer", system.check_host),
    Step("servers", "other servers of Postgres 15, 17 and 18, for tests of redo", servers.install_servers),
    Step("uv", "uv, the Python installer", builds.install_uv),
    Step("python", "the control plane's Python environment", builds.sync_python),
    Step(
        "identity-provider", "an identity provider of npm, for tests of signing in", builds.install_identity_provider
    ),
    Step("temporal", "the Temporal dev server (cold: about 5 min)", builds.build_temporal),
    Step("supervisor", "process-compose (cold: about 2 min)", builds.build_supervisor),
    Step("s3-server", "an S3 server, for tests of object storage (cold: about 2 min)", builds.build_s3_server),
    Step("torture", "the checker and the proxy of the torture of storage, in Go", builds.build_torture),
    Step("pgx-client", "a client of the proxy by pgx, in Go", builds.build_pgx_client),
    Step("jdbc-driver", "the JDBC driver, for a client of the proxy", builds.fetch_jdbc_driver),
    Step("provider-modules", "the Go modules of the Terraform provider", builds.fetch_provider_modules),
    Step("storage", "the storage engine, in Rust (cold: about 8 min)", builds.build_storage),
    Step("console-deps", "the console's npm packages", builds.install_console_packages),
    Step("console", "the console", builds.build_console),
    Step("e2e-deps", "npm packages of the browser journeys and of the proxy's clients", builds.install_e2e_packages),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/setup", description=__doc__)
    parser.add_argument("--only", metavar="STEP", action="append", help="run only this step (repeatable)")
    parser.add_argument("--skip", metavar="STEP", action="append", default=[], help="leave this step out")
    parser.add_argument("--list", action="store_true", help="list the steps and stop")
    options = parser.parse_args()
    names = {step.name for step in STEPS}
    unknown = sorted(set((options.only or []) + options.skip) - names)
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)} (see --list)")
    if options.list:
        for step in STEPS:
            say(f"{step.name:14} {step.what}")
        return 0
    chosen = [s for s in STEPS if (not options.only or s.name in options.only) and s.name not in options.skip]
    return run_steps(chosen)


def run_steps(steps: list[Step]) -> int:
    started = time.monotonic()
    for number, step in enumerate(steps, 1):
        say(f"[{number}/{len(steps)}] {step.what}")
        begun = time.monotonic()
        try:
            outcome = step.run()
        except StepError as failure:
            say(f"      FAILED after {duration(time.monotonic() - begun)}")
            say()
            say(str(failure))
            say()
            say(f"Set-up stopped at step {step.name!r}. Run it again when that is mended: what is done stays done.")
            return 1
        say(f"      {outcome} ({duration(time.monotonic() - begun)})")
    say(f"Set-up is complete ({duration(time.monotonic() - started)}). Cache: {CACHE}, logs: {LOGS}.")
    return 0
