"""The metadata store: a stock Postgres cluster, made once."""

import os
import shutil
import subprocess
from pathlib import Path

from weir.cli import system
from weir.cli.errors import CliError
from weir.cli.installation import Installation, script
from weir.cli.output import note
from weir.cli.services import as_postgres_user

_SETTINGS = """
# Weir's metadata. The port is given on the command line.
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
shared_buffers = '64MB'
log_destination = 'stderr'
logging_collector = off
log_line_prefix = '%m [%p] '
"""
_ACCESS = "host all all 127.0.0.1/32 scram-sha-256\n"


def is_initialised(installation: Installation) -> bool:
    return (installation.postgres_data / "PG_VERSION").is_file()


def initialise(installation: Installation) -> None:
    """Make the cluster beside its place and move it there when it is whole, so that no half of one is ever used."""
    draft = installation.home / "postgres.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    password = installation.home / "postgres.password"
    try:
        _write_private(password, installation.postgres_password() + "\n")
        if os.geteuid() == 0:
            shutil.chown(draft, installation.pg_user, installation.pg_user)
            shutil.chown(password, installation.pg_user, installation.pg_user)
        _run(
            installation,
            [
                str(installation.metadata_pg_bin / "initdb"),
                *("-D", str(draft), "--username=weir", f"--pwfile={password}", "--auth=scram-sha-256"),
                *("--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"),
            ],
        )
        with (draft / "postgresql.conf").open("a") as conf:
            conf.write(_SETTINGS)
        (draft / "pg_hba.conf").write_text(_ACCESS)
        _run(
            installation,
            [str(installation.metadata_pg_bin / "postgres"), "--single", "-D", str(draft), "postgres"],
            stdin="CREATE DATABASE weir\n",
        )
    finally:
        password.unlink(missing_ok=True)
    draft.rename(installation.postgres_data)


def forget_stale_lock(installation: Installation) -> bool:
    """Remove the lock file that a power cut left behind.

    Postgres refuses to start while a process with the pid in the file lives and belongs to the same user. After a
    reboot that may be any compute. The postmaster's own working directory is its data directory, which tells.
    """
    lock = installation.postgres_data / "postmaster.pid"
    try:
        pid = int(lock.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    try:
        if Path(f"/proc/{pid}/cwd").readlink() == installation.postgres_data and system.is_alive(pid):
            return False
    except OSError:
        pass
    lock.unlink(missing_ok=True)
    return True


def copy_server(installation: Installation) -> None:
    """The store runs from a copy of Postgres's files, so that an upgrade of the package does not put other
    libraries under it. To be called while the store does not run: it may get another minor."""
    try:
        result = subprocess.run(
            [script("weir-computes"), "metadata-server"],
            env=installation.environment(),
            cwd=installation.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        problem = "" if result.returncode == 0 else (result.stderr or result.stdout).strip()[-1000:]
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        note(f"the metadata store's copy of Postgres stays as it is: {problem}")


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _run(installation: Installation, command: list[str], stdin: str = "") -> None:
    result = subprocess.run(
        [*as_postgres_user(installation), *command],
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        timeout=300,
    )
    if result.returncode != 0:
        raise CliError(f"{Path(command[0]).name} failed: {(result.stderr or result.stdout).strip()[-2000:]}")
