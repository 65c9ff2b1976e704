"""A measuring program that stays, and answers in lines of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Dialogue:
    """Within the `with`: lines go in by `send`, answers come out by `hear`. An end by an error kills the program."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.command = [str(word) for word in command]

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.kill()
        with self.process:
            pass
        if kind is None and self.process.returncode != 0:
            raise RuntimeError(f"{' '.join(self.command)} ended with status {self.process.returncode}")

    def send(self, line: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """RuntimeError if it ended instead of answering."""
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with status {self.process.wait()} without an answer")
        return json.loads(line)

    def ask(self, line: str) -> dict[str, Any]:
        self.send(line)
        return self.hear()

    def end(self) -> dict[str, Any]:
        """Nothing more is asked; what it says at last."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.hear()
