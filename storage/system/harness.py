"""The engine as real processes: three safekeepers, a pageserver, computes on stock Postgres.

Every process listens on an ephemeral loopback port, lives below one temporary directory and is ended by pid;
`Engine.close` leaves no process and no mount behind, whatever a test did.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from credentials import Credentials, Managing
from processes import here
from proofs import Proofs

PG_BIN = Path(os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"))
PASSWORD = "correct horse"
# With "abort" or "abort=MILLISECONDS", storage programs end at a stall of an async worker (crates/stalls), and
# `Engine.close` fails then. Else, as in measurements, stalls are counted.
STALLS_VARIABLE = "WEIR_WORKER_STALLS"
# Of all tests (`conftest.py`): at a stall of more than 20 ms, unless it is a single one that a halted processor can
# have made. Waits for a processor, for memory and for a lock on a crowded machine do not count.
STALLS_OF_TESTS = "abort"
STALLED = "worker stalled, the program ends here:"

T = TypeVar("T")


def default_bin_dir() -> Path:
    target = os.environ.get("CARGO_TARGET_DIR", str(Path.home() / ".cache/weir/target"))
    return Path(os.environ.get("WEIR_BIN_DIR", f"{target}/release"))


# Below the ports that the kernel gives to outgoing connections, so that a server that was killed finds its port free
# when it is started again; and a share for each of the processes that test side by side.
_SHARE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
_PORTS = itertools.cycle(range(10_000 + _SHARE * 2_500, 10_000 + (_SHARE + 1) * 2_500))
for _ in range(os.getpid() % 2_500):
    next(_PORTS)


def free_port() -> int:
    """A port nobody listens on, and that this process has not given out lately."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a cycle has no end")


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 120.0) -> T:
    """Polls until `probe` returns something true; a probe that raises counts as not yet."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            value = probe()
            if value:
                return value
            last = value
        except (httpx.HTTPError, psycopg.Error, OSError, AssertionError) as error:
            last = error
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {seconds} s; last seen: {last!r}")


def scram_verifier(password: str) -> str:
    """The SCRAM-SHA-256 verifier as Postgres stores it (RFC 5803)."""
    salt, rounds = secrets.token_bytes(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encode = lambda raw: base64.b64encode(raw).decode()  # noqa: E731
    return f"SCRAM-SHA-256${rounds}:{encode(salt)}${encode(stored)}:{encode(server)}"


def lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass
class Process:
    """One supervised program: start, kill, start again with the same arguments."""

    name: str
    arguments: list[str]
    log: Path
    ready: Callable[[], Any]
    child: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "RUST_LOG": os.environ.get("RUST_LOG", "info"), **self.environment},
            )

    def start(self, seconds: float = 120.0) -> None:
        self.launch()
        try:
            wait_for(f"{self.name} to be ready", self._alive_and_ready, seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n--- end of {self.log}:\n{self.tail()}") from None

    def _alive_and_ready(self) -> Any:
        if self.child is not None and self.child.poll() is not None:
            raise RuntimeError(f"{self.name} exited with {self.child.returncode}; its log ends:\n{self.tail()}")
        return self.ready()

    def signal(self, number: int) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def kill9(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = 30.0) -> int:
        assert self.child is not None
        return self.child.wait(seconds)

    def stop(self) -> None:
        if self.child is None or self.child.poll() is not None:
            return
        self.signal(signal.SIGTERM)
        try:
            self.wait(20)
        except subprocess.TimeoutExpired:
            self.kill9()

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


@dataclass
class Timeline:
    tenant: str
    id: str
    start_lsn: str


@dataclass
class Compute:
    process: Process
    http: httpx.Client
    port: int
    directory: Path
    timeline: Timeline

    def status(self) -> dict[str, Any]:
        return self.http.get("/status").raise_for_status().json()

    @property
    def postmaster(self) -> int:
        """The number of its server's first process on this machine."""
        return self.here(int((self.directory / "pgdata/postmaster.pid").read_text().split()[0]))

    def here(self, pid: int) -> int:
        """The number that a process of its server has on this machine, of the one that Postgres says."""
        assert self.process.child is not None
        return here(self.process.child.pid, pid)

    def wait_running(self, seconds: float = 60.0) -> dict[str, Any]:
        def running() -> dict[str, Any] | None:
            status = self.status()
            if status["state"] in ("failed", "fenced"):
                raise RuntimeError(f"compute is {status['state']}: {status['reason']}\n{self.process.tail()}")
            return status if status["state"] == "running" else None

        return wait_for("compute to run", running, seconds)

    @property
    def uri(self) -> str:
        return f"postgresql://app:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/appdb"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.uri, **{"connect_timeout": 10, "autocommit": True, **options})

    def admin(self, database: str = "appdb") -> psycopg.Connection[Any]:
        """A superuser session over the agent's private socket."""
        return psycopg.connect(
            host=str(self.directory / "sock"), port=self.port, user="weir_admin", dbname=database, autocommit=True
        )

    def sql(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def spec(self) -> dict[str, Any]:
        """What the compute was started with; `configure` does not change it."""
        return json.loads((self.directory / "spec.json").read_text())

    def configure(self, **changes: object) -> tuple[int, dict[str, Any]]:
        """Sends the spec it was started with and these changes; status and body of the answer."""
        answer = self.http.post("/configure", json={**self.spec(), **changes}, timeout=90)
        return answer.status_code, answer.json()

    def suspend(self) -> None:
        self.http.post("/terminate", json={"mode": "suspend"}).raise_for_status()
        code = self.process.wait(60)
        assert code == 0, f"suspended compute exited with {code}:\n{self.process.tail()}"

    def kill9(self) -> None:
        self.process.kill9()
        wait_for("Postgres to die with its agent", lambda: not listening(self.port), 20)

    def switch_full_page_writes(self, enabled: bool) -> dict[str, Any]:
        answer = self.http.post("/full_page_writes", json={"enabled": enabled, "timeout_ms": 30_000}, timeout=40)
        assert answer.status_code == 200, answer.text
        return answer.json()


def metric(of: Compute | httpx.Client, name: str, **labels: str) -> float:
    """The sum of a metric of a compute, or of whoever is at that address, over the series that carry `labels`."""
    total = 0.0
    client = of.http if isinstance(of, Compute) else of
    for line in client.get("/metrics").text.splitlines():
        match = re.match(rf"{name}(?:\{{(.*)\}})? ([0-9.e+-]+)$", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            total += float(match[2])
    return total


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Engine:
    root: Path
    bin_dir: Path = field(default_factory=default_bin_dir)
    pageserver_options: list[str] = field(default_factory=list)
    # With mount://, layers are copied to local disk, as from a store that is far away.
    object_store: str = "file://{objects}"
    pageserver_environment: dict[str, str] = field(default_factory=dict)
    safekeeper_count: int = 3
    # Of single safekeepers, by their number, which counts from 1.
    safekeeper_environments: dict[int, dict[str, str]] = field(default_factory=dict)
    # Where they listen, and what starts them, when they have a network of their own.
    safekeeper_hosts: dict[int, str] = field(default_factory=dict)
    safekeeper_launchers: dict[int, list[str]] = field(default_factory=dict)
    # `{objects}` in one is the object store's directory, `{peers}` the addresses of all safekeepers.
    safekeeper_options: list[str] = field(default_factory=list)
    safekeepers: list[Process] = field(default_factory=list)
    wal_ports: list[int] = field(default_factory=list)
    http_ports: list[int] = field(default_factory=list)
    computes: list[Compute] = field(default_factory=list)
    # With them each part asks for tokens.
    credentials: Credentials | None = None
    # With them parts speak TLS with each other.
    proofs: Proofs | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.proofs is None else "https"

    @property
    def verify(self) -> Any:
        """How clients of httpx check whom they speak with; the name is that of their `auth`."""
        return True if self.proofs is None else self.proofs.context()

    def managing(self, audience: str) -> Managing:
        """What requests to a part are to show; nothing where parts ask for nothing."""
        return Managing(self.credentials, audience)

    def _token_options(self, part: str) -> list[str]:
        return [] if self.credentials is None else self.credentials.options(part)

    def _tls_options(self, name: str) -> list[str]:
        return [] if self.proofs is None else self.proofs.options(name)

    def start(self) -> None:
        self.root.chmod(0o755)
        numbers = range(1, self.safekeeper_count + 1)
        self.wal_ports = [free_port() for _ in numbers]
        self.http_ports = [free_port() for _ in numbers]
        known = {"objects": self.root / "objects", "peers": ",".join(self.wal_addresses())}
        for number, wal, http in zip(numbers, self.wal_ports, self.http_ports, strict=True):
            host = self.host(number)
            data = self.root / f"safekeeper-{number}"
            self.safekeepers.append(
                self._spawn(
                    f"safekeeper-{number}",
                    [
                        "weir-safekeeper",
                        "--id",
                        str(number),
                        *("--listen-wal", f"{host}:{wal}", "--listen-http", f"{host}:{http}"),
                        *("--data-dir", str(data)),
                        *(option.format(**known) for option in self.safekeeper_options),
                        *self._token_options("safekeeper"),
                        *self._tls_options(f"safekeeper-{number}"),
                    ],
                    f"{host}:{http}",
                    self.safekeeper_environments.get(number),
                    self.safekeeper_launchers.get(number),
                )
            )
        self.page_port, self.pageserver_http_port = free_port(), free_port()
        (self.root / "objects").mkdir(exist_ok=True)
        self.pageserver = self.another_pageserver("pageserver", self.page_port, self.pageserver_http_port)
        self.storage = httpx.Client(
            base_url=f"{self.scheme}://127.0.0.1:{self.pageserver_http_port}",
            auth=self.managing("pageserver"),
            verify=self.verify,
            timeout=60,
        )

    def another_pageserver(self, name: str, pages: int, http: int) -> Process:
        """A pageserver on the same object store, which takes over what is in it."""
        arguments = [
            *("--listen-pages", f"127.0.0.1:{pages}", "--listen-http", f"127.0.0.1:{http}"),
            *("--data-dir", str(self.root / name)),
            *("--object-store", self.object_store.format(objects=self.root / "objects")),
            *("--pg-bin-dir", str(PG_BIN), *self.pageserver_options, *self._token_options("pageserver")),
            *self._tls_options("pageserver"),
        ]
        return self._spawn(name, ["weir-pageserver", *arguments], f"127.0.0.1:{http}", self.pageserver_environment)

    def host(self, number: int) -> str:
        """Of a safekeeper, by its number."""
        return self.safekeeper_hosts.get(number, "127.0.0.1")

    def _spawn(
        self,
        name: str,
        arguments: list[str],
        http: str,
        environment: dict[str, str] | None = None,
        launcher: list[str] | None = None,
    ) -> Process:
        program = self.bin_dir / arguments[0]
        assert program.exists(), f"{program} is missing: cargo build --release in storage/"
        url, auth = f"{self.scheme}://{http}/healthz", self.managing(arguments[0].removeprefix("weir-"))
        process = Process(
            name,
            [*(launcher or []), str(program), *arguments[1:]],
            self.root / f"{name}.log",
            lambda: httpx.get(url, auth=auth, verify=self.verify, timeout=2).status_code == 200,
            environment={STALLS_VARIABLE: os.environ.get(STALLS_VARIABLE, "")} | (environment or {}),
        )
        process.start()
        return process

    # --- timelines

    def create_timeline(self, tenant: str | None = None) -> Timeline:
        tenant = tenant or secrets.token_hex(16)
        self.storage.put(f"/v1/tenant/{tenant}", json={}).raise_for_status()
        body = {"new_timeline_id": secrets.token_hex(16), "pg_version": 15, "safekeepers": self.wal_addresses()}
        return self._finish_timeline(tenant, body)

    def branch(self, parent: Timeline, **at: str) -> Timeline:
        """A branch of `parent`; `ancestor_start_lsn` or `ancestor_timestamp` choose where, default is now."""
        body = {
            "new_timeline_id": secrets.token_hex(16),
            "pg_version": 15,
            "safekeepers": self.wal_addresses(),
            "ancestor_timeline_id": parent.id,
            **at,
        }
        return self._finish_timeline(parent.tenant, body)

    def configure_tenant(self, tenant: str, **settings: object) -> None:
        """Changes settings of a tenant at the pageserver."""
        self.storage.patch(f"/v1/tenant/{tenant}/config", json=settings).raise_for_status()

    def wal_addresses(self) -> list[str]:
        return [f"{self.host(number)}:{port}" for number, port in enumerate(self.wal_ports, 1)]

    def _finish_timeline(self, tenant: str, body: dict[str, Any]) -> Timeline:
        answer = self.storage.post(f"/v1/tenant/{tenant}/timeline", json=body)
        assert answer.status_code == 201, answer.text
        status = answer.json()
        timeline = Timeline(tenant, body["new_timeline_id"], status["start_lsn"])
        for number in range(len(self.safekeepers)):
            created = self.create_on_safekeeper(number, timeline, str(status["system_identifier"]))
            assert created in (200, 201), created
        return timeline

    def create_on_safekeeper(self, number: int, timeline: Timeline, system_identifier: str) -> int:
        """Asks a safekeeper, counted from 0, to make an empty log of the timeline; the status of its answer."""
        answer = httpx.post(
            self.safekeeper_url(number, timeline),
            json={"start_lsn": timeline.start_lsn, "system_identifier": system_identifier, "pg_version": 15},
            auth=self.managing("safekeeper"),
            verify=self.verify,
            timeout=10,
        )
        return answer.status_code

    def safekeeper_url(self, number: int, timeline: Timeline) -> str:
        address = f"{self.host(number + 1)}:{self.http_ports[number]}"
        return f"{self.scheme}://{address}/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"

    def safekeeper_status(self, number: int, timeline: Timeline) -> dict[str, Any]:
        url, auth = self.safekeeper_url(number, timeline), self.managing("safekeeper")
        return httpx.get(url, auth=auth, verify=self.verify, timeout=10).raise_for_status().json()

    def stored_commits(self, timeline: Timeline) -> list[str]:
        """What each safekeeper's control file says is committed; it follows what the safekeeper knows by a second."""
        directories = [str(self.root / f"safekeeper-{number + 1}") for number in range(len(self.safekeepers))]
        command = [str(self.bin_dir / "weir-log"), "show", "--json", "--timeline", timeline.id, *directories]
        shown = json.loads(subprocess.run(command, capture_output=True, check=False, timeout=60).stdout)
        return [member["durable"]["commit_lsn"] for member in shown["members"]]

    def timeline_status(self, timeline: Timeline) -> dict[str, Any]:
        return self.storage.get(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}").raise_for_status().json()

    def wait_ingested(self, timeline: Timeline, target: str, seconds: float = 60.0) -> None:
        wait_for(
            f"the pageserver to ingest {target}",
            lambda: lsn(self.timeline_status(timeline)["last_record_lsn"]) >= lsn(target),
            seconds,
        )

    def digest(self, timeline: Timeline, at: str | None = None) -> str:
        """Reads every page as of an LSN, or as of now; a checksum that never changes."""
        path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/digest"
        answer = self.storage.get(path, params={"lsn": at} if at else {})
        assert answer.status_code == 200, answer.text
        return answer.json()["crc32c"]

    # --- computes

    def compute_directory(self, name: str) -> Path:
        """Where a compute of this name keeps its files."""
        return self.root / "computes" / name

    def compute(
        self,
        timeline: Timeline,
        wait: bool = True,
        environment: dict[str, str] | None = None,
        name: str | None = None,
        user: int | None = None,
        launcher: list[str] | None = None,
        options: list[str] | None = None,
        **spec: Any,
    ) -> Compute:
        """`user`: the number of a user of the compute's own; `launcher`: the words that start its agent; `options`:
        what that is told beside the usual."""
        port, http_port = free_port(), free_port()
        name = name or f"ep-{secrets.token_hex(4)}"
        directory = self.compute_directory(name)
        directory.mkdir(parents=True, exist_ok=True)
        if user is not None:
            # As the control plane does: the folder is root's, and this user passes through.
            os.chown(directory, 0, user)
            directory.chmod(0o710)
        settings = {"shared_buffers": "64MB", "max_connections": "60", **spec.pop("settings", {})}
        body = {
            "compute_id": name,
            "tenant_id": timeline.tenant,
            "timeline_id": timeline.id,
            "pg_version": 15,
            "pg_bin_dir": str(PG_BIN),
            "pg_user": "postgres",
            "listen": "127.0.0.1",
            "port": port,
            "safekeepers": self.wal_addresses(),
            "pageserver": {
                "pages": f"127.0.0.1:{self.page_port}",
                "http": f"{self.scheme}://127.0.0.1:{self.pageserver_http_port}",
            },
            "full_page_writes": True,
            "roles": [{"name": "app", "password": scram_verifier(PASSWORD)}],
            "databases": [{"name": "appdb", "owner": "app"}],
            "settings": settings,
            "audit_reads_per_second": 20,
            "quorum_timeout_ms": 10_000,
            **spec,
        }
        spec_file = directory / "spec.json"
        spec_file.write_text(json.dumps(body))
        base, auth = f"{self.scheme}://127.0.0.1:{http_port}", self.managing(f"compute/{name}")
        process = Process(
            name,
            [
                *(launcher or [str(self.bin_dir / "weir-compute")]),
                "--spec",
                str(spec_file),
                "--dir",
                str(directory),
                "--listen-http",
                f"127.0.0.1:{http_port}",
                *(["--user", str(user)] if user is not None else []),
                *(options or []),
                *([] if self.credentials is None else self.credentials.options_of_compute(directory, body)),
                *([] if self.proofs is None else self.proofs.options_of_compute(name)),
            ],
            self.root / f"{name}.log",
            lambda: httpx.get(f"{base}/status", auth=auth, verify=self.verify, timeout=2).status_code == 200,
            environment=dict(environment or {}),
        )
        http = httpx.Client(base_url=base, auth=auth, verify=self.verify, timeout=30)
        compute = Compute(process, http, port, directory, timeline)
        self.computes.append(compute)
        process.start()
        if wait:
            compute.wait_running()
        return compute

    # --- the end

    def close(self) -> None:
        for compute in self.computes:
            if compute.process.child is not None and compute.process.child.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    compute.http.post("/terminate", json={"mode": "immediate"}, timeout=5)
            compute.process.stop()
            compute.http.close()
        if hasattr(self, "storage"):
            self.storage.close()
        for process in [getattr(self, "pageserver", None), *self.safekeepers]:
            if process is not None:
                process.stop()
        stalls = self.stalls()
        for mount in mounts_below(self.root):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)
        assert not stalls, "\n".join(stalls)

    def stalls(self) -> list[str]:
        """What ended storage programs because it kept an async worker."""
        found: list[str] = []
        for log in sorted(self.root.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            found += [f"{log.stem}: {line}" for line in lines if line.startswith(STALLED)]
        return found


def mounts_below(root: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{root}/")]


@contextlib.contextmanager
def engine(root: Path, **options: Any) -> Iterator[Engine]:
    running = Engine(root, **options)
    try:
        running.start()
        yield running
    finally:
        running.close()
