"""The suites of `make test-clients`, as the authors of drivers and of SQLAlchemy publish them: what each asks for,
how it is run in a database of its own, and what became of its tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from outcomes import LeftOut, Outcomes, read_go, read_junit
from places import ROLE, WAYS, Place
from proxying import PASSWORD

# Of one run of a suite, and of one test that a pooler leaves waiting, as for a notification that never comes.
MOST_SECONDS = 1800.0
MOST_SECONDS_OF_A_TEST = 60
# Go has no bound of one test: one that hangs costs what comes after it in its package, which then differs.
MOST_SECONDS_OF_A_PACKAGE = 600
# Drivers' own tests leave temporary tables and settings behind, and trust that those go with their session.
# SQLAlchemy's are run at a pooler as it is by default.
DISCARDING = ("--pool-discard",)
DATABASE = "suite"


class Suite(Protocol):
    """A suite. `name` is how options, logs and the lists call it; `proxy_arguments` are more ones of the proxy's."""

    @property
    def name(self) -> str: ...

    @property
    def proxy_arguments(self) -> Sequence[str]: ...

    @property
    def ways(self) -> Sequence[str]:
        """By which it is run at a Weir."""
        ...

    def outcomes(self, place: Place, left_out: Sequence[LeftOut]) -> Outcomes:
        """Runs it without what is `left_out`. Raises SuiteError when it did not come to its end, and ValueError when
        it had no tests."""
        ...


def _ended_in_pytest(line: str) -> int:
    return "::" in line and any(word in line for word in ("PASSED", "FAILED", "SKIPPED", "ERROR", "XFAIL", "XPASS"))


def _ended_in_go(line: str) -> int:
    # The last line may be there in part.
    return '"Test":' in line and any(f'"Action":"{end}"' in line for end in ("pass", "fail", "skip"))


@dataclass(frozen=True)
class Pytest:
    """What suites of Python have in common: the interpreter, which has the driver, and the folder they are run in."""

    python: Path
    folder: Path

    def run(
        self, place: Place, tests: Sequence[str], environment: dict[str, str], left_out: Sequence[LeftOut]
    ) -> Outcomes:
        results = place.log.with_suffix(".xml")
        results.unlink(missing_ok=True)
        bounds = ("--maxfail", "1000000", "--timeout", str(MOST_SECONDS_OF_A_TEST))
        deselected = (f"--deselect={test}" for one in left_out for test in one.tests)
        command = [str(self.python), "-m", "pytest", "-v", "-p", "no:cacheprovider", *bounds, *deselected]
        command += ["--junitxml", str(results), *tests]
        place.run(command, self.folder, environment, seconds=MOST_SECONDS, ended=_ended_in_pytest)
        return read_junit(results)


@dataclass(frozen=True)
class SqlAlchemy:
    """The tests of SQLAlchemy's dialect, by one driver."""

    driver: str
    pytest: Pytest
    tests: str
    proxy_arguments: Sequence[str] = ()
    ways: Sequence[str] = tuple(WAYS)

    WHOLE = "test/dialect/postgresql"
    # Not run: tests that compile statements and send none, and 8,000 tests that send one and the same for each pair
    # of ranges of six types. Ranges of ranges, which are fewer, stay.
    RANGES = ("Int4Range", "Int8Range", "NumRange", "DateRange", "DateTimeRange", "DateTimeTZRange")
    CHOSEN = " and ".join(f"not {part}" for part in ("Compil", *RANGES))

    @property
    def name(self) -> str:
        return f"sqlalchemy-{self.driver}"

    def outcomes(self, place: Place, left_out: Sequence[LeftOut]) -> Outcomes:
        # As SQLAlchemy's README.unittests.rst asks for.
        extensions = (f"CREATE EXTENSION {name}" for name in ("hstore", "citext", "pg_trgm"))
        place.make_database(["CREATE SCHEMA test_schema", "CREATE SCHEMA test_schema_2", *extensions])
        name = "ssl" if self.driver == "asyncpg" else "sslmode"
        where = f"{ROLE}:{quote(PASSWORD, safe='')}@{place.host}:{place.port}/{place.database}?{name}=verify-full"
        tests = (self.tests, "--dburi", f"postgresql+{self.driver}://{where}", "-k", self.CHOSEN)
        return self.pytest.run(place, tests, {"PGSSLROOTCERT": str(place.root_certificate)}, left_out)


@dataclass(frozen=True)
class Asyncpg:
    """asyncpg's own tests, which are in its source."""

    pytest: Pytest
    name: str = "asyncpg"
    proxy_arguments: Sequence[str] = DISCARDING
    ways: Sequence[str] = tuple(WAYS)

    def outcomes(self, place: Place, left_out: Sequence[LeftOut]) -> Outcomes:
        place.make_database([])
        return self.pytest.run(place, ("tests",), place.libpq, left_out)


@dataclass(frozen=True)
class Psycopg2:
    """psycopg2's own tests, which are in its source; psycopg 3 publishes none."""

    pytest: Pytest
    name: str = "psycopg2"
    proxy_arguments: Sequence[str] = DISCARDING
    ways: Sequence[str] = tuple(WAYS)

    def outcomes(self, place: Place, left_out: Sequence[LeftOut]) -> Outcomes:
        place.make_database(["CREATE EXTENSION hstore"])
        its = {
            "PSYCOPG2_TESTDB": place.database,
            "PSYCOPG2_TESTDB_HOST": place.host,
            "PSYCOPG2_TESTDB_PORT": str(place.port),
            "PSYCOPG2_TESTDB_USER": ROLE,
            # Put into a connection string as it is.
            "PSYCOPG2_TESTDB_PASSWORD": f"'{PASSWORD}'",
        }
        return self.pytest.run(place, ("tests",), {**place.libpq, **its}, left_out)


@dataclass(frozen=True)
class Go:
    """What suites of Go have in common: the compiler, and the module, which is what `go mod download` has checked."""

    go: Path
    module: Path

    def run(
        self, place: Place, packages: Sequence[str], environment: dict[str, str], left_out: Sequence[LeftOut]
    ) -> Outcomes:
        results = place.log.with_suffix(".json")
        # One test at a time: at a pooler others would find what a test leaves in a session.
        alone = ("-p", "1", "-parallel", "1", f"-timeout={MOST_SECONDS_OF_A_PACKAGE}s")
        command = [str(self.go), "test", "-json", "-count", "1", "-vet", "off", *alone]
        skipped = "|".join(test for one in left_out for test in one.tests)
        command += [f"-skip=^({skipped})$"] if skipped else []
        more = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", **environment}
        place.run([*command, *packages], self.module, more, seconds=MOST_SECONDS, ended=_ended_in_go, output=results)
        return read_go(results)


@dataclass(frozen=True)
class Pgx:
    """pgx's own tests, which are in its module."""

    go: Go
    name: str = "pgx"
    proxy_arguments: Sequence[str] = DISCARDING
    # Not the pooler: each of its tests of LISTEN waits for two minutes, and its packages end before they are done.
    ways: Sequence[str] = ("direct",)

    # Those whose tests connect.
    PACKAGES = (".", "./pgconn", "./pgtype/...", "./pgxpool", "./stdlib", "./tracelog")
    # What a test of the formatting of access lists names.
    TRICKY_ROLE = " tricky, ' } \" \\ test user "
    ADDRESSES = ("DATABASE", *(f"{kind}_CONN_STRING" for kind in ("TCP", "SCRAM_PASSWORD", "SCRAM_PLUS", "TLS")))

    def outcomes(self, place: Place, left_out: Sequence[LeftOut]) -> Outcomes:
        # As its testsetup/postgresql_setup.sql has it.
        extensions = (f"CREATE EXTENSION {name}" for name in ("hstore", "ltree"))
        place.make_database([*extensions, "CREATE DOMAIN uint64 AS numeric(20,0)"])
        place.make_roles(self.TRICKY_ROLE)
        where = {
            "host": place.host,
            "port": str(place.port),
            "user": ROLE,
            "password": PASSWORD,
            "dbname": place.database,
            "sslmode": "verify-full",
            "sslrootcert": str(place.root_certificate),
        }
        line = " ".join(f"{name}='{value}'" for name, value in where.items())
        return self.go.run(place, self.PACKAGES, {f"PGX_TEST_{name}": line for name in self.ADDRESSES}, left_out)


def apart(source: Path, folder: str) -> Path:
    """A copy of a source's folder of tests, alone: beside the source Python would take that, which is not compiled,
    for the driver."""
    target = source.parent / f"{source.name}-tests"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source / folder, target / folder)
        (target / "complete").touch()
    return target


@dataclass(frozen=True)
class Parts:
    """What fetches the parts of suites: an interpreter with the drivers, the source of a package of PyPI, a module of
    Go by the name that pins it and its path, and Go."""

    python: Callable[[], Path]
    source: Callable[[str], Path]
    module: Callable[[str, str], Path]
    go: Callable[[], Path]


def sqlalchemy(parts: Parts, driver: str, tests: str) -> Suite:
    return SqlAlchemy(driver, Pytest(parts.python(), parts.source("sqlalchemy")), tests)


SUITES: dict[str, Callable[[Parts, str], Suite]] = {
    "sqlalchemy-psycopg": lambda parts, tests: sqlalchemy(parts, "psycopg", tests),
    "sqlalchemy-psycopg2": lambda parts, tests: sqlalchemy(parts, "psycopg2", tests),
    "sqlalchemy-asyncpg": lambda parts, tests: sqlalchemy(parts, "asyncpg", tests),
    "asyncpg": lambda parts, _: Asyncpg(Pytest(parts.python(), apart(parts.source("asyncpg"), "tests"))),
    "psycopg2": lambda parts, _: Psycopg2(Pytest(parts.python(), apart(parts.source("psycopg2"), "tests"))),
    "pgx": lambda parts, _: Pgx(Go(parts.go(), parts.module("pgx", "github.com/jackc/pgx/v5"))),
}
