"""`make test-clients`: tests that clients of Postgres bring along, three times: at a stock Postgres, through
`weir-proxy` at an endpoint's own host, and at its pooler's. What goes otherwise through the proxy than without it is
a failure unless `known.toml` says why. What fails at the stock Postgres, too, says nothing about the proxy.

Sources and what runs them are pinned by hashes (`sources.txt`, `requirements.txt`); they are kept in ~/.cache/weir.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))

from outcomes import Known, Outcomes, compare, read_junit  # noqa: E402
from proxying import ENDPOINT, PASSWORD, Proxy, proxied  # noqa: E402

CACHE = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache" / "weir"))
UV = CACHE / "uv-venv" / "bin" / "uv"
STOCK = "stock"
# Ways through the proxy, by what is added to the endpoint's name.
WAYS = {"proxy": "", "pooler": "-pooler"}
# asyncpg prepares each statement by name, and these tests make tables and types of one name anew time and again: a
# pooler's server connections have statements of before then (docs/adr/0085).
DRIVERS = ("psycopg", "asyncpg")
SUITE = "test/dialect/postgresql"
# Not run: tests that compile statements and send none, and 8,000 tests that send one and the same for each pair of
# ranges of six types. Ranges of ranges, which are fewer, stay.
RANGES = ("Int4Range", "Int8Range", "NumRange", "DateRange", "DateTimeRange", "DateTimeTZRange")
CHOSEN = " and ".join(f"not {part}" for part in ("Compil", *RANGES))
# Of one run of a suite.
MOST_SECONDS = 1800


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver", action="append", choices=DRIVERS, help="by this driver only (repeatable)")
    parser.add_argument(
        "--tests", default=SUITE, help="a part of the suite, as pytest names it (default: %(default)s)"
    )
    parser.add_argument("--logs", type=Path, default=CACHE / "log" / "clients", help="where each run's output goes")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    python = environment()
    source = sqlalchemy()
    known = Known.of(tomllib.loads((HERE / "known.toml").read_text()))
    whole = options.tests == SUITE
    failed = False
    with proxied("--pool-size", "10") as proxy:
        with proxy.stock.admin() as admin:
            # The suites make schemas, extensions and types, and look at settings of the server.
            admin.execute("ALTER ROLE app SUPERUSER")
        for driver in options.driver or DRIVERS:
            found: dict[str, Outcomes] = {}
            for way in (STOCK, *WAYS):
                run = Run(driver, way, source, python, options.logs / f"sqlalchemy-{driver}-{way}")
                found[way] = run.outcomes(proxy, options.tests)
                say(f"SQLAlchemy by {driver}, {way}: {found[way].summary()}")
            for way in WAYS:
                lines = compare(found[STOCK], found[way], known.of_way(driver, way), stale=whole)
                failed |= bool(lines)
                for line in lines:
                    say(f"  {driver}, {way}: {line}")
    say("failed" if failed else "what differs is known")
    return int(failed)


def environment() -> Path:
    """Python with what the suites need, made again when the lock changes."""
    lock = HERE / "requirements.txt"
    home = CACHE / f"clients-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        must(UV, "venv", "--quiet", "--clear", "--python", sys.executable, home)
        must(UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock)
        (home / "complete").touch()
    return python


def sqlalchemy() -> Path:
    """SQLAlchemy's source, unpacked."""
    lock = HERE / "sources.txt"
    home = CACHE / f"clients-sources-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not (home / "complete").exists():
        home.mkdir(exist_ok=True)
        options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
        must(environment(), "-m", "pip", "download", *options, "-d", home, "-r", lock)
        for archive in home.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(home, filter="data")
        (home / "complete").touch()
    return next(path for path in home.glob("sqlalchemy-*") if path.is_dir())


def must(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=MOST_SECONDS)


@dataclass(frozen=True)
class Run:
    """One suite by one driver, one way. Its output and results go to `log`, with suffixes."""

    driver: str
    way: str
    source: Path
    python: Path
    log: Path

    def outcomes(self, proxy: Proxy, tests: str) -> Outcomes:
        """Runs the suite in a database of its own. Raises RuntimeError when it did not come to its end."""
        database = f"sa_{self.driver}_{self.way}"
        self._database(proxy, database)
        results = self.log.with_suffix(".xml")
        results.unlink(missing_ok=True)
        command = [
            *(str(self.python), "-m", "pytest", tests, "--dburi", self._address(proxy, database)),
            *("-q", "-k", CHOSEN, "-p", "no:cacheprovider", "--maxfail", "1000000", "--junitxml", str(results)),
        ]
        environment = {**os.environ, "PGSSLROOTCERT": str(proxy.authority.root), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        with self.log.with_suffix(".log").open("wb") as log:
            done = subprocess.run(
                command, cwd=self.source, env=environment, stdout=log, stderr=log, timeout=MOST_SECONDS, check=False
            )
        # 1: some tests failed.
        if done.returncode not in {0, 1} or not results.is_file():
            raise RuntimeError(f"the suite ended with status {done.returncode}; its output is {self.log}.log")
        return read_junit(results)

    def _database(self, proxy: Proxy, name: str) -> None:
        """As SQLAlchemy's README.unittests.rst asks for."""
        with proxy.stock.admin() as admin:
            admin.execute(f"CREATE DATABASE {name} OWNER app".encode())
        where: dict[str, Any] = {"host": "127.0.0.1", "port": proxy.stock.port, "user": "app", "password": PASSWORD}
        with psycopg.connect(**where, dbname=name, autocommit=True) as connection:
            for statement in (
                "CREATE SCHEMA test_schema",
                "CREATE SCHEMA test_schema_2",
                "CREATE EXTENSION hstore",
                "CREATE EXTENSION citext",
                "CREATE EXTENSION pg_trgm",
            ):
                connection.execute(statement.encode())

    def _address(self, proxy: Proxy, database: str) -> str:
        # The endpoint is named in the user: some tests make addresses of their own, of user, password, host and port.
        user, port, tls = f"endpoint={ENDPOINT}{WAYS.get(self.way, '')};app", proxy.port, "verify-ca"
        if self.way == STOCK:
            user, port, tls = "app", proxy.stock.port, "disable"
        name = "sslmode" if self.driver == "psycopg" else "ssl"
        login = f"{quote(user, safe='')}:{quote(PASSWORD, safe='')}"
        return f"postgresql+{self.driver}://{login}@127.0.0.1:{port}/{database}?{name}={tls}"


if __name__ == "__main__":
    raise SystemExit(main())
