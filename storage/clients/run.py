"""`make test-clients`: tests that clients of Postgres bring along, three times: at a stock Postgres, at a Weir
through `weir-proxy` by an endpoint's own host name, and by its pooler's. What goes otherwise at the Weir is a failure
unless `known.toml` says why. What fails everywhere says nothing about Weir.

Both servers have the same role, a plain one that owns its database as Weir's roles do, the same certificate and the
settings that tests ask for. What a test needs beyond that (a superuser's rights, files of the server, a server that
it starts or stops) it finds on neither: it fails or skips itself on both, or `known.toml` leaves it out of both.

The outcomes of a run are kept in the folder of logs, by suite and way; `--table` prints the table of docs/drivers.md
of what is kept there.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))
sys.path.insert(0, str(HERE.parents[1] / "scripts"))

from devtools.builds import go  # noqa: E402
from outcomes import BROKE_OFF, Known, Outcomes, compare, table  # noqa: E402
from places import STOCK, WAYS, Servers, SuiteError, servers  # noqa: E402
from sources import CACHE, environment, module, source  # noqa: E402
from suites import DATABASE, SUITES, Parts, SqlAlchemy, Suite  # noqa: E402


def say(text: str) -> None:
    print(text, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="this suite only (repeatable)")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="this way only (repeatable)")
    parser.add_argument(
        "--tests",
        default=SqlAlchemy.WHOLE,
        help="a part of SQLAlchemy's tests, as pytest names it (default: %(default)s)",
    )
    parser.add_argument("--logs", type=Path, default=CACHE / "log" / "clients", help="where each run's output goes")
    parser.add_argument("--table", action="store_true", help="only print the table of the results that are kept")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    options.logs.mkdir(parents=True, exist_ok=True)
    # As at an interrupt: servers and mounts are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    known = Known.of(tomllib.loads((HERE / "known.toml").read_text()))
    if options.table:
        say(table({name: results(name, options.logs) for name in SUITES}))
        return 0
    parts = Parts(environment, source, lambda name, path: module(go(), name, path), go)
    whole = options.tests == SqlAlchemy.WHOLE
    failed = False
    for name in options.suite or SUITES:
        suite = SUITES[name](parts, options.tests)
        try:
            ways = [way for way in suite.ways if not options.way or way in options.way]
            failed |= differs(suite, ways, known, options.logs, whole=whole)
        except (SuiteError, ValueError) as error:
            failed = True
            say(f"{name}: {error}")
    say("failed" if failed else "what differs is known")
    return int(failed)


def differs(suite: Suite, ways: Sequence[str], known: Known, logs: Path, *, whole: bool) -> bool:
    """Whether a suite goes otherwise by one of the ways than at the stock server, without a known reason. Raises
    SuiteError and ValueError where it did not come to its end at the stock server, which would hide what differs."""
    failed = False
    with servers(*suite.proxy_arguments) as both:
        stock = outcomes(suite, STOCK, both, known, logs, whole=whole)
        if broken := [test for test, outcome in stock.of.items() if outcome == BROKE_OFF]:
            raise SuiteError(
                f"{', '.join(broken)} broke off at the stock server: leave out what panics, in known.toml"
            )
        for way in ways:
            try:
                found = outcomes(suite, way, both, known, logs, whole=whole)
            except (SuiteError, ValueError) as error:
                failed = True
                say(f"{suite.name}, {way}: {error}")
                continue
            lines = compare(stock, found, known.of_way(suite.name, way), stale=whole)
            failed |= bool(lines)
            for line in lines:
                say(f"  {suite.name}, {way}: {line}")
    return failed


def outcomes(suite: Suite, way: str, both: Servers, known: Known, logs: Path, *, whole: bool) -> Outcomes:
    begun = time.monotonic()
    kept(suite.name, way, logs).unlink(missing_ok=True)
    found = suite.outcomes(both.place(way, DATABASE, logs / f"{suite.name}-{way}", say), known.of_suite(suite.name))
    if whole:
        kept(suite.name, way, logs).write_text(json.dumps(dict(found.of), indent=1))
    say(f"{suite.name}, {way}: {found.summary()}, {time.monotonic() - begun:.0f} s")
    return found


def kept(suite: str, way: str, logs: Path) -> Path:
    return logs / f"{suite}-{way}-outcomes.json"


def results(suite: str, logs: Path) -> dict[str, Outcomes]:
    """The results that are kept of a suite's last whole runs, by way."""
    paths = {way: kept(suite, way, logs) for way in (STOCK, *WAYS)}
    return {way: Outcomes(json.loads(path.read_text())) for way, path in paths.items() if path.is_file()}


if __name__ == "__main__":
    raise SystemExit(main())
