"""Running psql and pgbench against a connection string, and a throw-away stock Postgres."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PG_BIN = Path(os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"))


class SqlError(Exception):
    """psql failed; the message is what the server or the client said."""


def psql(uri: str, *arguments: str, timeout: float = 600) -> str:
    """Run psql and return what it printed: unaligned, tuples only, stopping at the first error."""
    command = [str(PG_BIN / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", uri, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if result.returncode != 0:
        raise SqlError(result.stderr.strip() or f"psql ended with status {result.returncode}")
    return result.stdout.strip()


def query(uri: str, sql: str, *, timeout: float = 120) -> str:
    return psql(uri, "-c", sql, timeout=timeout)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def unprivileged(user: str = "postgres") -> Sequence[str]:
    """The words before a Postgres program: it refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    account = pwd.getpwnam(user)
    return ("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups", "--")


@contextmanager
def stock_postgres(settings: Mapping[str, str]) -> Generator[str]:
    """A stock Postgres on a free port below a temporary directory; gives its connection string."""
    folder = Path(tempfile.mkdtemp(prefix="weir-stock-"))
    port = free_port()
    options = {
        "listen_addresses": "'127.0.0.1'",
        "port": str(port),
        "unix_socket_directories": f"'{folder}'",
        **settings,
    }
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        as_user = unprivileged()
        data = folder / "data"
        initdb = [*as_user, str(PG_BIN / "initdb"), "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        with (data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in options.items())
        control = [*as_user, str(PG_BIN / "pg_ctl"), "-D", str(data), "-w"]
        subprocess.run([*control, "-l", str(folder / "log"), "start"], check=True, capture_output=True, cwd=folder)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "fast", "stop"], check=False, capture_output=True, cwd=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
