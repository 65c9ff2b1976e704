"""Circles of modules in the Rust half: files of one crate that use each other in a loop. A circle is a finding of
`tidy` unless `ONE_THING` names it with the reason.

An arrow stands from a file to the file that defines a name it uses, found in the text: `use` declarations and paths
that begin with `crate`, `super`, `self`, a module's own name or an imported module. Names that a module passes on
(`pub use`) lead to the file that defines them. A module and the modules in it are one room: what `a::b` uses of `a`
is no arrow. Circles are looked for between files, and between rooms as wholes. Tests are left out, and so are names
that come by `use x::*` of a module that does not define them, and calls of methods, which show no path.

    python -m devtools.circles      each crate's files: how many files each uses (out), how many use it (in); circles
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .paths import REPO
from .run import say

CRATES = REPO / "storage" / "crates"

# Circles that are one thing in several files: `crate: module, module`, and why. The head of one of the files says it
# too.
ONE_THING: dict[str, str] = {
    "blob: keys, store": "a store holds the data keys of its tenants, which it loads out of itself",
    "pg-types: v15, v17, v18, version": (
        "a control file is laid out as 15 has it, and holds its numbers against the facts of whichever major wrote it"
    ),
    "protocol-model: model, properties, scenario, step": (
        "the checker's trait names steps and properties of one model, and all of them speak of its scenario"
    ),
    "record-crc: lib, wide": "one checksum in several ways, which share the shape of a record",
}

# From the crate's root; empty for the root.
ModulePath = tuple[str, ...]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'r#*"(?:.*?)"#*|b?"(?:\\.|[^"\\])*"', re.DOTALL)
_TEST_MODULE = re.compile(
    r"#\[cfg\((?:test|any\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])"
)
_USE = re.compile(r"(?:^|[\s;{}])(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
_ITEMS = "struct|enum|trait|fn|const|static|type"
_PATH = re.compile(r"\b((?:\w+::)+)(\w+)")


@dataclass
class Module:
    """One file. `names`: what its `use` declarations bind, as absolute paths of the crate."""

    path: ModulePath
    text: str
    names: dict[str, ModulePath] = field(default_factory=dict[str, ModulePath])
    globs: list[ModulePath] = field(default_factory=list[ModulePath])

    @property
    def name(self) -> str:
        return "::".join(self.path) or "lib"


def _block_end(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def _without_tests(text: str) -> tuple[str, set[str]]:
    """The text without modules of tests, and the names of those that are files of their own."""
    files: set[str] = set()
    while (found := _TEST_MODULE.search(text)) is not None:
        end = found.end()
        if found[2] == "{":
            end = _block_end(text, found.end() - 1)
        else:
            files.add(found[1])
        text = text[: found.start()] + text[end:]
    return text, files


def _tree(text: str) -> Iterator[ModulePath]:
    """The paths of one `use` tree; the last part is the bound name after `as`, appended as `=name`."""
    text = text.strip()
    opening = text.find("{")
    if opening < 0:
        path, _, alias = text.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::"))
        yield (*parts, f"={alias.strip()}") if alias else parts
        return
    prefix = tuple(part.strip() for part in text[:opening].split("::") if part.strip())
    depth, start, inner = 0, 0, text[opening + 1 : text.rindex("}")]
    for at, char in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if inner[start:at].strip():
                for rest in _tree(inner[start:at]):
                    yield (*prefix, *rest)
            start = at + 1


def _is_room_of(ancestor: ModulePath, path: ModulePath) -> bool:
    """Whether `path` is the module `ancestor` or lies in it. The root is no room: all modules lie in it."""
    return ancestor == path or (bool(ancestor) and path[: len(ancestor)] == ancestor)


class Crate:
    """The modules of one crate's `src`, without its programs (`bin`) and tests."""

    def __init__(self, source: Path) -> None:
        self.modules: dict[ModulePath, Module] = {}
        tests: set[ModulePath] = set()
        for file in sorted(source.rglob("*.rs")):
            parts = file.relative_to(source).with_suffix("").parts
            if parts[0] in {"bin", "main"}:
                continue
            path = () if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts
            text, test_files = _without_tests(_COMMENT.sub("", _STRING.sub('""', file.read_text())))
            tests |= {(*path, name) for name in test_files} | {(*path[:-1], name) for name in test_files}
            self.modules[path] = Module(path, text)
        for path in [path for path in self.modules if any(path[: len(test)] == test for test in tests)]:
            del self.modules[path]
        for module in self.modules.values():
            self._bind(module)

    def _bind(self, module: Module) -> None:
        for _, tree in _USE.findall(module.text):
            for path in _tree(tree):
                alias = path[-1][1:] if path[-1].startswith("=") else None
                absolute = self._absolute(module, path[:-1] if alias else path)
                if absolute is None:
                    continue
                if absolute[-1:] == ("*",):
                    module.globs.append(absolute[:-1])
                elif absolute:
                    module.names[alias or absolute[-1]] = absolute

    def _absolute(self, module: Module, path: ModulePath) -> ModulePath | None:
        """A path as the file writes it, from the crate's root; None for another crate's."""
        at: ModulePath | None = None
        if path[0] == "crate":
            at, path = (), path[1:]
        elif path[0] == "self":
            at, path = module.path, path[1:]
        while path and path[0] == "super":
            at, path = (module.path if at is None else at)[:-1], path[1:]
        if at is None:
            if (*module.path, path[0]) in self.modules:
                at = module.path
            elif path[0] in module.names:
                at, path = module.names[path[0]], path[1:]
            else:
                return None
        if path[-1:] == ("self",):
            path = path[:-1]
        return (*at, *path)

    def defining(self, path: ModulePath, seen: frozenset[ModulePath] = frozenset()) -> ModulePath | None:
        """The module whose file defines what a path names. None where the path is not of this crate."""
        for length in range(len(path), -1, -1):
            module = self.modules.get(path[:length])
            if module is not None:
                break
        else:
            return None
        rest = path[length:]
        if not rest or path in seen:
            return module.path
        if rest[0] in module.names:
            return self.defining((*module.names[rest[0]], *rest[1:]), seen | {path})
        for glob in module.globs:
            target = self.modules.get(glob)
            if target is not None and re.search(rf"\b(?:{_ITEMS})\s+{rest[0]}\b", target.text):
                return target.path
        return module.path

    def arrows(self) -> dict[str, set[str]]:
        """Each file with the files whose names it uses."""
        found: dict[str, set[str]] = {}
        for module in self.modules.values():
            used: set[ModulePath] = set()
            for exported, tree in _USE.findall(module.text):
                if exported:
                    continue
                for path in _tree(tree):
                    absolute = self._absolute(module, path[:-1] if path[-1].startswith("=") else path)
                    # A module's own name says nothing yet: what is used of it follows in the text.
                    if absolute is not None and absolute not in self.modules and absolute[-1:] != ("*",):
                        used.add(absolute)
            code = _USE.sub(" ", module.text)
            for head, last in _PATH.findall(code):
                absolute = self._absolute(module, (*head.rstrip(":").split("::"), last))
                if absolute is not None:
                    used.add(absolute)
            targets = {target for path in used if (target := self.defining(path)) is not None}
            outside = (target for target in targets if not _is_room_of(target, module.path))
            found[module.name] = {self.modules[target].name for target in outside}
        return found


def circles(arrows: dict[str, set[str]]) -> list[ModulePath]:
    """Strongly connected files, at least two together, sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[ModulePath] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(arrows.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return sorted(found)


def rooms(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same arrows between the rooms of a crate: its top modules, each with all that lies in it."""
    found: dict[str, set[str]] = {}
    for name, targets in arrows.items():
        room = name.split("::")[0]
        others = {target.split("::")[0] for target in targets} - {room}
        found.setdefault(room, set()).update(others)
    return found


def every_crate() -> dict[str, dict[str, set[str]]]:
    return {path.parent.name: Crate(path).arrows() for path in sorted(CRATES.glob("*/src"))}


def check() -> list[str]:
    """Every circle that `ONE_THING` does not name, and every name there that is no circle."""
    problems: list[str] = []
    there: set[str] = set()
    for crate, arrows in every_crate().items():
        for circle in dict.fromkeys((*circles(arrows), *circles(rooms(arrows)))):
            name = f"{crate}: {', '.join(circle)}"
            there.add(name)
            if name not in ONE_THING:
                problems.append(f"{name} use each other in a loop")
    return problems + [f"{name} is in circles.py but is no circle" for name in sorted(set(ONE_THING) - there)]


def main() -> None:
    for crate, arrows in every_crate().items():
        say(crate)
        for name, targets in sorted(arrows.items()):
            users = sum(name in others for others in arrows.values())
            say(f"  {name:<44} out {len(targets):>2}  in {users:>2}")
        for circle in circles(arrows):
            say(f"  circle: {', '.join(circle)}")
            for name in circle:
                say(f"    {name} uses {', '.join(sorted(arrows[name] & set(circle)))}")


if __name__ == "__main__":
    main()
