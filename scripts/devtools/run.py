"""Running a command whose output is kept, while the person at the terminal sees that it moves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_SECONDS = 15.0
TAIL_LINES = 60


class StepError(Exception):
    """A step could not be done; the message says why and what to do."""


class StoppedError(Exception):
    """A command was stopped because what it belongs to was."""


@dataclass(frozen=True)
class Finished:
    """How a command ended, and where everything that it said is."""

    status: int
    seconds: float
    log: Path

    def tail(self, lines: int = TAIL_LINES) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def last_line(path: Path) -> str:
    """The last thing a running command said, for the progress line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class _Progress:
    """One line that is rewritten on a terminal; a line every few seconds where there is none (CI), and where another
    command runs beside this one: then it begins with the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()
        self.last = self.started
        self.live = sys.stdout.isatty() and not name
        self.shown = False

    def update(self, log: Path) -> None:
        now = time.monotonic()
        if now - self.last < (1.0 if self.live else HEARTBEAT_SECONDS):
            return
        self.last = now
        line = f"      {self.name:9}" if self.name else "      "
        line += f"{duration(now - self.started)}  {last_line(log)}"
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write("\r\x1b[2K" + line[:width])
            sys.stdout.flush()
            self.shown = True
        else:
            say(line[:160])

    def done(self) -> None:
        if self.shown:
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()


def run_logged(
    command: Sequence[str | os.PathLike[str]],
    log: Path,
    *,
    beside: str = "",
    cancelled: threading.Event | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Finished:
    """Run a command to its end with its output in `log`, in its own session; none of it survives the call.

    `beside`: what to call it on progress lines when others run at the same time. Once `cancelled` is set, it is
    stopped and `StoppedError` raised."""
    log.parent.mkdir(parents=True, exist_ok=True)
    progress = _Progress(beside)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [os.fspath(part) for part in command],
            cwd=cwd,
            env=dict(environment) if environment is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = _wait(process, progress, log, timeout, cancelled)
        except BaseException:
            _end_group(process)
            raise
        finally:
            progress.done()
    return Finished(status, time.monotonic() - progress.started, log)


def _wait(
    process: subprocess.Popen[bytes],
    progress: _Progress,
    log: Path,
    timeout: float | None,
    cancelled: threading.Event | None,
) -> int:
    while True:
        try:
            return process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            progress.update(log)
        if cancelled is not None and cancelled.is_set():
            raise StoppedError
        if timeout is not None and time.monotonic() - progress.started > timeout:
            _end_group(process)
            with log.open("a") as sink:
                sink.write(f"\nstopped: not finished after {duration(timeout)}\n")
            return 124


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for sig, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            continue


def capture(command: Sequence[str | os.PathLike[str]], environment: Mapping[str, str] | None = None) -> str | None:
    """The output of a short command, or None when it is missing or fails."""
    try:
        result = subprocess.run(
            [os.fspath(part) for part in command],
            env=dict(environment) if environment is not None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
