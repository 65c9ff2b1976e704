"""Programs that others wrote and Weir starts: those that set-up builds from Go modules, and Postgres."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from devtools.run import capture
from devtools.servers import SERVERS

from .part import Part, Use

# What set-up builds, and whether people run it: process-compose and Temporal are started by `weir up`.
PROGRAMS: Mapping[str, Use] = {
    "temporal": Use.RUN,
    "process-compose": Use.RUN,
    "versitygw": Use.BUILD,
    "weir-torture": Use.BUILD,
    "weir-pgx-client": Use.BUILD,
}


def parts(programs: Path, postgres: Path) -> list[Part]:
    """Fails when a program has not been built: run `make setup` first."""
    return [*go_modules(programs, _inside), *servers(), *_system_postgres(postgres)]


def _inside(program: Path) -> str:
    text = capture(("go", "version", "-m", program))
    if text is None:
        raise FileNotFoundError(f"{program} is not there, or Go is not: run `make setup` first")
    return text


def go_modules(programs: Path, inside: Callable[[Path], str]) -> list[Part]:
    """The modules that each program was linked from, as the program itself says (`go version -m`)."""
    return [part for name, use in PROGRAMS.items() for part in modules_of(name, use, inside(programs / name))]


def modules_of(name: str, use: Use, said: str) -> list[Part]:
    """The modules in what `go version -m` said of the program `name`; none where it is no program of Go's."""
    found: list[Part] = []
    for line in said.splitlines():
        fields = line.split("\t")[1:]
        if len(fields) < 3 or fields[0] not in {"mod", "dep"} or not re.match(r"v\d", fields[2]):
            continue
        found.append(Part("golang", fields[1], fields[2], use=use, used_by=frozenset({name})))
    return found


def servers() -> list[Part]:
    """The copies of Postgres that tests of redo use."""
    return [
        Part(
            "generic",
            "postgresql",
            server.version,
            use=Use.BUILD,
            licence="PostgreSQL",
            hashes=frozenset({server.sha256}),
            used_by=frozenset({"tests of redo"}),
        )
        for server in SERVERS
    ]


def _system_postgres(postgres: Path) -> list[Part]:
    said = capture((postgres / "postgres", "--version")) or ""
    version = re.search(r"\(PostgreSQL\) ([\d.]+)", said)
    if version is None:
        return []
    return [Part("generic", "postgresql", version[1], Use.RUN, "PostgreSQL", used_by=frozenset({"computes"}))]
