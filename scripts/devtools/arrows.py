"""Which packages of the Python half may import which: an import against an arrow is a finding of `tidy`.

A room is a module, or a package with everything below it. A rule names a room and who may import it; for a house of
several rooms it names what each room may import of the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .paths import REPO

SOURCES = {"weir": REPO / "backend", "weir_workflows": REPO / "workflows"}


@dataclass(frozen=True)
class Guarded:
    """Only these rooms, and the room itself, import `room`."""

    room: str
    importers: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Outside:
    """This room knows the rest only from outside: of our packages it imports itself and these, nothing else."""

    room: str
    imports: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class House:
    """Rooms from the floor up. Each may import what is named for it, and nothing else of the house."""

    name: str
    rooms: dict[str, tuple[str, ...]]


_FLOOR = ("models", "intent", "messages", "visibility")
_PLAN = (*_FLOOR, "features", "plan")

GUARDED = (
    Guarded(
        "weir.rollouts",
        ("weir.main", "weir.models", "weir.fleet", "weir_workflows"),
        "the core knows nothing of rollouts, which register at weir.main what they add to it",
    ),
    Guarded("weir.cli.resources", ("weir.cli.main",), "what runs an installation needs none of the API's commands"),
    Guarded("weir.fleet", ("weir.main",), "the fleet's pages stand above everything they show"),
    Guarded(
        "weir_workflows.rollout",
        ("weir_workflows.worker", "weir_workflows.reconciler"),
        "other workflows know nothing of rollouts",
    ),
    Guarded("weir_workflows", (), "the API knows workflows by name, never their code"),
)

OUTSIDE = (
    Outside(
        "weir.cli.resources",
        ("weir.cli.errors", "weir.cli.installation", "weir.cli.output"),
        "the commands for resources know the API by HTTP alone",
    ),
)

# Of `weir.cli.resources`: what all its commands use.
_COMMON = ("failures", "api", "target", "show", "names", "waiting", "complete", "use")

HOUSES = (
    House(
        "weir.cli.resources",
        {
            "failures": (),
            "api": ("failures",),
            "target": ("api",),
            "moments": (),
            "show": (),
            "names": ("api", "show"),
            "waiting": ("failures", "api"),
            "complete": ("api", "target"),
            "use": ("api", "target", "show", "names", "waiting", "complete"),
            "projects": (*_COMMON, "moments"),
            "branch_changes": (*_COMMON, "moments"),
            "schema_diff": (*_COMMON, "moments", "branch_changes"),
            "branches": (*_COMMON, "moments", "projects", "branch_changes", "schema_diff"),
            "snapshots": (*_COMMON, "moments", "branch_changes", "branches"),
            "computes": _COMMON,
            "databases": _COMMON,
            "operations": _COMMON,
            "organizations": (*_COMMON, "moments"),
            "connect": _COMMON,
            "rollout_changes": (*_COMMON, "moments"),
            "rollouts": (*_COMMON, "rollout_changes"),
            "quotas": _COMMON,
            "usage": (*_COMMON, "moments"),
            "commands": (
                *("projects", "branches", "snapshots", "computes", "databases", "operations", "organizations"),
                *("connect", "rollouts", "quotas", "usage", "complete"),
            ),
        },
    ),
    House(
        "weir.rollouts",
        {
            "models": (),
            "intent": (),
            "messages": (),
            "visibility": ("models",),
            "features": _FLOOR,
            "plan": (*_FLOOR, "features"),
            "run": _PLAN,
            "control": (*_PLAN, "run"),
            "evidence": (*_FLOOR, "run"),
            "report": (*_PLAN, "run", "evidence"),
            "assembly": (*_PLAN, "run", "control", "evidence", "report"),
        },
    ),
)


def modules() -> dict[str, Path]:
    """Every module of the Python half, by its dotted name."""
    found: dict[str, Path] = {}
    for package, source in SOURCES.items():
        for path in sorted((source / package).rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(text: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of whatever a module's text imports; of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def breaches(module: str, text: str) -> Iterator[str]:
    """Imports of one module that go against an arrow, as a sentence each."""
    for line, name in imports(text):
        for rule in GUARDED:
            allowed = any(within(module, room) for room in (rule.room, *rule.importers))
            if within(name, rule.room) and not allowed:
                yield f"{module}:{line} imports {name}: {rule.why}"
        for room in OUTSIDE:
            ours = any(within(name, source) for source in SOURCES)
            if within(module, room.room) and ours and not any(within(name, x) for x in (room.room, *room.imports)):
                yield f"{module}:{line} imports {name}: {room.why}"
        for house in HOUSES:
            own, other = _room(house, module), _room(house, name)
            if own is None or other is None or own == other:
                continue
            if other not in house.rooms.get(own, ()):
                yield f"{module}:{line} imports {name}: {house.name}.{own} may not import {house.name}.{other}"


def _room(house: House, name: str) -> str | None:
    prefix = f"{house.name}."
    return name.removeprefix(prefix).split(".")[0] if name.startswith(prefix) else None


def check() -> list[str]:
    """Every import against an arrow, and every room of a house that no rule describes."""
    problems: list[str] = []
    found = modules()
    for module, path in found.items():
        problems.extend(breaches(module, path.read_text()))
    for house in HOUSES:
        there = {room for name in found if (room := _room(house, name)) is not None}
        problems.extend(
            f"{house.name}.{room} is in no rule of arrows.py" for room in sorted(there ^ set(house.rooms))
        )
    return problems
