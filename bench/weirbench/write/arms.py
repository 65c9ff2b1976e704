"""Where writes are measured: a stock Postgres, one with a synchronous standby, and computes of Weir."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from weir.cli.installation import Installation
from weir.cli.supervisor import Supervisor
from weir.tokens import bearer
from weirbench.api import Database, Weir, admin_uri, push_down, wait_for
from weirbench.cluster import Cluster
from weirbench.parts import client
from weirbench.postgres import PG_BIN, free_port, query, unprivileged

# The same for all arms, so that what differs is where WAL and pages go.
SETTINGS = {
    "shared_buffers": "128MB",
    "checkpoint_timeout": "30s",
    "max_wal_size": "1GB",
    "wal_compression": "off",
    "max_connections": "100",
}
# Weir's computes have their own of these.
_STOCK = {"listen_addresses": "'127.0.0.1'", "fsync": "on", "wal_level": "replica", "max_wal_senders": "4"}


@dataclass(frozen=True)
class Arm:
    name: str
    # What clients use, over TCP, and what a superuser uses.
    uri: str
    admin_uri: str
    # The first processes by group; each counts with its descendants.
    groups: Mapping[str, Sequence[int]]
    # What reads the counters of fsyncs, by group.
    fsync_metrics: Mapping[str, httpx.Client] = field(default_factory=dict[str, httpx.Client])
    # What reads the pageserver's counters; a quiet arm waits until it has made its images.
    pageserver: httpx.Client | None = None
    # The token to read Weir's counters with: what Prometheus shows.
    metrics_token: Path | None = None
    # Holds the arm's WAL to so many bytes a second; only Weir has such a limit.
    limit_wal: Callable[[int], None] | None = None
    # Switches the arm to pushdown by a rollout; only Weir has such a switch.
    push_down: Callable[[], None] | None = None

    def fsyncs(self) -> dict[str, float]:
        """By group, since each process was started; Postgres's are those of its WAL."""
        counted = {"postgres": float(query(self.admin_uri, "SELECT wal_sync FROM pg_stat_wal"))}
        for group, part in self.fsync_metrics.items():
            counted[group] = self._sum(part, "weir_safekeeper_fsync_seconds_count")
        return counted

    def wal_position(self) -> int:
        return int(float(query(self.admin_uri, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")))

    def quiesce(self) -> None:
        """No checkpoint and no image to make is left over from the run before."""
        query(self.admin_uri, "CHECKPOINT", timeout=600)
        if self.pageserver is not None:
            part = self.pageserver
            wait_for("images to be made", lambda: self._sum(part, "weir_pageserver_images_pending") == 0 or None, 300)

    def _sum(self, part: httpx.Client, name: str) -> float:
        headers = {}
        if self.metrics_token is not None:
            headers["Authorization"] = f"Bearer {self.metrics_token.read_text().strip()}"
        text = part.get("/metrics", headers=headers, timeout=10).raise_for_status().text
        values = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in values)


def _postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().splitlines()[0])


@contextmanager
def _cluster(settings: Mapping[str, str]) -> Generator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="weir-write-", dir="/var/tmp") as folder:
        cluster = Cluster(Path(folder), settings)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")


@contextmanager
def stock(name: str = "stock", *, fsync: bool = True) -> Generator[Arm]:
    with _cluster({**_STOCK, **_quoted(), "fsync": "on" if fsync else "off"}) as cluster:
        uri = f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres"
        yield Arm(name, uri, uri, {"postgres": [_postmaster(cluster.data)]})


@contextmanager
def with_standby() -> Generator[Arm]:
    """A primary whose commits wait until one standby on the same machine has fsynced their WAL."""
    with (
        _cluster({**_STOCK, **_quoted()}) as primary,
        tempfile.TemporaryDirectory(prefix="weir-write-", dir="/var/tmp") as folder,
    ):
        copy, port = Path(folder) / "data", free_port()
        Path(folder).chmod(0o777)
        source = f"postgresql://postgres@127.0.0.1:{primary.port}/postgres"
        backup = [str(PG_BIN / "pg_basebackup"), "-D", str(copy), "-d", source, "-R", "-X", "stream", "-c", "fast"]
        subprocess.run([*unprivileged(), *backup], check=True, capture_output=True, cwd=folder)
        control = [*unprivileged(), str(PG_BIN / "pg_ctl"), "-D", str(copy), "-w"]
        start = [*control, "-l", str(copy / "log"), "-o", f"-p {port}", "start"]
        with (copy / "postgresql.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{folder}'\n")
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.sql("SELECT pg_reload_conf()")
            _wait_for_sync(primary)
            groups = {"postgres": [_postmaster(primary.data)], "standby": [_postmaster(copy)]}
            yield Arm("standby", source, source, groups)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, cwd=folder)


def _wait_for_sync(primary: Cluster) -> None:
    asked = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_for("the standby to be synchronous", lambda: primary.sql(asked) == "1" or None, 60)


def _quoted() -> dict[str, str]:
    return {name: f"'{value}'" for name, value in SETTINGS.items()}


class WeirArms:
    """Computes of an installation that runs, each in a project of its own, which is deleted at the end."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.weir = Weir(installation.api_url, installation.api_key_file.read_text().strip())

    @contextmanager
    def arm(
        self, name: str, *, pushdown: bool, storage: Mapping[str, object] | None = None, units: float | None = None
    ) -> Generator[Arm]:
        """`storage`: settings of the tenant at the pageserver which differ from the usual ones. `units`: the size of
        the compute, where it is not the usual one."""
        for project in self.weir.projects():
            if project["name"] == f"bench-{name}":
                self.weir.delete_project(project["id"])
        database = self.weir.create_database(f"bench-{name}", SETTINGS)
        try:
            if pushdown:
                self._switch(database)
            if storage:
                self._configure_storage(database, storage)
            if units:
                self._resize(database, units)
            yield self._described(name, database)
        finally:
            self.weir.delete_project(database.project_id)

    def _described(self, name: str, database: Database) -> Arm:
        home = self.installation.home
        pids = {name: state.pid for name, state in Supervisor(self.installation).states().items()}
        keepers = sorted(process for process in pids if process.startswith("safekeeper-"))
        others = [pid for process, pid in pids.items() if process != "pageserver" and process not in keepers]
        return Arm(
            name,
            database.uri,
            admin_uri(home, database),
            {
                "compute": [int((home / "computes" / database.compute_id / "pid").read_text().split()[0])],
                "safekeepers": [pids[keeper] for keeper in keepers],
                "pageserver": [pids["pageserver"]],
                "control plane": others,
            },
            {keeper: client(self.installation, keeper.replace("-", "_") + "_http") for keeper in keepers},
            client(self.installation, "pageserver_http"),
            self.installation.token_file("prometheus"),
            lambda rate: self._limit_wal(database, rate),
            lambda: self._switch(database),
        )

    def _configure_storage(self, database: Database, settings: Mapping[str, object]) -> None:
        spec = json.loads((self.installation.home / "computes" / database.compute_id / "spec.json").read_text())
        path = f"/v1/tenant/{spec['tenant_id']}/config"
        headers = bearer.headers("pageserver", path, self.installation.home)
        with client(self.installation, "pageserver_http") as storage:
            storage.patch(path, json=dict(settings), headers=headers).raise_for_status()

    def _resize(self, database: Database, units: float) -> None:
        path = f"/projects/{database.project_id}/endpoints/{database.compute_id}"
        limits = {f"autoscaling_limit_{name}_cu": units for name in ("min", "max")}
        self.weir.wait_operations(self.weir.request("PATCH", path, {"endpoint": limits})["operations"])
        # What a running server does not take of its size it has from its next start on.
        self.weir.wait_operations(self.weir.request("POST", f"{path}/restart")["operations"])

    def _limit_wal(self, database: Database, rate: int) -> None:
        body = {"project": {"settings": {"quota": {"wal_bytes_per_second": rate}}}}
        changed = self.weir.request("PATCH", f"/projects/{database.project_id}", body)
        self.weir.wait_operations(changed["operations"])

    def _switch(self, database: Database) -> None:
        ended = push_down(self.weir, database.project_id, f"bench-write {database.name}")
        if query(database.uri, "SHOW full_page_writes") != "off":
            raise RuntimeError(f"rollout {ended['id']} ended {ended['status']}: {ended['status_reason']}")


@contextmanager
def all_arms(installation: Installation, wanted: Sequence[str]) -> Generator[list[Arm]]:
    """In the order of `ARMS`. All are there at once; only one works at a time."""
    weir = WeirArms(installation)

    def made(name: str) -> AbstractContextManager[Arm]:
        if name in ("stock", NO_FSYNC):
            return stock(name, fsync=name == "stock")
        if name == "standby":
            return with_standby()
        return weir.arm(name, pushdown=name != "weir_images", storage=storage_settings(name))

    with ExitStack() as running:
        yield [running.enter_context(made(name)) for name in wanted]


ARMS = ("stock", "standby", "weir_images", "weir_pushdown")
ADAPTIVE = "weir_adaptive"
# Commits wait for no disk and nobody else: what Postgres itself costs. No choice for anyone, but a floor.
NO_FSYNC = "stock_no_fsync"
_THRESHOLD = re.compile(r"weir_pushdown_(\d{1,6})")


def arm_name(text: str) -> str:
    """An arm's name as options give it: one of `ARMS`; `weir_pushdown_N`, with an image after N deltas of a page;
    `weir_adaptive`, where storage weighs images against its reads; or `stock_no_fsync`, Postgres by itself."""
    if text in (*ARMS, ADAPTIVE, NO_FSYNC) or _THRESHOLD.fullmatch(text):
        return text
    raise ValueError(text)


def storage_settings(name: str) -> dict[str, object]:
    """What an arm of this name has in place of the pageserver's usual settings."""
    if name == ADAPTIVE:
        return {"image_mode": "adaptive"}
    found = _THRESHOLD.fullmatch(name)
    return {"image_threshold_pushdown": int(found[1])} if found else {}
