"""Programs run as another user of the machine, who has gained the rights of one database's server."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

# A program that others can run; this interpreter may lie where they cannot come to.
PYTHON = "/usr/bin/python3"


def run(user: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as the user with this number, and its group, with a bound of 20 seconds."""
    return subprocess.run(
        command,
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


def denied(user: int, *command: str) -> str:
    """What the program says that the kernel refused; fails when the program did it, or failed for another reason."""
    done = run(user, *command)
    assert done.returncode != 0, f"user {user} could: {' '.join(command)}\n{done.stdout}"
    assert "ermission denied" in done.stderr or "not permitted" in done.stderr, done.stderr
    return done.stderr


def connects(user: int, path: Path) -> subprocess.CompletedProcess[str]:
    """Whether the user reaches a server at a Unix socket."""
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    return run(user, PYTHON, "-c", code, str(path))


def beyond_this_kernel() -> list[str]:
    """Measures of an agent's `confinement` that this machine's kernel does not have."""
    libc = ctypes.CDLL(None)
    # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION): its version, of which the fourth knows ports.
    return [] if libc.syscall(444, None, ctypes.c_size_t(0), 1) >= 4 else ["own_port"]


def as_postgres(superuser: psycopg.Connection[Any], command: str) -> list[str]:
    """Runs a shell's command where Postgres is, the only way that SQL has, which no role of a customer's has; the
    lines it printed. Closes the session."""
    with superuser:
        superuser.execute("CREATE TEMP TABLE said (line text)")
        copy = sql.SQL("COPY said FROM PROGRAM {} WITH (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')")
        superuser.execute(copy.format(sql.Literal(command)))
        return [line or "" for (line,) in superuser.execute("SELECT line FROM said").fetchall()]


def user_of(pid: int) -> set[int]:
    """Real, effective, saved and file system user of a process."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {int(number) for line in status if line.startswith("Uid:") for number in line.split()[1:]}


def environment_of(pid: int) -> dict[str, str]:
    """What a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)
