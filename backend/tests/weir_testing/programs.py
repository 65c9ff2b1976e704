"""Starts the real programs on ports of their own, below a temporary directory, and ends what it started."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

from weir.computes import recorded

PG_BIN = Path(os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"))
START_SECONDS = 120


# Below the ports that the kernel gives to outgoing connections, so that a server that was killed finds its port free
# when it is started again; and a share for each of the processes that test side by side, since a port is found free
# now and listened on later.
SHARE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
PORTS = itertools.cycle(range(10_000 + SHARE * 2_500, 10_000 + (SHARE + 1) * 2_500))
BLOCKS = range(20_000 + SHARE * 3_000, 20_000 + (SHARE + 1) * 3_000)
for _ in range(os.getpid() % 2_500):
    next(PORTS)


def free_port() -> int:
    """A port nobody listens on, and that this process has not given out lately."""
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a cycle has no end")


def free_port_block(size: int) -> int:
    """The first of `size` neighbouring free ports, even."""
    for low in range(BLOCKS.start + os.getpid() % 1000 * 2, BLOCKS.stop - size, size):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(low, low + size):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return low
    raise RuntimeError("no block of free ports")


def unprivileged(command: list[str]) -> list[str]:
    """Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


def wait_for(check: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    host, port = check.rsplit("//", maxsplit=1)[-1].split("/", maxsplit=1)[0].split(":")
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended: {log.read_text()[-2000:]}")
        try:
            if check.startswith("http"):
                with urllib.request.urlopen(check, timeout=1) as answer:
                    if answer.status < 300:
                        return
            else:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise RuntimeError(f"{process.args} did not come up: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def program(command: list[str], log: Path, check: str) -> Generator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for(check, process, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def postgres(directory: Path) -> Generator[str]:
    """A server of its own; the SQLAlchemy URL of an empty database."""
    directory.mkdir()
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
        for parent in list(directory.parents)[:3]:
            parent.chmod(parent.stat().st_mode | 0o011)
    data, port = directory / "data", free_port()
    subprocess.run(
        unprivileged(
            [str(PG_BIN / "initdb"), "-D", str(data), "-U", "weir", "-A", "trust", "--no-sync", "-E", "UTF8"]
        ),
        check=True,
        capture_output=True,
        cwd="/",
    )
    command = [str(PG_BIN / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(directory)]
    options = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"]
    with program(unprivileged([*command, *options]), directory.parent / "postgres.log", f"127.0.0.1:{port}"):
        wait_ready(port)
        yield f"postgresql+psycopg://weir@127.0.0.1:{port}/postgres"


def wait_ready(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    command = [str(PG_BIN / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
    while subprocess.run(command, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise RuntimeError("Postgres does not accept connections")
        time.sleep(0.05)


def temporal_binary() -> str:
    known = Path(os.environ.get("WEIR_CACHE_DIR", Path("~/.cache/weir").expanduser())) / "bin" / "temporal"
    found = str(known) if known.exists() else shutil.which("temporal")
    if found is None:
        raise RuntimeError(f"the Temporal dev server is missing: {known}; `make setup` builds it")
    return found


@contextlib.contextmanager
def temporal(directory: Path, port: int | None = None, database: Path | None = None) -> Generator[str]:
    port = port or free_port()
    command = [
        temporal_binary(), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port),
        "--http-port", str(free_port()), "--metrics-port", str(free_port()), "--log-level", "warn",
    ]  # fmt: skip
    if database is not None:
        command += ["--db-filename", str(database)]
    with program(command, directory / "temporal.log", f"127.0.0.1:{port}"):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def prometheus(directory: Path, targets_url: str) -> Generator[str]:
    port = free_port()
    config = directory / "prometheus.yml"
    (directory / "rules.yml").write_text(recorded.rules(1))
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        "rule_files: [rules.yml]\n"
        "scrape_configs:\n"
        "  - job_name: weir\n"
        "    http_sd_configs:\n"
        f"      - {{url: '{targets_url}', refresh_interval: 1s}}\n"
    )
    command = [
        "prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with program(command, directory / "prometheus.log", f"{url}/-/ready"):
        yield url
