"""How the parts of the code lean on each other, and how many places one change touches: for a look at whether a
change of structure made the code easier to change.

A room is a package of the Python half (`weir.branches`), a feature of the console (`console.branches`) or a crate of
the engine (`engine.wire`). An arrow stands from a room to a room whose code it uses, tests left out: in Python by
`import`, in the console by the path of `import`, in the engine by the dependencies of `Cargo.toml`. Fan-in is how
many rooms use a room, fan-out how many it uses. Circles of the engine are between modules of one crate (`circles`).

    python -m devtools.structure                          this checkout
    python -m devtools.structure --compare dd96a42 HEAD   two commits, side by side
    python -m devtools.structure --field protected        another field than expires_at
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from . import arrows, circles, tidy
from .paths import REPO
from .run import say

LONGEST = 10
FIELD = "expires_at"
PYTHON = {"weir": "backend", "weir_workflows": "workflows"}
# From the column to the screen; each file counts for the first step whose beginning it has.
STEPS = {
    "migration": "backend/weir/migrations/",
    "API": "backend/weir/",
    "workflows": "workflows/weir_workflows/",
    "engine": "storage/crates/",
    "generated": "openapi/",
    "generated for the console": "frontend/src/api/generated/",
    "console": "frontend/src/",
    "documents": "docs/",
}
# In these steps the word alone says enough; elsewhere the file has to speak of branches too.
_NEEDS_BRANCH = {"migration", "API", "workflows", "engine", "console"}
_TS_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*['"]([^'"]+)['"]""")

Arrows = dict[str, set[str]]
# What is measured, how long, the longest first.
Lengths = list[tuple[str, int]]


@dataclass(frozen=True)
class Structure:
    """One tree of files, measured. Lengths are lines."""

    arrows: Arrows
    circles: list[str]
    functions: Lengths
    files: Lengths
    field: dict[str, list[str]]

    def fan_in(self, room: str) -> int:
        return sum(room in targets for targets in self.arrows.values())

    def fan_out(self, room: str) -> int:
        return len(self.arrows.get(room, ()))


def python_arrows(root: Path) -> Arrows:
    """Between the packages right below `weir` and `weir_workflows`."""
    found: Arrows = {}
    for package, source in PYTHON.items():
        for path in sorted((root / source / package).rglob("*.py")):
            parts = path.relative_to(root / source).with_suffix("").parts
            room = ".".join(parts[:2])
            if parts[1] in {"__init__", "migrations"}:
                continue
            targets = found.setdefault(room, set())
            for _, name in arrows.imports(path.read_text()):
                head = name.split(".")
                if head[0] in PYTHON and len(head) > 1:
                    targets.add(".".join(head[:2]))
    return {room: (targets & set(found)) - {room} for room, targets in found.items()}


def console_arrows(root: Path) -> Arrows:
    """Between the console's features."""
    features = root / "frontend" / "src" / "features"
    found: Arrows = {}
    for path in sorted((*features.rglob("*.ts"), *features.rglob("*.tsx"))):
        parts = path.relative_to(features).parts
        if len(parts) < 2 or ".test." in path.name:
            continue
        targets = found.setdefault(f"console.{parts[0]}", set())
        for name in _TS_IMPORT.findall(path.read_text()):
            if name.startswith("."):
                target = (path.parent / name).resolve()
            else:
                target = features.parent.resolve() / name.removeprefix("~/")
            if target.is_relative_to(features.resolve()) and target != features.resolve():
                targets.add(f"console.{target.relative_to(features.resolve()).parts[0]}")
    return {room: (targets & set(found)) - {room} for room, targets in found.items()}


def engine_arrows(root: Path) -> Arrows:
    """Between the engine's crates; what only their tests use is left out."""
    names = {path.parent.name: path for path in sorted((root / "storage" / "crates").glob("*/Cargo.toml"))}
    found: Arrows = {}
    for name, path in names.items():
        used = tomllib.loads(path.read_text()).get("dependencies", {})
        found[f"engine.{name}"] = {f"engine.{other}" for other in used if other in names}
    return found


def engine_circles(root: Path) -> list[str]:
    """Circles of files and of rooms in each crate, named as in `circles.ONE_THING`."""
    found: list[str] = []
    for source in sorted((root / "storage" / "crates").glob("*/src")):
        used = circles.Crate(source).arrows()
        of_crate = dict.fromkeys((*circles.circles(used), *circles.circles(circles.rooms(used))))
        found.extend(f"engine.{source.parent.name}: {', '.join(circle)}" for circle in of_crate)
    return found


def sources(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each source file that somebody wrote; tests and what is generated left out."""
    for top in ("backend", "workflows", "frontend/src", "storage/crates", "scripts"):
        for path in sorted((root / top).rglob("*")):
            name = path.relative_to(root).as_posix()
            measured = path.suffix in tidy.SOURCES and not name.startswith(tidy.UNMEASURED)
            if measured and not tidy.is_test(name) and path.is_file():
                yield name, path.read_text(errors="replace")


def mentions(root: Path, field: str) -> dict[str, list[str]]:
    """The files that name a field of a branch, by step from migration to console."""
    word = re.compile(rf"\b{re.escape(field)}\b")
    found: dict[str, list[str]] = {step: [] for step in STEPS}
    for top in dict.fromkeys(beginning.split("/")[0] for beginning in STEPS.values()):
        for path in sorted((root / top).rglob("*")):
            name = path.relative_to(root).as_posix()
            if not path.is_file() or "node_modules" in path.parts or tidy.is_test(name):
                continue
            step = next((step for step, beginning in STEPS.items() if name.startswith(beginning)), None)
            if step is None:
                continue
            text = path.read_bytes().decode(errors="replace")
            if word.search(text) and (step not in _NEEDS_BRANCH or "branch" in text.lower()):
                found[step].append(name)
    return found


def measure(root: Path, field: str) -> Structure:
    used = python_arrows(root) | console_arrows(root) | engine_arrows(root)
    functions: Lengths = []
    files: Lengths = []
    for name, text in sources(root):
        files.append((name, text.count("\n")))
        found = tidy.python_functions(text) if name.endswith(".py") else tidy.braced_functions(text)
        functions.extend((f"{name} {function}", length) for function, _, length in found)
    between = [", ".join(circle) for circle in circles.circles(used)]
    return Structure(
        arrows=used,
        circles=between + engine_circles(root),
        functions=sorted(functions, key=lambda item: (-item[1], item[0])),
        files=sorted(files, key=lambda item: (-item[1], item[0])),
        field=mentions(root, field),
    )


@contextmanager
def tree_of(commit: str) -> Generator[Path]:
    """A commit's files in a folder that goes again."""
    command = ["git", "-C", str(REPO), "archive", "--format=tar", commit]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        yield Path(folder)


def report(columns: dict[str, Structure], field: str) -> Iterator[str]:
    """Markdown: a column, or a list, for each tree."""
    head, rule = " | ".join(columns), "|".join("---:" for _ in columns)
    rooms = sorted(set().union(*(one.arrows for one in columns.values())))
    yield "Fan-in and fan-out, in / out:"
    yield ""
    yield f"| room | {head} |"
    yield f"|---|{rule}|"
    for room in rooms:
        cells = (
            f"{one.fan_in(room)} / {one.fan_out(room)}" if room in one.arrows else "none" for one in columns.values()
        )
        yield f"| `{room}` | {' | '.join(cells)} |"
    yield ""
    yield f"| in all | {head} |"
    yield f"|---|{rule}|"
    for what, count in _sums(field).items():
        yield f"| {what} | {' | '.join(str(count(one)) for one in columns.values())} |"
    for name, one in columns.items():
        for title, lines in (
            ("Circles", one.circles),
            ("Longest functions", [f"{lines} lines: {what}" for what, lines in one.functions[:LONGEST]]),
            ("Largest files", [f"{lines} lines: {what}" for what, lines in one.files[:LONGEST]]),
            (f"Files that name `{field}`", [f"{step}: {what}" for step, all_ in one.field.items() for what in all_]),
        ):
            yield ""
            yield f"{title}, {name}:"
            yield ""
            yield from (f"- {line}" for line in lines or ["none"])


def _sums(field: str) -> dict[str, Callable[[Structure], int]]:
    return {
        "rooms": lambda one: len(one.arrows),
        "arrows between rooms": lambda one: sum(map(len, one.arrows.values())),
        "circles": lambda one: len(one.circles),
        f"functions above {tidy.FUNCTION_LINES} lines": lambda one: _above(one.functions, tidy.FUNCTION_LINES),
        f"files above {tidy.FILE_LINES} lines": lambda one: _above(one.files, tidy.FILE_LINES),
        f"files that name `{field}`": lambda one: sum(map(len, one.field.values())),
    }


def _above(lengths: Lengths, limit: int) -> int:
    return sum(length > limit for _, length in lengths)


def main() -> None:
    parser = argparse.ArgumentParser(description="How the code's rooms lean on each other, as Markdown.")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two commits instead of this checkout")
    parser.add_argument("--field", default=FIELD, help="a field of a branch whose places are listed")
    arguments = parser.parse_args()
    columns: dict[str, Structure] = {}
    if arguments.compare is None:
        columns["this checkout"] = measure(REPO, arguments.field)
    for commit in arguments.compare or ():
        with tree_of(commit) as root:
            columns[commit] = measure(root, arguments.field)
    for line in report(columns, arguments.field):
        say(line)


if __name__ == "__main__":
    main()
