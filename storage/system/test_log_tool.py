"""`weir log` on directories that a whole engine has written, with everything stopped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from harness import Engine, Timeline, lsn, wait_for
from stored_wal import flip

from weir.cli import installation as installations


def weir(home: Path, *words: str) -> tuple[int, str, str]:
    """A `weir` command on the engine's directory: its exit code, stdout and stderr."""
    program = "from weir.cli.main import main; main()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
    environment["WEIR_BIN_DIR"] = str(Engine(home).bin_dir)
    done = subprocess.run(
        [sys.executable, "-c", program, "--home", str(home), *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def verify(home: Path, timeline: Timeline, code: int) -> dict[str, Any]:
    returned, out, err = weir(home, "log", "verify", "--json", timeline.id)
    assert returned == code, out + err
    return json.loads(out)


def stop_everything(running: Engine) -> None:
    running.pageserver.stop()
    for safekeeper in running.safekeepers:
        safekeeper.stop()


def test_what_the_safekeepers_hold_can_be_seen_with_everything_stopped(own: Engine) -> None:
    installations.create(own.root, 17400)
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE kept AS SELECT g, repeat('x', 100) AS filler FROM generate_series(1, 20000) g")
    # While everything runs, and writes.
    returned, out, err = weir(own.root, "log", "verify", timeline.id)
    assert returned == 0, out + err
    compute.suspend()
    committed = own.safekeeper_status(0, timeline)["commit_lsn"]
    wait_for(
        "every safekeeper to have stored what is committed",
        lambda: set(own.stored_commits(timeline)) == {committed},
        20,
    )
    stop_everything(own)

    report = verify(own.root, timeline, 0)
    assert report["sound"]
    assert report["committed"] == committed
    assert [standing["holds_committed"] for standing in report["standings"]] == [True, True, True]
    assert report["comparison"]["differences"] == []
    returned, out, _ = weir(own.root, "log", "show", timeline.id)
    assert returned == 0
    assert f"safekeeper-1, safekeeper-2 and safekeeper-3 hold everything committed up to {committed}" in out
    returned, out, _ = weir(own.root, "log", "list")
    assert returned == 0
    assert timeline.id in out

    # One byte in the middle of what is committed.
    proven = report["members"][1]["scan"]["proven"][0]
    middle = (lsn(proven["from"]) + lsn(proven["to"])) // 2
    flip(own, 1, timeline, middle)
    report = verify(own.root, timeline, 1)
    (difference,) = report["comparison"]["differences"]
    assert difference["from"] == f"0/{middle:X}"
    assert difference["groups"] == [["safekeeper-1", "safekeeper-3"], ["safekeeper-2"]]
    flip(own, 1, timeline, middle)

    shutil.rmtree(own.root / "safekeeper-3" / timeline.tenant / timeline.id)
    report = verify(own.root, timeline, 1)
    assert [finding["kind"] for finding in report["findings"]] == ["absent"]
    assert report["findings"][0]["member"] == "safekeeper-3"
    returned, out, _ = weir(own.root, "log", "show", timeline.id)
    assert returned == 1
    assert "safekeeper-3's directory lacks this timeline" in out
    assert f"safekeeper-1 and safekeeper-2 hold everything committed up to {committed}" in out

    # A name is in the metadata database, which this engine has none of.
    returned, out, err = weir(own.root, "log", "show", "main")
    assert returned == 2
    assert timeline.id in err
    assert "timeline's id needs no database" in err

    # Looking has changed nothing: everything starts again, and the compute finds its rows.
    for safekeeper in own.safekeepers:
        safekeeper.start()
    own.pageserver.start()
    assert httpx.get(own.safekeeper_url(2, timeline), timeout=10).status_code == 404
    compute = own.compute(timeline)
    assert compute.sql("SELECT count(*) FROM kept") == [(20000,)]
