"""`weir` for resources, as a person and as a script uses it: the real program, the real API."""

import asyncio
import csv
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from weir_testing.fixtures import Weir

from weir.databases import schema_dump
from weir.kit.clock import now
from weir.projects.models import Project
from weir.usage.metering import SUMMED, floor
from weir.usage.models import Grain, UsagePeriod

PROGRAM = (sys.executable, "-c", "from weir.cli import main; main()")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """A shell in which the API's address and key are set, on a machine without a Weir of its own."""

    def __init__(self, weir: Weir, home: Path) -> None:
        self.weir = weir
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "WEIR_HOME": str(home / "none"),
            "WEIR_API_URL": weir.url,
            "WEIR_API_KEY": weir.api_key,
        }
        if "PYTHONPATH" in os.environ:
            self.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]

    async def run(self, *words: str, code: int = 0, **environment: str) -> Ran:
        """Runs `weir` with these words; its exit code has to be `code`. Whatever it says, it never says the key."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *words,
            env=self.environment | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        ran = Ran(process.returncode or 0, out.decode(), err.decode())
        assert ran.code == code, f"weir {' '.join(words)}: {ran}"
        assert self.weir.api_key not in ran.out + ran.err
        assert "Traceback" not in ran.err, ran.err
        return ran


@pytest.fixture
def shell(weir: Weir, tmp_path: Path) -> Shell:
    return Shell(weir, tmp_path)


async def _project(shell: Shell, name: str) -> dict[str, Any]:
    made = (await shell.run("projects", "create", name, "-o", "json")).json
    shell.weir.storage.advance(made["branch"]["timeline_id"], "0/1900000")
    return made


async def test_a_project_is_made_shown_changed_and_deleted(shell: Shell) -> None:
    said = await shell.run(
        "projects", "create", "cli shop", "--database", "shop", "--role", "keeper", "--history", "2d"
    )
    assert "Database:  shop" in said.out
    assert "its compute runs" in said.err
    project = next(row for row in await shell.weir.projects() if row["name"] == "cli shop")
    where = f"/projects/{project['id']}"
    assert project["history_retention_seconds"] == 2 * 86400
    # What a program reads is what the API says, whether the project is named or given by its id.
    for word in ("cli shop", project["id"]):
        assert (await shell.run("projects", "show", word, "--output", "json")).json == await shell.weir.call(
            "GET", where
        )
    table = (await shell.run("projects", "list")).out.splitlines()
    assert table[0].split()[:3] == ["NAME", "ID", "POSTGRES"]
    assert any("cli shop" in line and project["id"] in line for line in table[1:])
    await shell.run("projects", "update", "cli shop", "--name", "cli shop 2")
    assert "cli shop 2" in (await shell.run("projects", "show", project["id"])).out
    # Nobody is at the terminal: it asks for a word instead of doing it.
    refused = await shell.run("projects", "delete", project["id"], code=1)
    assert "--yes" in refused.err
    assert (await shell.weir.call("GET", where))["project"]["id"] == project["id"]
    deleted = (await shell.run("projects", "delete", project["id"], "--yes", "-o", "json")).json
    assert (await shell.weir.client.get(f"/api/v2{where}")).status_code == 404
    # Its operations are asked for by its id still.
    last = deleted["operations"][-1]["id"]
    shown = (await shell.run("operations", "show", last, "-p", project["id"], "-o", "json")).json
    assert shown["operation"]["status"] == "finished"


async def test_branches_are_made_of_a_past_put_back_and_marked(shell: Shell) -> None:
    made = await _project(shell, "cli-branches")
    project, main = made["project"]["id"], made["branch"]["id"]
    scope = ("-p", "cli-branches")
    dev = (await shell.run("branches", "create", "dev", *scope, "--no-compute", "-o", "json")).json["branch"]
    past = await shell.run("branches", "create", "past", *scope, "--lsn", "0/1700000", "--no-compute", "-o", "json")
    assert (past.json["branch"]["parent_id"], past.json["branch"]["parent_lsn"]) == (main, "0/1700000")
    listed = (await shell.run("branches", "list", *scope)).out
    assert [line.split()[0] for line in listed.splitlines()] == ["NAME", "past", "dev", "main"]
    assert "default" in listed.splitlines()[3]

    await shell.run("branches", "set-default", "dev", *scope)
    await shell.run("branches", "set-default", "main", *scope)
    await shell.run("branches", "set-expiry", "dev", "7d", *scope)
    assert (await shell.weir.call("GET", f"/projects/{project}/branches/{dev['id']}"))["branch"]["expires_at"]
    await shell.run("branches", "set-expiry", "dev", "never", *scope)
    await shell.run("branches", "rename", "dev", "dev/2", *scope)
    await shell.run("branches", "protect", "dev/2", *scope)
    refused = await shell.run("branches", "delete", "dev/2", *scope, "--yes", code=1)
    assert "protected" in refused.err
    await shell.run("branches", "protect", "dev/2", "--off", *scope)

    # Back in its own past, what it was stays, whether anybody has thought of that or not.
    await shell.run("branches", "restore", "main", *scope, "--lsn", "0/1700000")
    kept = [row["name"] for row in await _branches(shell, project) if row["name"].startswith("main-before-")]
    assert len(kept) == 1
    # To the parent's newest state, what it was goes: not unasked.
    await shell.run("branches", "reset", "dev/2", *scope, code=1)
    await shell.run("branches", "reset", "dev/2", *scope, "--yes")
    assert "has no parent" in (await shell.run("branches", "reset", kept[0], *scope, "--yes", code=1)).err
    await shell.run("branches", "delete", "dev/2", *scope, "--yes")
    assert "dev/2" not in [row["name"] for row in await _branches(shell, project)]
    assert "0/1900000" in (await shell.run("branches", "history", kept[0], *scope)).out


async def _branches(shell: Shell, project: str) -> list[dict[str, Any]]:
    return (await shell.weir.call("GET", f"/projects/{project}/branches"))["branches"]


async def test_snapshots_are_taken_restored_scheduled_and_deleted(shell: Shell) -> None:
    made = await _project(shell, "cli-snapshots")
    project, main = made["project"]["id"], made["branch"]["id"]
    scope = ("-p", "cli-snapshots")
    assert "No snapshot" in (await shell.run("snapshots", "list", *scope)).out
    said = await shell.run("snapshots", "create", "--name", "before it", "--expires", "7d", *scope)
    assert "Snapshot:   before it" in said.out
    assert "taken" in said.err
    taken = (await shell.run("snapshots", "create", "--lsn", "0/1700000", *scope, "-o", "json")).json["snapshot"]
    assert (taken["lsn"], taken["source_branch_id"]) == ("0/1700000", main)
    listed = (await shell.run("snapshots", "list", *scope)).out.splitlines()
    assert listed[0].split()[:3] == ["NAME", "ID", "BRANCH"]
    assert any("before it" in line and " main " in line for line in listed)
    assert (await shell.run("snapshots", "list", *scope, "-o", "json")).json == await shell.weir.call(
        "GET", f"/projects/{project}/snapshots"
    )
    await shell.run("snapshots", "update", "before it", "--name", "of the start", "--expires", "never", *scope)
    assert (
        "no snapshot 'before it'" in (await shell.run("snapshots", "delete", "before it", "-y", *scope, code=1)).err
    )

    look = await shell.run("snapshots", "restore", "of the start", "--name", "look", *scope, "-o", "json")
    assert look.json["branch"]["restored_as"] == main
    refused = await shell.run("snapshots", "restore", taken["id"], "--in-place", *scope, code=1)
    assert "--yes" in refused.err
    await shell.run("snapshots", "restore", taken["id"], "--in-place", "--name", "x", *scope, code=2)
    await shell.run("snapshots", "restore", taken["id"], "--in-place", *scope, "--yes")
    await shell.run("snapshots", "finalize", "look", "--preserve-as", "main before", *scope, "--yes")
    names = {row["name"] for row in await _branches(shell, project)}
    assert {"main", "main before"} <= names
    assert "look" not in names
    now = next(row for row in await _branches(shell, project) if row["id"] == main)
    assert now["restored_from"] == look.json["branch"]["restored_from"]

    await shell.run("snapshots", "schedule", "set", "main", "--every", "daily", "--hour", "3", "--keep", "7d", *scope)
    await shell.run("snapshots", "schedule", "set", "main", "--every", "weekly", "--day", "7", "--add", *scope)
    shown = await shell.run("snapshots", "schedule", "show", "main", *scope)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["EVERY", "daily", "weekly"]
    await shell.run("snapshots", "schedule", "end", "main", *scope)
    assert "No schedule" in (await shell.run("snapshots", "schedule", "show", "main", *scope)).out
    assert "its data goes with" in (await shell.run("snapshots", "delete", taken["id"], *scope, "--yes")).err


async def test_schemas_are_compared(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await _project(shell, "cli-schemas")
    scope = ("-p", "cli-schemas")
    dev = (await shell.run("branches", "create", "dev", *scope, "-o", "json")).json["branch"]
    schemas = {made["branch"]["id"]: "CREATE TABLE a ();\n", dev["id"]: "CREATE TABLE b ();\n"}

    async def dump(source: schema_dump.Source) -> str:
        return schemas[source.branch_id]

    monkeypatch.setattr(schema_dump, "dump", dump)
    asked = ("branches", "schema-diff", "dev")
    database = ("--database", made["databases"][0]["name"], *scope)
    said = await shell.run(*asked, *database)
    assert said.out.splitlines()[2:] == ["@@ -1 +1 @@", "-CREATE TABLE a ();", "+CREATE TABLE b ();"]
    assert (await shell.run(*asked, "main", *database, "-o", "json")).json["diff"] == said.out
    await shell.run(*asked, *database, "--exit-code", code=1)
    await shell.run(*asked, *database, "--at", "1m", "--lsn", "0/1700000", code=2)
    same = await shell.run(*asked, "dev", *database, "--exit-code")
    assert (same.out, "the same" in same.err) == ("", True)
    assert "does not exist" in (await shell.run(*asked, "--database", "other", *scope, code=1)).err


async def test_a_compute_is_stopped_started_and_given_settings(shell: Shell) -> None:
    made = await _project(shell, "cli-computes")
    ident = made["endpoints"][0]["id"]
    scope = ("--project", made["project"]["id"])

    async def state() -> str:
        return (await shell.weir.call("GET", f"/computes/{ident}"))["compute"]["state"]

    assert ident in (await shell.run("computes", "list", *scope)).out
    await shell.run("computes", "suspend", ident)
    assert await state() == "idle"
    await shell.run("computes", "start", "main", *scope)
    assert await state() == "active"
    assert "Started" in (await shell.run("computes", "show", made["branch"]["id"])).out
    await shell.run("computes", "settings", ident, "--set", "work_mem=64MB", "--set", "Statement_Timeout = 30s")
    await shell.run("computes", "settings", ident, "--unset", "statement_timeout")
    shown = (await shell.run("computes", "settings", ident, "-o", "json")).json
    assert [row["name"] for row in shown["settings"] if row.get("wanted")] == ["work_mem"]
    assert "cannot be taken back" in (await shell.run("computes", "settings", ident, "--unset", "jit", code=1)).err
    # Rows of unlogged tables are lost only when that is said.
    await shell.run("computes", "settings", ident, "--set", "test.unlogged_bytes=5000000")
    for command in ("suspend", "restart"):
        refused = await shell.run("computes", command, ident, code=1)
        assert "5.0 MB in unlogged tables" in refused.err
        assert "discard_unlogged" in refused.err
    assert await state() == "active"
    await shell.run("computes", "restart", ident, "--discard-unlogged")
    await shell.run("computes", "settings", ident, "--unset", "test.unlogged_bytes")
    # A start that fails is a failure of the command, with the reason.
    await shell.run("computes", "settings", ident, "--set", "test.mode=fail")
    failed = await shell.run("computes", "restart", ident, code=4)
    assert ident in failed.err
    # The time to wait is over at once; what was asked for is named, so that it can be waited for.
    queued = await shell.run("computes", "suspend", ident, "--no-wait", "-o", "json")
    await shell.run("operations", "wait", queued.json["operations"][0]["id"], *scope)
    await shell.run("computes", "delete", ident, "--yes")
    assert "no compute" in (await shell.run("computes", "show", ident, code=1)).err


async def test_an_operation_is_cancelled_and_what_cannot_be_is_refused(shell: Shell) -> None:
    made = await _project(shell, "cli-cancel")
    scope = ("-p", made["project"]["id"])
    dev = (await shell.run("branches", "create", "dev", *scope, "--no-compute", "-o", "json")).json["branch"]
    shell.weir.storage.slow_detaches.add(dev["timeline_id"])
    asked = await shell.weir.call("POST", f"/projects/{made['project']['id']}/branches/{dev['id']}/detach")
    ident = asked["operations"][0]["id"]
    assert f"Operation {ident} is cancelled." in (await shell.run("operations", "cancel", ident, *scope)).out
    refused = await shell.run("operations", "cancel", made["operations"][0]["id"], *scope, code=1)
    assert "cannot be cancelled: it is finished already" in refused.err


async def test_roles_and_databases_are_made_given_and_dropped(shell: Shell) -> None:
    made = await _project(shell, "cli-databases")
    scope = ("-p", made["project"]["id"])
    await shell.run("roles", "create", "reporter", *scope)
    before = (await shell.run("roles", "password", "reporter", *scope)).out.strip()
    after = (await shell.run("roles", "reset-password", "reporter", *scope)).out.strip()
    assert before != after == (await shell.run("roles", "password", "reporter", *scope)).out.strip()
    await shell.run("databases", "create", "reports", "--owner", "reporter", *scope)
    several = await shell.run("connection-string", "main", *scope, code=1)
    assert "--database" in several.err
    uri = (await shell.run("connection-string", "main", "-d", "reports", *scope)).out
    assert uri.startswith("postgresql://reporter:")
    assert uri.endswith("/reports\n")
    pooled = await shell.run("connection-string", "main", "-d", "reports", "--pooled", *scope, code=1)
    assert "pooled by the proxy" in pooled.err
    owner = made["roles"][0]["name"]
    await shell.run("databases", "give", "reports", owner, *scope)
    listed = (await shell.run("databases", "list", *scope)).out
    assert any(line.split()[:2] == ["reports", owner] for line in listed.splitlines())
    for words in (("databases", "delete", "reports"), ("roles", "delete", "reporter")):
        await shell.run(*words, *scope, code=1)
        await shell.run(*words, *scope, "--yes")
        assert "nothing is done" in (await shell.run(*words, *scope, "--yes")).out
    assert "reporter" not in (await shell.run("roles", "list", *scope)).out


async def test_a_name_that_several_things_have_is_refused_and_nothing_is_done(shell: Shell) -> None:
    ids = [(await _project(shell, "cli-twins"))["project"]["id"] for _ in range(2)]
    refused = await shell.run("projects", "delete", "cli-twins", "--yes", code=1)
    assert all(ident in refused.err for ident in ids)
    assert "give an id" in refused.err
    branches = await shell.run("branches", "delete", "main", "--yes", code=1)
    assert "--project" in branches.err
    assert all(ident in branches.err for ident in ids)
    which = await shell.run("roles", "list", code=1)
    assert "WEIR_PROJECT" in which.err
    assert (await shell.run("roles", "list", WEIR_PROJECT=ids[0])).out
    assert [row["id"] for row in await shell.weir.projects() if row["name"] == "cli-twins"] == ids[::-1]
    assert "no project 'cli-nobody'" in (await shell.run("projects", "show", "cli-nobody", code=1)).err
    # What is a path of its own at the API is a name like any other.
    assert "no project 'shared'" in (await shell.run("projects", "show", "shared", code=1)).err


async def test_a_rollout_is_planned_held_steered_and_stopped(shell: Shell) -> None:
    made = await _project(shell, "cli-rollouts")
    chosen = ("--project", "cli-rollouts", "--baseline", "0s", "--bake", "0s")
    plan = await shell.run("rollouts", "plan", *chosen, "-o", "json")
    assert plan.json["plan"]["computes_total"] == 1
    assert "WAVE" in (await shell.run("rollouts", "plan", *chosen)).out
    started = await shell.run("rollouts", "start", "--name", "cli", *chosen, "--approve-plan", "-o", "json")
    ident = started.json["rollout"]["id"]
    held = await shell.run("rollouts", "wait", "cli", code=4)
    assert "held" in held.err
    assert "pending" in (await shell.run("rollouts", "computes", "cli")).out
    await shell.run("rollouts", "skip", "cli", code=2)
    await shell.run("rollouts", "approve", "cli")
    await shell.run("rollouts", "wait", ident, "--timeout", "60")
    assert "completed" in (await shell.run("rollouts", "list")).out
    await shell.run("rollouts", "rollback", "cli", code=1)
    await shell.run("rollouts", "rollback", "cli", "--yes")
    await shell.run("rollouts", "wait", "cli", "--timeout", "60")
    shown = (await shell.run("rollouts", "show", "cli", "-o", "json")).json
    assert shown == await shell.weir.call("GET", f"/rollouts/{ident}")
    assert shown["rollout"]["status"] == "rolled_back"
    assert made["endpoints"][0]["id"] in (await shell.run("rollouts", "computes", "cli")).out


async def test_an_api_that_is_away_and_a_key_it_does_not_know_are_told_apart(shell: Shell) -> None:
    away = await shell.run("projects", "list", WEIR_API_URL="http://127.0.0.1:9", code=3)
    assert "does not answer" in away.err
    wrong = await shell.run("projects", "list", WEIR_API_KEY="weir_not_a_key", code=1)
    assert "WEIR_API_KEY" in wrong.err
    assert "weir_not_a_key" not in wrong.err
    odd = await shell.run("projects", "list", WEIR_API_KEY="two words", code=1)
    assert "two words" not in odd.err
    nowhere = await shell.run("projects", "list", WEIR_API_URL="", code=1)
    assert "weir up" in nowhere.err
    await shell.run("branches", "create", "x", "--at", "2026-05-04T12:30:00", code=2)


async def test_shells_complete_commands_and_names(shell: Shell) -> None:
    await _project(shell, "completed-cli")
    for name in ("bash", "zsh", "fish"):
        assert "_WEIR_COMPLETE" in (await shell.run("completion", name)).out

    async def completed(words: str, at: int) -> list[str]:
        answer = await shell.run(_WEIR_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(at))
        return [line.partition(",")[2] for line in answer.out.splitlines() if line]

    assert await completed("weir proj", 1) == ["projects"]
    assert await completed("weir projects show completed-", 3) == ["completed-cli"]
    assert await completed("weir psql --project completed-cli ma", 4) == ["main"]
    shell.environment["WEIR_API_URL"] = "http://127.0.0.1:9"
    assert await completed("weir projects show completed-", 3) == []


async def test_usage_is_shown_by_rows_as_csv_and_as_the_api_says_it(shell: Shell) -> None:
    ident = (await shell.weir.project(name="cli-usage"))["project"]["id"]
    at = now() - timedelta(days=3)
    async with shell.weir.resources.database.transaction() as session:
        account = (await session.get_one(Project, ident)).account_id
        row = {"account_id": account, "project_id": ident, "grain": Grain.DAY, "starts_at": floor(at, Grain.DAY)}
        used = dict.fromkeys(SUMMED, 0) | {"active_seconds": 7200.0, "written_bytes": 2_000_000}
        await session.execute(insert(UsagePeriod).values(**row, **used))
    said = (await shell.run("usage", "-p", "cli-usage")).out
    line = next(line for line in said.splitlines() if line.startswith(f"{at:%Y-%m-%d}"))
    assert "2.0 MB" in line
    assert "STORAGE HOURS" in said.splitlines()[0]
    lines = list(csv.DictReader((await shell.run("usage", "-p", ident, "--csv")).out.splitlines()))
    (found,) = [row for row in lines if row["timeframe_start"].startswith(f"{at:%Y-%m-%d}")]
    assert (found["active_time_seconds"], found["written_data_bytes"]) == ("7200", "2000000")
    later = (await shell.run("usage", "-p", ident, "--since", "1d", "--csv")).out
    assert f"{at:%Y-%m-%d}T" not in later
    whole = (await shell.run("usage", "--by", "month", "-o", "json")).json
    assert sum(row["active_time_seconds"] for period in whole["periods"] for row in period["consumption"]) >= 7200
    refused = await shell.run("usage", "--by", "hour", "--since", "60d", code=1)
    assert "kept for 31 days" in refused.err


async def test_a_project_is_offered_taken_and_offered_no_more(shell: Shell) -> None:
    ident = (await shell.weir.project(name="cli-offered"))["project"]["id"]
    async with shell.weir.as_account("cli-taker") as taker:
        key = taker.api_key
        withdrawn = (await shell.run("projects", "offer", ident, "--for", "2h", "-o", "json")).json
        await shell.run("projects", "offer", ident, "--end")
        refused = await shell.run("projects", "accept", ident, withdrawn["id"], code=1, WEIR_API_KEY=key)
        assert "was not offered" in refused.err
        words = (await shell.run("projects", "offer", ident)).out.split("weir projects accept ")[1].split()
        assert words[0] == ident
        await shell.run("projects", "accept", *words, WEIR_API_KEY=key)
        assert (await shell.run("projects", "show", ident, WEIR_API_KEY=key)).out
        await shell.run("projects", "show", ident, code=1)
        await taker.delete(ident)
