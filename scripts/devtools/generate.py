"""`scripts/gen`: the API's OpenAPI document, from it the console's client and the schemas of what forms send, and the
page of the `weir` command."""

from __future__ import annotations

import argparse
import difflib
import json
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .paths import FRONTEND, LOGS, REPO, VENV, tool_environment
from .run import run_logged, say

OPENAPI = REPO / "openapi" / "weir.json"
COMMANDS = REPO / "docs" / "operate" / "commands.md"
GENERATED = FRONTEND / "src" / "api" / "generated"


@dataclass(frozen=True)
class Made:
    """What a script of the console's `package.json` makes of the document: its option for where to, and the file."""

    script: str
    to: str
    file: str


MADE = (
    Made("gen", "schema.d.ts", "schema.d.ts"),
    # A generator that empties the folder it writes to, and so has one of its own.
    Made("gen-zod", "zod", "zod/zod.gen.ts"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/gen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something is out of date")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="weir-gen-") as folder:
        document = Path(folder) / "weir.json"
        if not _run("gen-openapi", [VENV / "bin" / "weir-admin", "openapi"], output=document):
            return 1
        commands = Path(folder) / "commands.md"
        program = [VENV / "bin" / "python", "-m", "devtools.commands"]
        if not _run("gen-commands", program, cwd=REPO / "scripts", output=commands):
            return 1
        outcomes = [_settle(OPENAPI, document, check=check), _settle(COMMANDS, commands, check=check)]
        for made in MADE:
            if not _run(made.script, _command(made, document, Path(folder)), cwd=FRONTEND):
                return 1
            outcomes.append(_settle(GENERATED / made.file, Path(folder) / made.file, check=check))
    return 0 if all(outcomes) else 1


def _command(made: Made, document: Path, folder: Path) -> list[str | Path]:
    """The console's own `npm run gen…`, with other files in and out, so that its options are in one place."""
    words = shlex.split(json.loads((FRONTEND / "package.json").read_text())["scripts"][made.script])
    places = {"../openapi/weir.json": str(document), f"src/api/generated/{made.to}": str(folder / made.to)}
    return ["npx", *(places.get(word, word) for word in words)]


def _run(name: str, command: list[str | Path], *, cwd: Path = REPO, output: Path | None = None) -> bool:
    log = output or LOGS / f"{name}.log"
    result = run_logged(command, log, cwd=cwd, environment=tool_environment())
    if result.status != 0:
        say(result.tail())
        say(f"{name} failed with status {result.status}")
    return result.status == 0


def _settle(committed: Path, fresh: Path, *, check: bool) -> bool:
    new = fresh.read_text()
    old = committed.read_text() if committed.is_file() else ""
    name = committed.relative_to(REPO)
    if old == new:
        say(f"{name} is current")
        return True
    if check:
        say(f"{name} is out of date; `make gen` renews it:")
        difference = difflib.unified_diff(
            old.splitlines(), new.splitlines(), "committed", "generated", lineterm="", n=1
        )
        say("\n".join(list(difference)[:60]))
        return False
    committed.parent.mkdir(parents=True, exist_ok=True)
    committed.write_text(new)
    say(f"{name} is renewed")
    return True
