"""Encrypted storage: what lies in the object store and on the pageserver's disk says nothing of a tenant's rows, and
keys that are wrong, lost or rotated lose nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from harness import Compute, Engine, Timeline, engine, lsn, wait_for
from test_offload import found_and_fill, lose_everything_but_the_store, offloaded
from workloads import amcheck

from weir.cli.encryption import Key, named, render

SMALL = {
    "checkpoint_distance_bytes": 1 << 20,
    "checkpoint_timeout_ms": 500,
    "compaction_target_bytes": 1 << 20,
    "compaction_threshold": 3,
    "image_threshold": 8,
}
# Random bytes, which compression leaves as they are: what is in clear is found again.
ROWS = 400
ROW_BYTES = 1800
LOOKED_FOR = 24
EVERYTHING = "SELECT count(*), sum(hashtext(encode(secret, 'hex'))) FROM t"
ENCRYPTED, PLAIN = b"WEIRCRYP", (b"WEIRLAYR", b"WEIRWALS")


def key(fill: int) -> Key:
    return named(bytes([fill]) * 32)


def write_keys(path: Path, keys: Sequence[Key]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(render(list(keys)))
    draft.chmod(0o600)
    draft.replace(path)


class Installation:
    """An engine whose object store is far away, so that layers are copied to the pageserver's disk."""

    def __init__(self, encrypts: bool, object_store: str = "mount://{objects}") -> None:
        self.root = Path(tempfile.mkdtemp(prefix="weir-system-"))
        self.keys = self.root / "storage_keys"
        write_keys(self.keys, [key(1)])
        self.options = ["--key-file", str(self.keys), "--encrypt"]
        options = self.options if encrypts else []
        offload = ["--object-store", object_store, "--offload-idle-seconds", "2"]
        self.engine = engine(
            self.root,
            object_store=object_store,
            pageserver_options=["--layer-cache-mib", "64", *options],
            safekeeper_options=[*offload, *options],
        )

    @property
    def objects(self) -> Path:
        return self.root / "objects"


def fill(compute: Compute) -> list[bytes]:
    """A table of random bytes; a part of each row."""
    secrets = [os.urandom(ROW_BYTES) for _ in range(ROWS)]
    with compute.connect() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, secret bytea)")
        connection.execute("ALTER TABLE t ALTER secret SET STORAGE PLAIN")
        for number, secret in enumerate(secrets):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (number, secret))
    return [secret[100 : 100 + LOOKED_FOR] for secret in secrets]


def checkpoint(running: Engine, timeline: Timeline) -> None:
    path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint"
    running.storage.post(path).raise_for_status()


def read_all(folder: Path, pattern: str = "*") -> Iterator[tuple[Path, bytes]]:
    """The files below a folder with their bytes. A file that the running engine deletes meanwhile is left out."""
    for file in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            if file.is_file():
                yield file, file.read_bytes()


def in_clear(folder: Path, secrets: Sequence[bytes]) -> int:
    """How many of the secrets are found in any file below a folder."""
    found: set[bytes] = set()
    for _, content in read_all(folder):
        found |= {secret for secret in secrets if secret in content}
    return len(found)


def marks(folder: Path, kind: str) -> set[bytes]:
    """How files of a kind ("layers", "wal") below a folder begin."""
    return {content[:8] for _, content in read_all(folder, f"{kind}/*")}


def offload_all(running: Engine, compute: Compute) -> None:
    compute.suspend()
    timeline = compute.timeline
    end = lsn(running.safekeeper_status(0, timeline)["commit_lsn"])
    wait_for("the end of the log to be offloaded", lambda: offloaded(running, timeline) >= end, 60)


def verify(running: Engine, timeline: Timeline, keys: Path) -> None:
    """Reads every layer that the index names, past any pageserver."""
    command = [str(running.bin_dir / "weir-pageserver"), "index", "verify", "--layers", "--key-file", str(keys)]
    command += ["--object-store", f"file://{running.root / 'objects'}"]
    command += ["--tenant", timeline.tenant, "--timeline", timeline.id]

    def whole() -> bool:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[:2000]
        return json.loads(done.stdout)["problems"] == []

    wait_for("the store to hold the timeline whole", whole, 20)


@pytest.mark.parametrize("encrypts", [True, False])
def test_no_row_is_in_clear_where_it_should_be_encrypted(encrypts: bool) -> None:
    """Promise: after flushes, compaction, a branch that was detached, a restart and the offload of WAL, the object
    store and the pageserver's disk have no row in clear. Without encryption both have, so the look finds them."""
    made = Installation(encrypts)
    with made.engine as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        secrets = fill(compute)
        # Before it is durable as pages, which would make it needless.
        offload_all(running, compute)
        compute = running.compute(timeline)
        running.configure_tenant(timeline.tenant, **SMALL)
        # Enough updates that layers are merged.
        for _ in range(6):
            compute.sql("UPDATE t SET id = id + 1000")
            checkpoint(running, timeline)
        expected = compute.sql(EVERYTHING)
        at = compute.status()["commit_lsn"]
        running.wait_ingested(timeline, at)
        digest = running.digest(timeline, at)

        branch = running.branch(timeline, ancestor_start_lsn=at)
        detach = f"/v1/tenant/{branch.tenant}/timeline/{branch.id}/detach"
        wait_for(
            "the branch to be detached",
            lambda: running.storage.post(detach).raise_for_status().json()["state"] == "detached",
            60,
        )
        running.pageserver.kill9()
        running.pageserver.start()
        assert running.digest(timeline, at) == digest
        assert running.digest(branch, at) == digest
        other = running.compute(branch)
        assert other.sql(EVERYTHING) == expected
        amcheck(other)
        for each in (other, compute):
            each.suspend()
            checkpoint(running, each.timeline)

        folders = [made.objects / timeline.tenant / it.id for it in (timeline, branch)]
        copies = made.root / "pageserver" / "tenants"
        looked = {"objects": made.objects, "wal": folders[0] / "wal", "copies": copies}
        found = {what: in_clear(folder, secrets) for what, folder in looked.items()}
        if encrypts:
            assert found == {"objects": 0, "wal": 0, "copies": 0}
            assert list(copies.rglob("*-*"))
            for folder in folders:
                assert marks(folder, "layers") == {ENCRYPTED}
            assert marks(folders[0], "wal") == {ENCRYPTED}
            for each in (timeline, branch):
                verify(running, each, made.keys)
        else:
            assert found["objects"] > ROWS // 2, found
            assert found["copies"] > 0, found
            assert found["wal"] > 0, found
            assert marks(made.objects, "layers") | marks(made.objects, "wal") == set(PLAIN)
        logs = b"".join(log.read_bytes() for log in made.root.glob("*.log"))
        assert key(1).secret.hex().encode() not in logs


def test_logs_are_filled_from_encrypted_wal() -> None:
    """Promise: when all safekeepers are lost, rows come back from WAL that is encrypted in the object store."""
    with Installation(True).engine as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        fill(compute)
        expected = compute.sql(EVERYTHING)
        offload_all(running, compute)
        lose_everything_but_the_store(running)
        found_and_fill(running, timeline)
        again = running.compute(timeline)
        assert again.sql(EVERYTHING) == expected


def contents(folder: Path) -> dict[str, str]:
    """The layers, WAL and keys below a folder, each with a hash of its bytes."""
    return {
        str(path): hashlib.sha256(content).hexdigest()
        for path, content in read_all(folder)
        if path.parent.name in ("layers", "wal") or path.name == "keys.json"
    }


def reason(running: Engine, timeline: Timeline) -> str:
    """Why a timeline is not open."""
    answer = running.storage.get(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}")
    assert answer.status_code == 500, answer.text
    return answer.json()["message"]


def test_wrong_and_lost_keys_stop_loudly_and_change_nothing() -> None:
    """Promise: with another key file, or without a tenant's data key, its timelines stay closed with the reason,
    nothing is deleted or made anew, and all is as before once the key is back, without a restart. Without a key file
    the pageserver does not start."""
    made = Installation(True, "file://{objects}")
    with made.engine as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        fill(compute)
        offload_all(running, compute)
        running.wait_ingested(timeline, running.safekeeper_status(0, timeline)["commit_lsn"])
        checkpoint(running, timeline)
        status = running.timeline_status(timeline)
        digest = running.digest(timeline, status["last_record_lsn"])
        running.pageserver.stop()
        for safekeeper in running.safekeepers:
            safekeeper.stop()
        before = contents(made.objects)
        assert len(before) > 2

        def is_open() -> bool:
            path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"
            return running.storage.get(path).status_code == 200

        def comes_back() -> None:
            wait_for("the timeline to be opened after all", is_open, 90)
            assert running.digest(timeline, status["last_record_lsn"]) == digest
            running.pageserver.stop()

        write_keys(made.keys, [key(2)])
        running.pageserver.start()
        assert "wrong key file" in reason(running, timeline)
        another = running.storage.post(
            f"/v1/tenant/{timeline.tenant}/timeline",
            json={"new_timeline_id": "f" * 32, "pg_version": 15, "safekeepers": []},
        )
        assert another.status_code == 500, another.text
        assert "wrong key file" in another.json()["message"]
        assert contents(made.objects) == before
        write_keys(made.keys, [key(1)])
        comes_back()

        document = made.objects / timeline.tenant / "keys.json"
        aside = document.rename(made.root / "keys.json")
        running.pageserver.start()
        assert "keys.json is not in the object store" in reason(running, timeline)
        assert not document.exists()
        aside.rename(document)
        comes_back()
        assert contents(made.objects) == before

        for text in (render([key(1)])[:-9], None):
            made.keys.unlink()
            if text is not None:
                made.keys.write_text(text)
                made.keys.chmod(0o600)
            running.pageserver.launch()
            assert running.pageserver.wait(60) != 0
            # The last words may be a stack.
            assert "put the right one back" in running.pageserver.tail(200)
            running.safekeepers[0].launch()
            assert running.safekeepers[0].wait(60) != 0
            made.keys.touch()
        write_keys(made.keys, [key(1)])
        assert contents(made.objects) == before
        for safekeeper in running.safekeepers:
            safekeeper.start()
        running.pageserver.start()
        assert running.digest(timeline, status["last_record_lsn"]) == digest

        # A project whose key is lost for good can be deleted.
        running.pageserver.stop()
        document.unlink()
        running.pageserver.start()
        assert "keys.json is not in the object store" in reason(running, timeline)
        running.storage.delete(f"/v1/tenant/{timeline.tenant}").raise_for_status()
        assert not list(made.objects.rglob("layers/*"))
        assert not (made.objects / timeline.tenant / "config.json").exists()


def keys_tool(running: Engine, command: str, *options: str) -> str:
    program = str(running.bin_dir / "weir-pageserver")
    store = f"file://{running.root / 'objects'}"
    words = [program, "keys", command, "--object-store", store, *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_rotation_while_everything_runs_keeps_everything_readable() -> None:
    """Promise: after a new key and `keys rewrap`, all is read with the old key gone, by what ran meanwhile and by
    what is started afterwards; deleting a tenant deletes its key."""
    made = Installation(True, "file://{objects}")
    with made.engine as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        running.configure_tenant(timeline.tenant, **SMALL)
        fill(compute)
        checkpoint(running, timeline)
        rows = json.loads(keys_tool(running, "list"))
        assert [(row["tenant"], row["wrapped_by"], row["plain"]) for row in rows] == [
            (timeline.tenant, key(1).name, "refused")
        ]
        write_keys(made.keys, [key(1), key(2)])
        rewrapped = json.loads(keys_tool(running, "rewrap", "--key-file", str(made.keys)))
        assert rewrapped == {"wrapped": 1, "failures": []}
        assert json.loads(keys_tool(running, "list"))[0]["wrapped_by"] == key(2).name
        write_keys(made.keys, [key(2)])

        compute.sql("UPDATE t SET id = id + 1000")
        checkpoint(running, timeline)
        late = running.create_timeline()
        expected = compute.sql(EVERYTHING)
        compute.suspend()
        for process in [running.pageserver, *running.safekeepers]:
            process.kill9()
        for process in [*running.safekeepers, running.pageserver]:
            process.start()
        again = running.compute(timeline)
        assert again.sql(EVERYTHING) == expected
        again.suspend()
        rows = json.loads(keys_tool(running, "list"))
        assert {row["tenant"]: row["wrapped_by"] for row in rows} == {
            timeline.tenant: key(2).name,
            late.tenant: key(2).name,
        }
        running.storage.delete(f"/v1/tenant/{timeline.tenant}").raise_for_status()
        assert [row["tenant"] for row in json.loads(keys_tool(running, "list"))] == [late.tenant]
        assert not (made.objects / timeline.tenant / "keys.json").exists()


def test_encryption_is_turned_on_for_what_is_there_already_and_stays() -> None:
    """Promise: plain layers of before are read beside encrypted ones; everything that is written from then on is
    encrypted, also when the setting is off again."""
    made = Installation(False, "file://{objects}")
    with made.engine as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        fill(compute)
        checkpoint(running, timeline)
        folder = made.objects / timeline.tenant / timeline.id / "layers"
        of_before = set(folder.iterdir())
        assert marks(made.objects, "layers") == {PLAIN[0]}
        programs = [running.pageserver, *running.safekeepers]
        for options in (made.options, made.options[:-1]):
            for process in programs:
                process.stop()
                process.arguments = [word for word in process.arguments if word not in made.options] + options
            for process in [*running.safekeepers, running.pageserver]:
                process.start()
            compute.sql("UPDATE t SET id = id + 1000")
            checkpoint(running, timeline)
            assert compute.sql("SELECT count(*) FROM t") == [(ROWS,)]
            later = {file.read_bytes()[:8] for file in set(folder.iterdir()) - of_before}
            assert later == {ENCRYPTED}
            verify(running, timeline, made.keys)
        row = json.loads(keys_tool(running, "list"))[0]
        assert (row["tenant"], row["plain"]) == (timeline.tenant, "accepted")
        fresh = running.create_timeline()
        assert marks(made.objects / fresh.tenant, "layers") == {PLAIN[0]}
