"""Postgres's own test suites: fetched as data, built where they must be, run against any server of that version.

The source package comes from the distribution, as does the server; nothing of it is part of this repository. What
needs a compiler is one shared library of C functions that the regression tests create.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .postgres import PG_BIN, unprivileged

# The drivers and clients are 15's for every server.
TESTERS = Path("/usr/lib/postgresql/15/lib/pgxs/src/test")

# Tests of psql that an older one never ends: it obeys the `\watch` that a newer one refuses in a pipeline.
OF_THE_CLIENT = ("psql_pipeline",)


@dataclass(frozen=True)
class Package:
    """The distribution's source package of one major, and where it is."""

    major: int
    # None: the newest there is.
    version: str | None
    sources: tuple[str, ...]
    # Whether pgvector's source builds for it.
    vectors: bool = True

    @property
    def folder(self) -> Path:
        home = Path(os.environ.get("WEIR_CACHE", str(Path.home() / ".cache/weir")))
        return home / f"postgres-suite-{self.version or self.major}"

    def named(self, name: str) -> str:
        return f"{name}={self.version}" if self.version else name


PACKAGES = {
    15: Package(
        15,
        os.environ.get("WEIR_PG_SUITE_VERSION", "15.18-0+deb12u1"),
        (
            "http://deb.debian.org/debian bookworm main",
            "http://deb.debian.org/debian bookworm-updates main",
            "http://deb.debian.org/debian-security bookworm-security main",
        ),
    ),
    17: Package(17, None, ("http://deb.debian.org/debian trixie main",)),
    18: Package(18, None, ("http://deb.debian.org/debian sid main",), vectors=False),
}
# Where the source of pgvector is, which bookworm does not have yet.
VECTOR_SOURCE = "http://deb.debian.org/debian trixie main"
VECTOR_VERSION = "0.8.0-1"

# Contrib suites that need a server set up for them alone, a language that is not installed, or another server.
NOT_HERE = {
    "basic_archive": "needs an archive library loaded at start",
    "passwordcheck": "needs a library loaded at start",
    "pg_stat_statements": "needs a library loaded at start",
    "sepgsql": "needs SELinux",
    "dblink": "connects to a server built in the source tree",
    "test_decoding": "needs wal_level = logical; run in the phase that has it",
}


VECTORS = """
CREATE TABLE items (id int, e vector(12));
CREATE INDEX items_hnsw ON items USING hnsw (e vector_l2_ops) WITH (m = 8, ef_construction = 20);
INSERT INTO items SELECT i, ARRAY(SELECT (i * j) % 101 FROM generate_series(1, 12) j)::vector
  FROM generate_series(1, 3000) i;
CREATE INDEX items_lists ON items USING ivfflat (e vector_cosine_ops) WITH (lists = 20);
INSERT INTO items SELECT i, ARRAY(SELECT (i * j) % 103 FROM generate_series(1, 12) j)::vector
  FROM generate_series(3001, 5000) i;
DELETE FROM items WHERE id % 3 = 0;
VACUUM items;
UPDATE items SET e = (e + e)::vector WHERE id % 5 = 0;
INSERT INTO items SELECT i, ARRAY(SELECT (i * j) % 97 FROM generate_series(1, 12) j)::vector
  FROM generate_series(5001, 6500) i;
REINDEX INDEX items_lists;
DELETE FROM items;
VACUUM items;
"""
TRIGRAMS = """
CREATE EXTENSION pg_trgm;
CREATE TABLE phrases (id int, t text);
CREATE INDEX phrases_gin ON phrases USING gin (t gin_trgm_ops);
CREATE INDEX phrases_gist ON phrases USING gist (t gist_trgm_ops (siglen = 32));
INSERT INTO phrases SELECT i, md5(i::text) || ' ' || md5((i / 7)::text) FROM generate_series(1, 6000) i;
UPDATE phrases SET t = t || ' again' WHERE id % 4 = 0;
DELETE FROM phrases WHERE id % 3 = 0;
VACUUM phrases;
INSERT INTO phrases SELECT i, 'late ' || md5(i::text) FROM generate_series(6001, 8000) i;
VACUUM phrases;
"""


class SuiteError(Exception):
    """The suite could not be fetched, built or run; the message says at what."""


@dataclass(frozen=True)
class Outcome:
    """What one suite said. Tests that fail are no finding about redo: the WAL is checked either way."""

    name: str
    tests: int
    failed: tuple[str, ...]


def _run(command: Sequence[str], cwd: Path, timeout: float = 900) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    if result.returncode != 0:
        raise SuiteError(f"{' '.join(command[:6])} ...: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def fetch(package: Package, libraries: Path) -> Path:
    """The unpacked source with `lib/regress.so` beside it; downloads and builds on the first call. The server's own
    modules are in `libraries`.
    """
    folder, major = package.folder, package.major
    ready = folder / "complete"
    if ready.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    # An apt of its own: the machine's list of sources stays as it is.
    lines = [f"{kind} {source}\n" for kind in ("deb", "deb-src") for source in package.sources]
    lines.append(f"deb-src {VECTOR_SOURCE}\n")
    (folder / "sources.list").write_text("".join(lines))
    apt = [
        "apt-get",
        "-o",
        f"Dir::Etc::SourceList={folder}/sources.list",
        "-o",
        "Dir::Etc::SourceParts=/dev/null",
        "-o",
        f"Dir::State::Lists={folder}/lists",
        "-o",
        f"Dir::Cache={folder}",
        "-o",
        "APT::Sandbox::User=root",
    ]
    _run([*apt, "update"], folder)
    # The index kinds of pgvector log generic records. Debian 12 has no package of it.
    if package.vectors:
        _run([*apt, "source", "--download-only", f"pgvector={VECTOR_VERSION}"], folder)
    _run([*apt, "source", "--download-only", package.named(f"postgresql-{major}")], folder)
    _run([*apt, "download", package.named(f"postgresql-server-dev-{major}")], folder)
    archive = next(folder.glob(f"postgresql-{major}_*.orig.tar.*"))
    source = folder / "source"
    source.mkdir()
    wanted = ("*/src/test/regress", "*/src/test/isolation", "*/contrib")
    _run(["tar", "xf", str(archive), "-C", str(source), "--strip-components=1", "--wildcards", *wanted], folder)
    _run(["dpkg", "-x", str(next(folder.glob(f"postgresql-server-dev-{major}*.deb"))), str(folder / "dev")], folder)
    library = folder / "lib"
    library.mkdir()
    headers = folder / "dev/usr/include/postgresql"
    compiler = ["cc", "-O2", "-fPIC", "-shared", "-w", f"-I{headers}/{major}/server", f"-I{headers}/internal"]
    code = source / "src/test/regress/regress.c"
    _run([*compiler, "-I/usr/include/postgresql", "-o", str(library / "regress.so"), str(code)], folder)
    for name in ("refint.so", "autoinc.so"):
        shutil.copy(libraries / name, library / name)
    if package.vectors:
        _build_vector(folder, compiler)
    (folder / "version").write_text(re.sub(r".*_(.*)\.orig\.tar.*", r"\1", archive.name))
    for leftover in ("lists", "archives", "dev"):
        shutil.rmtree(folder / leftover)
    ready.touch()
    return folder


def _build_vector(folder: Path, compiler: Sequence[str]) -> None:
    """`lib/vector.so` and `lib/vector.sql`: pgvector without installing it, for the server stays as packaged."""
    source = folder / "pgvector"
    source.mkdir()
    archive = next(folder.glob("pgvector_*.orig.tar.*"))
    _run(["tar", "xf", str(archive), "-C", str(source), "--strip-components=1"], folder)
    code = [str(path) for path in sorted((source / "src").glob("*.c"))]
    _run([*compiler, "-o", str(folder / "lib/vector.so"), *code], folder)
    script = (source / "sql/vector.sql").read_text()
    lines = [line for line in script.splitlines() if not line.startswith("\\echo")]
    (folder / "lib/vector.sql").write_text("\n".join(lines) + "\n")
    shutil.rmtree(source)


@dataclass(frozen=True)
class Server:
    """Where the server is, for programs that take it in parts."""

    host: str
    port: int
    user: str


class Suites:
    """The suites, copied to where the unprivileged user may read and write."""

    def __init__(self, work: Path, server: Server, *, major: int = 15, as_root: bool = False) -> None:
        """`as_root` keeps the drivers with this process's user, where the server lets only that one in."""
        package = PACKAGES[major]
        self.work = work / "suite"
        self.server = server
        self.prefix = () if as_root else unprivileged()
        programs = PG_BIN if major == 15 else work / "server/bin"
        modules = programs.parent / "lib"
        source = fetch(package, modules if (modules / "refint.so").exists() else modules / "postgresql")
        named = source / "version"
        # Of what release the suite is.
        self.version = package.version or named.read_text()
        shutil.copytree(source / "source", self.work / "source")
        shutil.copytree(source / "lib", self.work / "lib")
        if os.geteuid() == 0:
            _run(["chown", "-R", "postgres:postgres", str(self.work)], work)

    def vectors(self) -> str:
        """SQL: the functions and index kinds of pgvector, where it is to be had, and work for them and pg_trgm's."""
        script = self.work / "lib/vector.sql"
        if not script.exists():
            return TRIGRAMS
        module = str(self.work / "lib/vector")
        return script.read_text().replace("MODULE_PATHNAME", module) + VECTORS + TRIGRAMS

    def regress(self, *, connections: int = 10) -> Outcome:
        home = self.work / "source/src/test/regress"
        schedule = self.work / "parallel_schedule"
        schedule.write_text(without(OF_THE_CLIENT, (home / "parallel_schedule").read_text()))
        options = [f"--schedule={schedule}", f"--max-connections={connections}", "--dbname=regression"]
        return self._pg_regress("regress", "regress/pg_regress", home, options)

    def isolation(self) -> Outcome:
        home = self.work / "source/src/test/isolation"
        options = [f"--schedule={home}/isolation_schedule", "--dbname=isolation_regression"]
        return self._pg_regress("isolation", "isolation/pg_isolation_regress", home, options)

    def contrib_modules(self) -> list[str]:
        """Modules with a suite that run here, by name."""
        found: list[str] = []
        for makefile in sorted((self.work / "source/contrib").glob("*/Makefile")):
            name = makefile.parent.name
            needs_language = "_pl" in name
            if name not in NOT_HERE and not needs_language and _variable(makefile, "REGRESS"):
                found.append(name)
        return found

    def contrib(self, module: str, *, kind: str = "REGRESS") -> Outcome:
        """One contrib module's suite; `kind` ISOLATION for the one with several sessions."""
        home = self.work / "source/contrib" / module
        makefile = home / "Makefile"
        tests = _variable(makefile, kind).split()
        options = [word for word in _variable(makefile, f"{kind}_OPTS").split() if word.startswith("--load-ext")]
        database = re.sub(r"\W", "_", module)
        options += [f"--dbname=contrib_regression_{database}", *tests]
        driver = "regress/pg_regress" if kind == "REGRESS" else "isolation/pg_isolation_regress"
        return self._pg_regress(f"contrib/{module}", driver, home, options)

    def _pg_regress(self, name: str, driver: str, home: Path, options: Sequence[str]) -> Outcome:
        output = self.work / "output" / name.replace("/", "_")
        # Tests have the server write to `results` and `testtablespace`, whoever runs the driver.
        (output / "results").mkdir(parents=True)
        _run(["chmod", "-R", "a+rwX", str(self.work / "output")], self.work)
        command = [
            *self.prefix,
            str(TESTERS / driver),
            f"--bindir={PG_BIN}",
            f"--host={self.server.host}",
            f"--port={self.server.port}",
            f"--user={self.server.user}",
            f"--inputdir={home}",
            f"--outputdir={output}",
            f"--dlpath={self.work}/lib",
            *options,
        ]
        # Some tests copy from `data/`, as seen from their module.
        result = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=3600, check=False)
        return parse_outcome(name, result.stdout, result.stderr)


def without(tests: Sequence[str], schedule: str) -> str:
    """A schedule of pg_regress, lines of `test: name name ...`, without these tests."""
    kept = []
    for line in schedule.splitlines():
        kind, _, names = line.partition(":")
        left = [name for name in names.split() if name not in tests]
        if kind != "test":
            kept.append(line)
        elif left:
            kept.append(f"test: {' '.join(left)}")
    return "\n".join(kept) + "\n"


def parse_outcome(name: str, stdout: str, stderr: str) -> Outcome:
    """Reads what pg_regress prints: a line a test, `... ok` or `... FAILED`."""
    results = re.findall(r"^(?:test |\s+)(\S+)\s+\.\.\. (ok|FAILED|failed \(ignored\))", stdout, re.MULTILINE)
    if not results:
        raise SuiteError(f"suite {name} ran no test:\n{stdout[-2000:]}\n{stderr[-2000:]}")
    return Outcome(name, len(results), tuple(test for test, verdict in results if verdict != "ok"))


def _variable(makefile: Path, name: str) -> str:
    """A variable of a makefile, its continued lines joined; empty when it is not set."""
    text = re.sub(r"\\\n\s*", " ", makefile.read_text())
    found = re.search(rf"^{name}\s*\+?=\s*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
