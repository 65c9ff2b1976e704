"""The pageserver dies at each of its crash points, under load, and is right again after the next start.

Right means: every digest taken at some LSN before is the same now, from object storage and the WAL alone; everything
acknowledged is there; what was being made is either absent or whole, and can be asked for again. The list of points
is the program's own: one that is new, or that is never reached, fails the test.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
from harness import Compute, Engine, Timeline, engine, wait_for
from workloads import amcheck

# What takes days at the usual sizes happens in seconds.
SETTINGS = {
    "checkpoint_distance_bytes": 128 << 10,
    "checkpoint_timeout_ms": 300,
    "compaction_target_bytes": 1 << 20,
    "compaction_threshold": 2,
    "history_window_seconds": 1,
    "image_threshold": 4,
    "image_threshold_pushdown": 4,
}
ROWS = 1000
UPDATE = "UPDATE t SET v = v + 1, pad = md5(random()::text) || md5(random()::text) WHERE id %% 10 = %s"
# A server that waits for its point reads everything again and again meanwhile, which fetches what was evicted.
SECONDS_TO_DIE = 40.0


@dataclass
class Churn:
    """Updates a tenth of the rows again and again, and counts what was acknowledged."""

    compute: Compute
    acknowledged: int = 0
    unknown: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                with self.compute.connect() as connection:
                    while not self._stop.wait(0.05):
                        connection.execute(UPDATE, (self.acknowledged % 10,))
                        self.acknowledged += 1
            except psycopg.OperationalError:
                self.unknown += 1
                self._stop.wait(0.1)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)


@dataclass
class Drill:
    """One pageserver, dying again and again."""

    running: Engine
    compute: Compute
    # Digests by timeline and LSN; a lease keeps each LSN readable.
    known: list[tuple[Timeline, str, str]] = field(default_factory=list)

    @property
    def main(self) -> Timeline:
        return self.compute.timeline

    def position(self) -> str:
        at = self.compute.status()["commit_lsn"]
        self.running.wait_ingested(self.main, at)
        return at

    def path(self, timeline: Timeline, rest: str = "") -> str:
        return f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}{rest}"

    def lease(self, timeline: Timeline, at: str) -> str:
        answer = self.running.storage.post(self.path(timeline, "/lease"), json={"lsn": at, "seconds": 3600})
        assert answer.status_code == 200, answer.text
        return answer.json()["lsn"]

    def remember(self) -> None:
        at = self.lease(self.main, self.position())
        self.known.append((self.main, at, self.running.digest(self.main, at)))

    def start(self, **environment: str) -> None:
        self.running.pageserver.environment = {"WEIR_CRASH_POINTS": "armable", **environment}
        self.running.pageserver.start()

    def check(self) -> None:
        """Everything acknowledged is ingested again, and everything known reads as it did."""
        self.position()
        for timeline, at, digest in self.known:
            assert self.running.digest(timeline, at) == digest, f"the pages of {timeline.id} at {at} have changed"

    def has_died(self, point: str) -> bool:
        child = self.running.pageserver.child
        assert child is not None
        code = child.poll()
        assert code in (None, -signal.SIGABRT), f"exited with {code}:\n{self.running.pageserver.tail()}"
        said = f"crash point {point} reached" in self.running.pageserver.tail(5)
        assert code is None or said, f"died elsewhere than at {point}:\n{self.running.pageserver.tail()}"
        return code is not None

    def die_at_start(self, point: str) -> None:
        self.running.pageserver.environment = {"WEIR_CRASH_POINT": point}
        self.running.pageserver.launch()
        wait_for(f"death at {point}", lambda: self.has_died(point), SECONDS_TO_DIE)

    def die_at(self, point: str, provoke: Callable[[], object]) -> None:
        self.running.storage.put(f"/v1/crash_point/{point}").raise_for_status()
        deadline = time.monotonic() + SECONDS_TO_DIE
        while not self.has_died(point):
            assert time.monotonic() < deadline, f"{point} was not reached in {SECONDS_TO_DIE} s"
            # Whatever is asked for while the server dies may fail.
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                provoke()
            time.sleep(0.05)


def read(drill: Drill) -> None:
    drill.running.digest(drill.main)


def die_and_ask_again(drill: Drill, point: str, ask: Callable[[], httpx.Response]) -> None:
    drill.die_at(point, ask)
    drill.start()
    answer = ask()
    assert answer.status_code < 300, f"after a death at {point}: {answer.text}"


def of_branches(drill: Drill, point: str) -> None:
    at = drill.position()
    body = {
        "new_timeline_id": secrets.token_hex(16),
        "pg_version": 15,
        "safekeepers": [],
        "ancestor_timeline_id": drill.main.id,
        "ancestor_start_lsn": drill.lease(drill.main, at),
    }
    branches = f"/v1/tenant/{drill.main.tenant}/timeline"
    die_and_ask_again(drill, point, lambda: drill.running.storage.post(branches, json=body))
    branch = Timeline(drill.main.tenant, body["new_timeline_id"], at)
    # A branch has the pages of its parent.
    assert drill.running.digest(branch) == drill.running.digest(drill.main, body["ancestor_start_lsn"])
    drill.running.storage.delete(drill.path(branch)).raise_for_status()


def of_deletion(drill: Drill, point: str) -> None:
    branch = drill.running.branch(drill.main)
    die_and_ask_again(drill, point, lambda: drill.running.storage.delete(drill.path(branch)))
    assert drill.running.storage.get(drill.path(branch)).status_code == 404
    objects = drill.running.root / "objects" / branch.tenant / branch.id
    left = [path for path in objects.rglob("*") if path.is_file()]
    assert left == [], f"a deletion that ended at {point} left {left}"


def of_detaching(drill: Drill, point: str) -> None:
    branch = drill.running.branch(drill.main, ancestor_start_lsn=drill.lease(drill.main, drill.position()))
    digest = drill.running.digest(branch, branch.start_lsn)
    detach = drill.path(branch, "/detach")
    die_and_ask_again(drill, point, lambda: drill.running.storage.post(detach))
    wait_for("the branch to be detached", lambda: drill.running.storage.post(detach).json()["state"] == "detached")
    assert drill.running.timeline_status(branch)["ancestor_timeline_id"] is None
    assert drill.running.digest(branch, branch.start_lsn) == digest
    drill.running.storage.delete(drill.path(branch)).raise_for_status()


def of_tenants(drill: Drill, point: str) -> None:
    path = f"/v1/tenant/{secrets.token_hex(16)}"
    die_and_ask_again(drill, point, lambda: drill.running.storage.put(path, json={}))
    drill.running.storage.delete(path).raise_for_status()


def of_terms(drill: Drill, point: str) -> None:
    branch = drill.running.branch(drill.main)
    bundle = drill.path(branch, "/bundle")

    def ask(term: int = 7) -> httpx.Response:
        return drill.running.storage.get(bundle, params={"lsn": branch.start_lsn, "term": term})

    die_and_ask_again(drill, point, ask)
    assert ask(6).status_code == 409, "an older term is let in"
    drill.running.storage.delete(drill.path(branch)).raise_for_status()


def of_auxiliary_files(drill: Drill, point: str) -> None:
    branch = drill.running.branch(drill.main)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("pg_stat/pgstat.stat"))
    at = {"lsn": branch.start_lsn, "term": 7}
    storage = drill.running.storage
    put = drill.path(branch, "/aux")
    die_and_ask_again(drill, point, lambda: storage.put(put, params=at, content=content.getvalue()))
    bundle = storage.get(drill.path(branch, "/bundle"), params=at).raise_for_status().content
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        assert "weir/aux.tar" in tar.getnames()
    storage.delete(drill.path(branch)).raise_for_status()


def of_leases(drill: Drill, point: str) -> None:
    body = {"lsn": drill.position(), "seconds": 3600}
    path = drill.path(drill.main, "/lease")
    die_and_ask_again(drill, point, lambda: drill.running.storage.post(path, json=body))


def under_load(drill: Drill, point: str) -> None:
    drill.die_at(point, lambda: read(drill))
    drill.start()


def in_place(drill: Drill, point: str) -> None:
    """Under load, on the same store as one whose layers are read in place."""
    pageserver = drill.running.pageserver
    copying = pageserver.arguments
    pageserver.kill9()
    pageserver.arguments = [word.replace("mount://", "file://") for word in copying]
    drill.start()
    drill.die_at(point, lambda: read(drill))
    pageserver.arguments = copying
    drill.start()
    # Others are being written meanwhile, which does not take long.
    objects = drill.running.root / "objects"
    wait_for("what is half written to go", lambda: not list(objects.rglob("*#*")), 10)


def at_start(drill: Drill, point: str) -> None:
    if "orphan" in point:
        drill.die_at("upload.layer-stored", lambda: None)
    else:
        drill.running.pageserver.kill9()
    drill.die_at_start(point)
    drill.start()


# How a point is reached, by the first part of its name.
WAYS: dict[str, Callable[[Drill, str], None]] = {
    "attach": at_start,
    "create": of_branches,
    "tenant": of_tenants,
    "term": of_terms,
    "aux": of_auxiliary_files,
    "lease": of_leases,
    "delete": of_deletion,
    "in-place": in_place,
    "detach": of_detaching,
    **dict.fromkeys(
        [
            *("images", "flush", "upload", "index", "drop", "older-indexes", "feedback", "compaction", "history"),
            *("settling", "download", "evict"),
        ],
        under_load,
    ),
}


def test_a_pageserver_that_dies_anywhere_is_right_again(say: Callable[[str], None]) -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    options = ["--layer-cache-mib", "6"]
    with engine(root, pageserver_options=options, object_store="mount://{objects}") as running:
        program = running.bin_dir / "weir-pageserver"
        points = subprocess.run([program, "crash-points"], check=True, capture_output=True, text=True).stdout.split()
        assert len(points) >= 30
        compute = running.compute(running.create_timeline(), full_page_writes=False)
        drill = Drill(running, compute)
        running.configure_tenant(drill.main.tenant, **SETTINGS)
        compute.sql(f"CREATE TABLE t AS SELECT n AS id, 0 AS v, '' AS pad FROM generate_series(1, {ROWS}) n")
        compute.sql("CREATE INDEX ON t (id)")
        churn = Churn(compute)
        began = time.monotonic()
        with churn.running():
            drill.remember()
            running.pageserver.kill9()
            drill.start()
            for number, point in enumerate(points):
                WAYS[point.partition(".")[0]](drill, point)
                drill.check()
                if number % 10 == 0:
                    drill.remember()
        drill.check()
        seconds = time.monotonic() - began
        say(f"died at {len(points)} points in {seconds:.0f} s, {churn.acknowledged} updates meanwhile")
        # Another compute has nothing but what the pageserver gives it.
        expected = compute.sql("SELECT count(*), sum(v), sum(hashtext(id || pad)) FROM t")
        assert churn.acknowledged <= expected[0][1] / (ROWS / 10) <= churn.acknowledged + churn.unknown
        compute.suspend()
        again = running.compute(drill.main)
        assert again.sql("SELECT count(*), sum(v), sum(hashtext(id || pad)) FROM t") == expected
        amcheck(again)
