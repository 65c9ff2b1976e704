"""A log's safekeepers are changed one after the other, whoever dies meanwhile, and what is stored follows the log."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select, update
from weir_testing.fixtures import Weir
from weir_testing.members import wal_address

from weir.branches.members import MemberState, TimelineMember, members_of
from weir.endpoints.models import Endpoint
from weir.operations.models import Operation
from weir_workflows.computes.spec import load_spec
from weir_workflows.reconciler.safekeepers import LOST, repair_safekeepers
from weir_workflows.storage.replace import ReplaceActivities


def _path(created: dict[str, Any]) -> str:
    return f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/safekeepers"


async def _set(weir: Weir, created: dict[str, Any], wanted: list[int], expect: int = 200) -> dict[str, Any]:
    return await weir.call("POST", _path(created), expect, json={"safekeepers": wanted})


async def _stored(weir: Weir, timeline: str) -> dict[int, TimelineMember]:
    async with weir.resources.database.transaction() as session:
        rows = await session.scalars(select(TimelineMember).where(TimelineMember.timeline_id == timeline))
        return {row.safekeeper_id: row for row in rows}


def _made(weir: Weir, timeline: str) -> list[tuple[str, str, Any]]:
    """Who made which change, in order."""
    return [
        (by, kind, whom)
        for of, by, change in weir.storage.members.made
        if of == timeline
        for kind, whom in change.items()
    ]


def _asked(weir: Weir, created: dict[str, Any]) -> list[str]:
    """Whom the compute asks, by the spec that it runs with."""
    spec = weir.resources.runtime.spec(created["endpoints"][0]["id"])
    assert spec is not None
    return spec["safekeepers"]


async def _suspended(weir: Weir, **fields: Any) -> dict[str, Any]:
    created = await weir.project(**fields)
    endpoint = created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{created['project']['id']}/endpoints/{endpoint}/suspend"))
    return created


async def test_a_running_compute_replaces_a_lost_safekeeper(weir: Weir) -> None:
    created = await weir.project(name="replaced-live")
    timeline = created["branch"]["timeline_id"]
    assert _asked(weir, created) == [wal_address(number) for number in (1, 2, 3)]
    del weir.storage.keepers[0][timeline]
    await weir.finish(await _set(weir, created, [2, 3, 4]))
    assert weir.storage.members.voters(timeline) == [2, 3, 4]
    assert _made(weir, timeline) == [
        ("compute", "add", wal_address(4)),
        ("compute", "add", wal_address(4)),
        ("compute", "promote", 4),
        ("compute", "remove", 1),
    ]
    expected = [wal_address(number) for number in (2, 3, 4)]
    assert _asked(weir, created) == expected
    assert weir.storage.timelines[timeline]["safekeepers"] == expected
    rows = await _stored(weir, timeline)
    assert {number: row.state for number, row in rows.items()} == {
        1: MemberState.REMOVED,
        2: MemberState.MEMBER,
        3: MemberState.MEMBER,
        4: MemberState.MEMBER,
    }
    # Nothing is lost any more, nobody founds it anew, and asking again is answered with nothing to do.
    await repair_safekeepers(weir.resources)
    assert timeline not in weir.storage.keepers[0]
    assert (await _stored(weir, timeline))[1].lost_at is None
    assert (await _set(weir, created, [4, 3, 2]))["operations"] == []


async def test_without_a_compute_a_program_makes_the_changes(weir: Weir) -> None:
    created = await _suspended(weir, name="replaced-suspended")
    timeline = created["branch"]["timeline_id"]
    old = dict(weir.storage.keepers[2][timeline])
    await weir.finish(await _set(weir, created, [1, 2, 5]))
    assert weir.storage.members.voters(timeline) == [1, 2, 5]
    assert {by for by, _, _ in _made(weir, timeline)} == {"program"}
    # The former member's log is where it was, and nobody deletes or founds it.
    assert weir.storage.keepers[2][timeline]["flush_lsn"] == old["flush_lsn"]
    assert weir.storage.calls_of("safekeeper-3", "DELETE", timeline) == []
    shown = await weir.call("GET", _path(created))
    assert [(row["safekeeper_id"], row["role"]) for row in shown["members"]] == [
        (1, "voter"), (2, "voter"), (3, "none"), (5, "voter"),
    ]  # fmt: skip
    # It comes back with that log.
    made = len(weir.storage.calls_of("safekeeper-3", "POST", timeline))
    await weir.finish(await _set(weir, created, [1, 2, 3]))
    assert len(weir.storage.calls_of("safekeeper-3", "POST", timeline)) == made
    endpoint = created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{created['project']['id']}/endpoints/{endpoint}/start"))
    assert _asked(weir, created) == [wal_address(number) for number in (1, 2, 3)]


async def test_a_lost_log_is_made_again_on_its_own_safekeeper(weir: Weir) -> None:
    created = await weir.project(name="again-in-place")
    timeline = created["branch"]["timeline_id"]
    del weir.storage.keepers[1][timeline]
    await repair_safekeepers(weir.resources)
    assert (await _stored(weir, timeline))[2].lost_at is not None
    await weir.finish(await _set(weir, created, [1, 2, 3]))
    assert [kind for _, kind, _ in _made(weir, timeline)] == ["remove", "add", "add", "promote"]
    member = weir.storage.keepers[1][timeline]["member"]
    assert (member["incarnation"], member["role"]) == (2, "voter")
    await repair_safekeepers(weir.resources)
    assert (await _stored(weir, timeline))[2].lost_at is None
    assert LOST.labels("2")._value.get() == 0


async def test_three_become_five_and_three_again(weir: Weir) -> None:
    created = await _suspended(weir, name="five")
    timeline = created["branch"]["timeline_id"]
    await weir.finish(await _set(weir, created, [1, 2, 3, 4, 5]))
    assert weir.storage.members.voters(timeline) == [1, 2, 3, 4, 5]
    await weir.finish(await _set(weir, created, [3, 4, 5]))
    assert weir.storage.members.voters(timeline) == [3, 4, 5]
    assert weir.storage.timelines[timeline]["safekeepers"] == [wal_address(number) for number in (3, 4, 5)]


async def test_what_the_log_refuses_and_what_is_away_is_asked_again(weir: Weir) -> None:
    created = await weir.project(name="again-and-again")
    timeline = created["branch"]["timeline_id"]
    weir.storage.members.refusals += [(409, "refused"), (504, "timeout")]
    weir.storage.fail("pageserver", "PUT", "/safekeepers", 405, times=2)
    await weir.finish(await _set(weir, created, [1, 2, 4]))
    assert weir.storage.members.voters(timeline) == [1, 2, 4]


async def test_a_compute_that_comes_and_goes_between_the_changes_is_met_with_the_other_way(weir: Weir) -> None:
    created = await weir.project(name="comes-and-goes")
    timeline, endpoint = created["branch"]["timeline_id"], created["endpoints"][0]["id"]
    weir.storage.fail("safekeeper-4", "POST", "/timeline", 503, times=3)
    answer = await _set(weir, created, [1, 2, 4])
    await weir.resources.computes.stop(endpoint, "immediate")
    await weir.finish(answer)
    assert weir.storage.members.voters(timeline) == [1, 2, 4]
    assert "program" in {by for by, _, _ in _made(weir, timeline)}


async def test_no_compute_starts_while_the_program_runs(weir: Weir) -> None:
    created = await _suspended(weir, name="kept-down")
    endpoint = created["endpoints"][0]["id"]
    async with weir.resources.computes.at_rest([endpoint]) as held:
        assert held is not None
        async with weir.resources.database.transaction() as session:
            spec = await load_spec(
                session, weir.settings, await session.get_one(Endpoint, endpoint), weir.settings.pg_bin_dir
            )
        start = asyncio.create_task(weir.resources.computes.start(spec))
        await asyncio.sleep(0.5)
        assert weir.resources.runtime.process(endpoint) is None
    await start
    async with weir.resources.computes.at_rest([endpoint]) as held:
        assert held is None
    await weir.resources.computes.stop(endpoint, "immediate")


async def test_the_changes_come_in_order_and_none_is_left_at_the_end(weir: Weir) -> None:
    created = await _suspended(weir, name="by-hand")
    timeline = created["branch"]["timeline_id"]
    await weir.finish(await _set(weir, created, [1, 2, 4]))
    of_branch = select(Operation).where(Operation.branch_id == created["branch"]["id"])
    async with weir.resources.database.transaction() as session:
        newest = of_branch.order_by(Operation.sequence.desc()).limit(1)
        operation = (await session.scalars(newest)).one()
        operation.payload = {"safekeepers": [2, 4, 5]}
    step = ReplaceActivities(weir.resources)
    done: list[str] = []
    while (made := await step.change_one(str(operation.id))) is not None:
        done.append(made)
        assert len(done) < 20
    assert weir.storage.members.voters(timeline) == [2, 4, 5]
    assert await step.change_one(str(operation.id)) is None
    assert done == [
        "safekeeper 5 has an empty log that waits",
        "safekeeper 5 is a learner",
        "safekeeper 5 is a voter",
        "safekeeper 1 is no member any more",
    ]


async def test_what_is_stored_follows_the_log_and_never_the_other_way(weir: Weir) -> None:
    """The database comes back from a backup of before the replacement."""
    created = await weir.project(name="stale")
    timeline = created["branch"]["timeline_id"]
    await weir.finish(await _set(weir, created, [2, 3, 4]))
    async with weir.resources.database.transaction() as session:
        of = TimelineMember.timeline_id == timeline
        await session.execute(
            update(TimelineMember).where(of, TimelineMember.safekeeper_id == 1).values(state=MemberState.MEMBER)
        )
        await session.execute(
            update(TimelineMember).where(of, TimelineMember.safekeeper_id == 4).values(state=MemberState.REMOVED)
        )
        assert await members_of(session, timeline, 5) == [1, 2, 3]
    generation = weir.storage.members.of(timeline)[0]
    await repair_safekeepers(weir.resources)
    async with weir.resources.database.transaction() as session:
        assert await members_of(session, timeline, 5) == [2, 3, 4]
    assert weir.storage.members.of(timeline)[0] == generation
    assert (await _stored(weir, timeline))[1].lost_at is None


async def test_a_branch_that_is_deleted_keeps_nothing_anywhere(weir: Weir) -> None:
    created = await weir.project(name="deleted-after")
    branches = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    made = await weir.call("POST", branches, 201, json={"branch": {"name": "goes"}})
    await weir.finish(made)
    path, timeline = f"{branches}/{made['branch']['id']}", made["branch"]["timeline_id"]
    await weir.finish(await weir.call("POST", f"{path}/safekeepers", json={"safekeepers": [2, 3, 4]}))
    await weir.finish(await weir.call("DELETE", path))
    assert not any(timeline in keeper for keeper in weir.storage.keepers)


async def test_a_replacement_that_fails_leaves_a_log_that_works_and_can_be_asked_for_again(weir: Weir) -> None:
    created = await weir.project(name="fails-once")
    timeline = created["branch"]["timeline_id"]
    weir.storage.fail("safekeeper-4", "POST", "/timeline", 409)
    (failed,) = await weir.finish(await _set(weir, created, [1, 2, 4]), "failed")
    assert "409" in failed["error"]
    assert weir.storage.members.voters(timeline) == [1, 2, 3]
    assert (await weir.call("GET", _path(created)))["wanted"] == [1, 2, 4]
    await weir.finish(await _set(weir, created, [1, 2, 4]))
    shown = await weir.call("GET", _path(created))
    assert (shown["wanted"], shown["operation_id"]) == (None, None)
    assert weir.storage.members.voters(timeline) == [1, 2, 4]


def _fills(weir: Weir, timeline: str, number: int) -> list[Any]:
    return [call.body for call in weir.storage.calls_of(f"safekeeper-{number}", "POST", f"{timeline}/fill")]


async def test_a_learner_is_filled_from_the_object_store_before_it_is_added(weir: Weir) -> None:
    created = await _suspended(weir, name="filled")
    timeline = created["branch"]["timeline_id"]
    weir.storage.advance(timeline, "0/1900000")
    # The store is further than the members are known to be: what it has behind is nobody's.
    weir.storage.offloaded[timeline] = "0/1A00000"
    await weir.finish(await _set(weir, created, [1, 2, 4]))
    begin = weir.storage.timelines[timeline]["remote_consistent_lsn"]
    assert _fills(weir, timeline, 4) == [{"up_to": "0/1900000", "begin_by": begin, "min_term": 0}]
    assert weir.storage.keepers[3][timeline]["flush_lsn"] == "0/1900000"
    assert weir.storage.members.voters(timeline) == [1, 2, 4]


@pytest.mark.parametrize("status", [404, 409, 500, 503])
async def test_where_the_object_store_is_no_help_the_peers_are(weir: Weir, status: int) -> None:
    created = await _suspended(weir, name=f"not-filled-{status}")
    timeline = created["branch"]["timeline_id"]
    weir.storage.fail("safekeeper-5", "POST", "/fill", status)
    await weir.finish(await _set(weir, created, [1, 2, 5]))
    assert weir.storage.members.voters(timeline) == [1, 2, 5]
    assert len(_fills(weir, timeline, 5)) == 1
