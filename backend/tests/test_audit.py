"""The audit log: what is on it, who finds what in it, and that nobody changes it unseen."""

import asyncio
import contextlib
import json
import sys
from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from weir_testing.fixtures import Weir

from weir.identity import seals
from weir.identity.models import AuditEntry, AuditPending, AuditSeal
from weir.identity.seals import FIRST, Head, Verified
from weir.kit.clock import now

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
ENTRIES = st.dictionaries(st.sampled_from(["id", "actor", "detail", "at"]), SCALARS, min_size=1)


@given(st.lists(ENTRIES, min_size=1, max_size=6), st.data())
def test_no_entry_is_changed_left_out_or_moved_without_another_head(
    entries: list[dict[str, Any]], data: st.DataObject
) -> None:
    def head_of(listed: list[dict[str, Any]]) -> bytes:
        last = FIRST
        for entry in listed:
            last = seals.sealed_hash(last, entry)
        return last

    at = data.draw(st.integers(0, len(entries) - 1))
    other = data.draw(ENTRIES)
    for changed in (
        [*entries[:at], other, *entries[at + 1 :]],
        [*entries[:at], *entries[at + 1 :]],
        [*entries[:at], other, *entries[at:]],
        list(reversed(entries)),
    ):
        written = [json.dumps(entry, sort_keys=True) for entry in changed]
        same = written == [json.dumps(entry, sort_keys=True) for entry in entries]
        assert (head_of(changed) == head_of(entries)) == same


def test_a_head_is_read_as_it_is_written() -> None:
    head = Head(7, bytes(range(32)))
    assert Head.parse(str(head)) == head
    for wrong in ("", "7", "7:", "7:00", f"-1:{'00' * 32}", f"x:{'00' * 32}", f"7:{'zz' * 32}"):
        with contextlib.suppress(ValueError):
            pytest.fail(f"{wrong!r} was read as {Head.parse(wrong)}")


async def entries(weir: Weir, **wanted: Any) -> list[dict[str, Any]]:
    return (await weir.call("GET", "/audit", params=wanted))["entries"]


async def test_a_password_that_was_shown_is_on_record_with_who_saw_it_from_where(weir: Weir) -> None:
    created = await weir.project(name="shown")
    project, branch = created["project"]["id"], created["branch"]["id"]
    at = {"project_id": project, "action": "role.reveal_password"}
    assert await entries(weir, **at) == []
    await weir.call("GET", f"/projects/{project}/branches/{branch}/roles/app_owner/reveal_password")
    uri = {"role_name": "app_owner", "database_name": "appdb"}
    await weir.call("GET", f"/projects/{project}/connection_uri", params=uri)
    found = await entries(weir, **at)
    assert [entry["detail"] for entry in found] == [{"name": "app_owner"}] * 2
    assert {entry["resource"] for entry in found} == {f"branch/{branch}"}
    assert {entry["address"] for entry in found} == {"127.0.0.1"}
    assert all(entry["api_key_id"] and entry["request_id"] for entry in found)


async def test_sign_ins_and_sign_outs_are_on_record(weir: Weir) -> None:
    since = now() - timedelta(seconds=1)
    async with httpx.AsyncClient(base_url=weir.url) as browser:
        await browser.post("/api/v2/auth/session", json={"api_key": weir.api_key})
        await browser.post("/api/v2/auth/session", json={"api_key": "weir_wrong"})
        await browser.delete("/api/v2/auth/session")
        await browser.delete("/api/v2/auth/session")
    found = await entries(weir, action="session.", since=since.isoformat())
    assert [entry["action"] for entry in found] == ["session.delete", "session.create"]
    assert {entry["actor"] for entry in found} == {"admin"}
    assert weir.api_key not in json.dumps(found)


async def test_the_log_is_narrowed_by_who_what_and_when(weir: Weir) -> None:
    created = await weir.project(name="narrowed")
    project = created["project"]["id"]
    moment = now()
    await weir.call("PATCH", f"/projects/{project}", json={"project": {"name": "renamed"}})
    actions = ["project.update", "project.create"]
    of = {"project_id": project}
    assert [entry["action"] for entry in await entries(weir, **of, action="project.")] == actions
    assert [entry["action"] for entry in await entries(weir, **of, since=moment.isoformat())] == actions[:1]
    assert [entry["action"] for entry in await entries(weir, **of, until=moment.isoformat())][-1:] == actions[1:]
    assert await entries(weir, **of, actor="nobody") == []
    # A sign that SQL's patterns have stands for itself.
    assert await entries(weir, **of, action="project%.") == []
    refused = await weir.call("GET", "/audit", 400, params={"since": "yesterday"})
    assert refused["code"] == "BAD_REQUEST"


async def test_an_export_has_every_entry_that_the_account_sees_and_no_other(weir: Weir) -> None:
    created = await weir.project(name="exported")
    project = created["project"]["id"]
    for number in range(3):
        await weir.call("PATCH", f"/projects/{project}", json={"project": {"name": f"exported {number}"}})
    answer = await weir.client.get("/api/v2/audit/export", params={"project_id": project})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in answer.text.splitlines()] == await entries(weir, project_id=project)
    async with weir.as_account("stranger-of-the-export") as stranger:
        mine = await stranger.client.get("/api/v2/audit/export", params={"project_id": project})
    assert (mine.status_code, mine.text) == (200, "")


async def sealed(weir: Weir) -> Verified:
    """The chain once nothing waits for its seal; the API seals meanwhile, and this does as well."""
    async with asyncio.timeout(60):
        while True:
            async with weir.resources.database.transaction() as session:
                await seals.seal(session, now())
            async with weir.resources.database.transaction() as session:
                found = await seals.verify(session)
            if found.pending == 0:
                return found


async def test_every_entry_is_sealed_once(weir: Weir) -> None:
    await weir.project(name="sealed")
    found = await sealed(weir)
    assert found.faults == ()
    async with weir.resources.database.transaction() as session:
        assert await session.scalar(select(func.count()).select_from(AuditPending)) == 0
        chained = await session.scalar(select(func.count(AuditSeal.entry_id.distinct())))
        assert chained == await session.scalar(select(func.max(AuditSeal.position)))
        assert (await seals.verify(session, found.head)).faults == ()


@pytest.mark.parametrize("table", ["audit_log", "audit_seals"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {}"])
async def test_the_database_refuses_to_change_the_log(weir: Weir, table: str, verb: str) -> None:
    column = "actor" if table == "audit_log" else "sealed_at"
    with pytest.raises(DBAPIError, match="only appended to"):
        async with weir.resources.database.transaction() as session:
            await session.execute(text(verb.format(table, column, column)))


async def _behind(weir: Weir, statement: str, **values: Any) -> None:
    """As somebody does who owns the database: with the triggers off."""
    async with weir.resources.database.engine.begin() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(text(statement), values)


async def test_what_is_changed_behind_the_triggers_is_found(weir: Weir) -> None:
    await weir.project(name="forged")
    head = (await sealed(weir)).head
    async with weir.resources.database.transaction() as session:
        last = (await session.scalars(select(AuditSeal).order_by(AuditSeal.position.desc()).limit(1))).one()
        entry = await session.get_one(AuditEntry, last.entry_id)

    async def fault() -> str:
        async with weir.resources.database.transaction() as session:
            return "; ".join((await seals.verify(session, head)).faults)

    at = {"id": entry.id}
    await _behind(weir, "UPDATE audit_log SET actor = 'somebody else' WHERE id = :id", **at)
    assert f"entry {entry.id}, or its seal at position {last.position}, was changed" in await fault()
    await _behind(weir, "UPDATE audit_log SET actor = :actor WHERE id = :id", actor=entry.actor, **at)
    assert await fault() == ""

    await _behind(weir, "UPDATE audit_seals SET entry_id = -1 WHERE entry_id = :id", **at)
    assert "entry -1" in await fault()
    await _behind(weir, "UPDATE audit_seals SET entry_id = :id WHERE entry_id = -1", **at)
    # The last entry and its seal: the rest fits, and only a head that was noted shows it.
    await _behind(weir, "DELETE FROM audit_seals WHERE entry_id = :id", **at)
    assert f"before the noted head {last.position}" in await fault()
    assert f"entry {entry.id} has no seal" in await fault()
    values = {"position": last.position, "at": last.sealed_at, "hash": last.hash}
    restored = "INSERT INTO audit_seals (position, entry_id, sealed_at, hash) VALUES (:position, :id, :at, :hash)"
    await _behind(weir, restored, **at, **values)
    assert await fault() == ""


async def test_weir_admin_checks_the_chain(weir: Weir) -> None:
    head = (await sealed(weir)).head

    async def verify(*words: str) -> tuple[int, str]:
        command = (sys.executable, "-c", "from weir.admin import main; main()", "audit", "verify", *words)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(120):
            out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    code, said = await verify("--known", str(head))
    assert code == 0, said
    assert "entries sealed" in said
    code, said = await verify("--known", f"{head.position}:{'00' * 32}")
    assert code == 1
    assert f"FAULT: the chain has another hash at position {head.position}" in said
    code, said = await verify("--known", "nonsense")
    assert code == 1
    assert "is no head" in said
