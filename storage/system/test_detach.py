"""A branch made independent of its ancestors: everything it could read stays, and they can go."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

from harness import Engine, Timeline, engine, wait_for
from workloads import amcheck

ROWS = 2000
# Of giving up a detach before it is done.
MOST_TRIES = 20
SETTINGS = {
    "checkpoint_distance_bytes": 256 << 10,
    "checkpoint_timeout_ms": 500,
    "compaction_target_bytes": 1 << 20,
    "compaction_threshold": 3,
    "image_threshold": 8,
}
EVERYTHING = "SELECT count(*), sum(v), sum(hashtext(id || pad)) FROM t"


def path(timeline: Timeline, rest: str = "") -> str:
    return f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}{rest}"


def detach(running: Engine, timeline: Timeline) -> None:
    def detached() -> bool:
        # Asked for again and again: once is enough, more does no harm.
        answer = running.storage.post(path(timeline, "/detach"))
        assert answer.status_code in (200, 202), answer.text
        found = answer.json()
        assert found["reason"] is None, found
        assert 0 <= found["layers_copied"] <= found["layers"]
        return found["state"] == "detached"

    wait_for("the branch to be detached", detached, 60)


def test_a_detached_branch_keeps_everything_and_its_ancestors_can_go() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    options = ["--layer-cache-mib", "64"]
    with engine(root, pageserver_options=options, object_store="mount://{objects}") as running:
        first = running.compute(running.create_timeline())
        tenant = first.timeline.tenant
        running.configure_tenant(tenant, **SETTINGS)
        first.sql(f"CREATE TABLE t AS SELECT n AS id, 0 AS v, '' AS pad FROM generate_series(1, {ROWS}) n")
        first.sql("CREATE INDEX ON t (id)")
        update = "UPDATE t SET v = v + 1, pad = md5(random()::text) WHERE id %% 3 = %s"
        known: list[tuple[Timeline, str, str]] = []

        def remember(timeline: Timeline, at: str) -> str:
            running.wait_ingested(timeline, at)
            known.append((timeline, at, running.digest(timeline, at)))
            return at

        for round_ in range(6):
            first.sql(update, round_ % 3)
        past = first.status()["commit_lsn"]
        first.sql(update, 0)
        second = running.compute(running.branch(first.timeline, ancestor_start_lsn=first.status()["commit_lsn"]))
        second.sql("DELETE FROM t WHERE id % 10 = 0")
        branch_point = second.status()["commit_lsn"]
        third = running.compute(running.branch(second.timeline, ancestor_start_lsn=branch_point))
        # What no layer says, and what is newer than the branch points, must stay behind.
        first.sql(update, 1)
        second.sql("DROP INDEX t_id_idx")
        third.sql(update, 2)
        remember(third.timeline, third.status()["commit_lsn"])
        remember(third.timeline, branch_point)
        remember(third.timeline, past)
        below = running.branch(third.timeline, ancestor_start_lsn=known[0][1])
        of_the_past = running.branch(third.timeline, ancestor_start_lsn=past)
        known += [(it, it.start_lsn, running.digest(it, it.start_lsn)) for it in (below, of_the_past)]
        leased = {"lsn": past, "seconds": 600}
        running.storage.post(path(third.timeline, "/lease"), json=leased).raise_for_status()
        refused = running.storage.delete(path(second.timeline))
        assert refused.status_code == 412, refused.text

        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                third.sql(update, 0)
                first.sql(update, 1)

        loading = threading.Thread(target=load, daemon=True)
        loading.start()
        detach(running, third.timeline)
        stop.set()
        loading.join(60)
        remember(third.timeline, third.status()["commit_lsn"])
        expected = third.sql(EVERYTHING)
        status = running.timeline_status(third.timeline)
        assert status["ancestor_timeline_id"] is None
        for compute in (first, second):
            compute.suspend()
        for gone in (second.timeline, first.timeline):
            running.storage.delete(path(gone)).raise_for_status()
            assert not list((root / "objects" / tenant / gone.id).rglob("*.json"))
        check(running, known)
        running.pageserver.kill9()
        running.pageserver.start()
        check(running, known)
        third.suspend()
        for timeline, wanted in ((third.timeline, expected), (below, None), (of_the_past, None)):
            again = running.compute(timeline)
            assert wanted is None or again.sql(EVERYTHING) == wanted
            again.sql("INSERT INTO t VALUES (-1, 0, 'new')")
            amcheck(again)
        # It is a timeline like any other now, which has nothing to be detached from.
        answer = running.storage.post(path(third.timeline, "/detach"))
        assert (answer.status_code, answer.json()["state"]) == (200, "detached")
        root_timeline = running.create_timeline()
        assert running.storage.post(path(root_timeline, "/detach")).status_code == 409


def test_a_detach_that_is_given_up_leaves_the_branch_as_it_was() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root, object_store="mount://{objects}") as running:
        first = running.compute(running.create_timeline())
        running.configure_tenant(first.timeline.tenant, **SETTINGS)
        first.sql(f"CREATE TABLE t AS SELECT n AS id, 0 AS v, '' AS pad FROM generate_series(1, {ROWS}) n")
        for _ in range(6):
            first.sql("UPDATE t SET v = v + 1, pad = md5(random()::text)")
        at = first.status()["commit_lsn"]
        branches = [running.branch(first.timeline, ancestor_start_lsn=at) for _ in range(MOST_TRIES)]
        known = [(it, it.start_lsn, running.digest(it, it.start_lsn)) for it in branches]
        # There is nothing to give up yet.
        answer = running.storage.delete(path(branches[0], "/detach"))
        assert (answer.status_code, answer.json()["state"]) == (200, "attached")
        given_up: Timeline | None = None
        for branch in branches:
            running.storage.post(path(branch, "/detach")).raise_for_status()
            running.storage.delete(path(branch, "/detach")).raise_for_status()
            # Where it was faster than the request to stop, it is detached, and nothing else.
            if ended(running, branch)["state"] == "attached":
                given_up = branch
                break
        assert given_up is not None, f"{MOST_TRIES} detaches were all faster than the request to give them up"
        found = ended(running, given_up)
        assert (found["state"], found["reason"]) == ("attached", None)
        assert running.timeline_status(given_up)["ancestor_timeline_id"] == first.timeline.id
        assert running.storage.delete(path(first.timeline)).status_code == 412
        check(running, known)
        running.pageserver.kill9()
        running.pageserver.start()
        check(running, known)
        assert running.timeline_status(given_up)["ancestor_timeline_id"] == first.timeline.id
        detach(running, given_up)
        check(running, known)
        # Too late.
        answer = running.storage.delete(path(given_up, "/detach"))
        assert (answer.status_code, answer.json()["state"]) == (200, "detached")


def ended(running: Engine, timeline: Timeline) -> dict[str, Any]:
    """What a detach has come to."""
    found: list[dict[str, Any]] = []

    def stopped() -> bool:
        answer = running.storage.get(path(timeline, "/detach"))
        found.append(answer.json())
        return found[-1]["state"] != "running"

    wait_for("the detach to end", stopped, 60)
    return found[-1]


def check(running: Engine, known: list[tuple[Timeline, str, str]]) -> None:
    for timeline, at, digest in known:
        assert running.digest(timeline, at) == digest, f"the pages of {timeline.id} at {at} have changed"
