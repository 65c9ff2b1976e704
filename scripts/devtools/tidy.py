"""The house rules a formatter does not know: how long files and functions may get, which package may import which
(`arrows`), and what never gets in.

Exceptions are listed in scripts/tidy-allow.txt, each with its own limit and its reason; an exception that is no
longer needed is an error too, so the list only shrinks.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import arrows, circles
from .paths import REPO
from .run import say

FILE_LINES = 450
TEST_FILE_LINES = 800
FUNCTION_LINES = 80
TEST_FUNCTION_LINES = 130
SOURCES = {".py", ".rs", ".go", ".ts", ".tsx"}
# A migration is written once and read from top to bottom.
UNMEASURED = ("frontend/src/api/generated/", "backend/weir/migrations/versions/")
ALLOWED = REPO / "scripts" / "tidy-allow.txt"

_RETIRED = "a retired name (docs/glossary.md)"
# Never in the repository: places of one machine, work left for later, leftovers of looking for a fault.
FORBIDDEN = {
    r"(?<![\w.-])/work/": "a path of one machine",
    r"\b(TODO|FIXME|XXX|HACK)\b": "work left for later: do it, or open an issue",
    r"\bdbg!\(": "a leftover of debugging",
    r"\bconsole\.log\(": "a leftover of debugging",
    r"\blorem ipsum\b": "filler text",
    r"^(<{7}|>{7}) ": "an unresolved merge",
    r"\b(?:struct|enum|trait|type|class|interface) (?:Kept|Unkept|Taker|Told|Mending)\b": _RETIRED,
    r"\b(?:fn|def|function) (?:look|tell|settle)\b": _RETIRED,
}
UNSEARCHED = {"scripts/devtools/tidy.py", "uv.lock", "storage/Cargo.lock", "LICENSE"}
TEXT_LIMIT = 2_000_000


@dataclass(frozen=True)
class Finding:
    key: str
    lines: int
    limit: int
    text: str


def tracked_files() -> list[str]:
    """What git knows, plus what it would pick up: the same on a developer's machine and in CI."""
    command = ["git", "-C", str(REPO), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (REPO / name).is_file()]


def is_test(name: str) -> bool:
    parts = Path(name).parts
    return (
        any(part in {"tests", "e2e", "system"} for part in parts)
        or ".test." in name
        or name.endswith("_test.go")
        or Path(name).name in {"tests.rs", "test_support.rs"}
    )


def lengths(name: str, text: str) -> Iterator[Finding]:
    test = is_test(name)
    lines = text.count("\n")
    limit = TEST_FILE_LINES if test else FILE_LINES
    if lines > limit:
        yield Finding(name, lines, limit, f"{name} has {lines} lines, {limit} are the limit")
    limit = TEST_FUNCTION_LINES if test else FUNCTION_LINES
    functions = python_functions(text) if name.endswith(".py") else braced_functions(text)
    for function, start, length in functions:
        if length > limit:
            where = f"{name}:{start} {function}"
            yield Finding(f"{name}:{function}", length, limit, f"{where} has {length} lines, {limit} are the limit")


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


_BRACED = re.compile(
    r"^(?P<indent>\s*)(?:"
    r"(?:pub(?:\([^)]*\))? )?(?:default )?(?:const )?(?:async )?(?:unsafe )?(?:extern \"C\" )?fn (?P<rust>\w+)"
    r"|(?:export )?(?:default )?(?:async )?function (?P<ts>\w+)"
    r"|func (?:\([^)]*\) )?(?P<go>\w+)"
    r"|(?:export )?const (?P<arrow>\w+)\b[^=]*=\s*(?:async )?\([^)]*\)[^=]*=>\s*\{$"
    r")"
)


def braced_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Functions of Rust, Go and TypeScript. Formatted code closes a function at the indentation where it began.

    Only what has state or logic counts for components: a function that returns markup is as long as its markup,
    so its lines of markup are not held against it.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _BRACED.match(line)
        if match is None:
            continue
        closing = match["indent"] + "}"
        end = next((n for n in range(number + 1, len(lines)) if lines[n].rstrip(";,)") == closing), None)
        if end is None:
            continue
        body = lines[number : end + 1]
        markup = sum(1 for text_line in body if re.match(r"\s*(<|/>|\)?\}?>)|^\s+\w+=[{\"]", text_line))
        yield match["rust"] or match["ts"] or match["go"] or match["arrow"], number + 1, len(body) - markup


def forbidden(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, why in FORBIDDEN.items():
            if re.search(pattern, line, re.IGNORECASE if pattern.startswith(r"\blorem") else 0):
                yield f"{name}:{number} holds {why}: {line.strip()[:100]}"


_PRONOUN = re.compile(
    r"\s*/// (?:It|Its|They|Their|Who|Whose|Whom|Whoever|Nobody|Somebody|Everybody|Told|Said|Asked)\b"
)


def nameless(name: str, text: str) -> Iterator[str]:
    """Documentation of Rust items that begins with a pronoun: its subject has to be guessed from the code."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if _PRONOUN.match(line) and not before.lstrip().startswith("///"):
            yield f"{name}:{number} begins with a pronoun, name the subject: {line.strip()[:100]}"
        before = line


_WATCHED = re.compile(r"storage/crates/(?:pageserver|safekeeper|blob)/src/")
_UNWATCHED = re.compile(r"\b(?:tokio::spawn|(?:tokio::task::)?block_in_place)\(")


def unwatched(name: str, text: str) -> Iterator[str]:
    """Tasks of storage programs that are spawned so that no stall of theirs is seen (crates/stalls); tests may."""
    if not _WATCHED.match(name) or is_test(name):
        return
    for number, line in enumerate(text.split("#[cfg(test)]", 1)[0].splitlines(), 1):
        if _UNWATCHED.search(line):
            yield f"{name}:{number} is not watched, use `stalls::spawn` or `stalls::off_worker`: {line.strip()[:100]}"


def allowances() -> dict[str, int]:
    """`path[:function] limit  reason` a line; `#` starts a comment."""
    allowed: dict[str, int] = {}
    if ALLOWED.is_file():
        for line in ALLOWED.read_text().splitlines():
            fields = line.split(maxsplit=2)
            if fields and not fields[0].startswith("#"):
                if len(fields) < 3:
                    raise ValueError(f"{ALLOWED.name}: an exception needs a limit and a reason: {line!r}")
                allowed[fields[0]] = int(fields[1])
    return allowed


def check() -> list[str]:
    """Every breach of the rules, as a sentence each."""
    problems: list[str] = []
    allowed = allowances()
    used: set[str] = set()
    for name in tracked_files():
        path = REPO / name
        if path.suffix in SOURCES and not name.startswith(UNMEASURED):
            for finding in lengths(name, path.read_text(errors="replace")):
                if finding.lines <= allowed.get(finding.key, 0):
                    used.add(finding.key)
                else:
                    problems.append(finding.text)
        if path.suffix == ".rs":
            problems.extend(nameless(name, path.read_text(errors="replace")))
            problems.extend(unwatched(name, path.read_text(errors="replace")))
        if name not in UNSEARCHED and path.stat().st_size < TEXT_LIMIT:
            raw = path.read_bytes()
            if b"\0" not in raw:
                problems.extend(forbidden(name, raw.decode(errors="replace")))
    problems.extend(f"{key} is in {ALLOWED.name} but needs no exception" for key in sorted(set(allowed) - used))
    return problems + arrows.check() + circles.check()


def main() -> int:
    problems = check()
    for problem in problems:
        say(problem)
    say(f"tidy: {len(problems)} problems" if problems else "tidy: nothing to complain about")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
