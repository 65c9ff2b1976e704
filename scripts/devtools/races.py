"""`scripts/soak --races`: the engine's tests, again and again under load, to find those that race.

A test that asks a moment too early passes on a quiet machine. Here every processor has two busy loops beside it,
so that threads and processes meet in other orders. A test that fails once in all rounds is named with how often, and
the output of its failures is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .paths import LOGS, REPO, STORAGE, VENV, tool_environment
from .run import StepError, duration, run_logged, say

# Crates whose tests start programs or threads of their own.
CRATES = ("safekeeper", "proposer", "blob", "compute", "pageserver")
TIMES = 20
LOOPS_A_PROCESSOR = 2
ROUND_MINUTES = 30.0
FOLDER = LOGS / "races"


@dataclass(frozen=True)
class Program:
    name: str
    command: Sequence[str]
    # Where cargo or pytest would run it.
    folder: Path


def run(times: int, crates: Sequence[str], system: bool) -> int:
    """`times` rounds of all tests; 1 when any failed in any of them."""
    programs = build(crates)
    if system:
        pytest = str(VENV / "bin" / "pytest")
        programs.append(
            Program("system", [pytest, "-q", "-rf", "storage/system", "-n", "2", "--dist", "loadfile"], REPO)
        )
    begun, failures, rounds = time.monotonic(), Counter[str](), 0
    with load():
        for rounds in range(1, times + 1):
            for program in programs:
                found = run_once(program, rounds)
                failures.update(found)
                for test in found:
                    say(f"round {rounds}: {test} FAILED; see {log_of(program, rounds)}")
            say(f"round {rounds} of {times} done after {duration(time.monotonic() - begun)}")
    for test, count in failures.most_common():
        say(f"  {count} of {rounds} failed: {test}")
    say(f"{rounds} rounds of {len(programs)} programs, {len(failures)} tests that failed in any")
    return 1 if failures else 0


def build(crates: Sequence[str]) -> list[Program]:
    """The test programs of these crates."""
    packages = [argument for crate in crates for argument in ("-p", crate)]
    command = ["cargo", "test", "--release", "--locked", "--no-run", "--message-format=json", *packages]
    done = subprocess.run(
        command, cwd=STORAGE, env=tool_environment(), capture_output=True, text=True, check=False, timeout=3600
    )
    if done.returncode != 0:
        raise StepError(f"`{' '.join(command)}` failed:\n{done.stderr[-2000:]}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        Program(
            f"{Path(message['manifest_path']).parent.name}-{message['target']['name']}",
            [message["executable"]],
            Path(message["manifest_path"]).parent,
        )
        for message in messages
        if message.get("executable") and message.get("profile", {}).get("test")
    ]


def log_of(program: Program, number: int) -> Path:
    return FOLDER / f"{program.name}-{number}.log"


def run_once(program: Program, number: int) -> list[str]:
    """Names of the tests that failed in one round; a program that ended otherwise counts as one."""
    log = log_of(program, number)
    environment = {"RUST_BACKTRACE": "0", **tool_environment()}
    result = run_logged(program.command, log, cwd=program.folder, environment=environment, timeout=ROUND_MINUTES * 60)
    if result.status == 0:
        log.unlink()
        return []
    return failed_tests(program.name, log.read_text(errors="replace"))


def failed_tests(name: str, text: str) -> list[str]:
    rust = re.findall(r"^test (\S+) \.\.\. FAILED$", text, re.MULTILINE)
    python = re.findall(r"^FAILED (\S+)", text, re.MULTILINE)
    return [f"{name}::{test}" for test in dict.fromkeys([*rust, *python])] or [f"{name}: did not end by itself"]


@contextlib.contextmanager
def load() -> Generator[None]:
    """Busy loops, as many as keep every processor wanted by others all the time."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(LOOPS_A_PROCESSOR * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()
