"""A log is founded on each safekeeper once: one that was down is given it later, one that lost it never again."""

from datetime import datetime

import httpx
import pytest
from sqlalchemy import delete, select, update
from weir_testing.fixtures import Weir

from weir.branches.log_members import SickKind
from weir.branches.members import MemberState, TimelineMember
from weir.clients.http import NO_ANSWER, RemoteError
from weir_workflows.reconciler import safekeepers
from weir_workflows.reconciler.safekeepers import LOST, repair_safekeepers
from weir_workflows.reconciler.sick import SICK
from weir_workflows.storage import founding
from weir_workflows.storage.activities import SafekeeperTimelineInput, StorageActivities, TimelineFacts


async def _members(weir: Weir, timeline: str) -> dict[int, TimelineMember]:
    async with weir.resources.database.transaction() as session:
        rows = await session.scalars(select(TimelineMember).where(TimelineMember.timeline_id == timeline))
        return {row.safekeeper_id: row for row in rows}


async def test_a_safekeeper_that_was_down_is_given_the_timelines_it_missed(weir: Weir) -> None:
    weir.storage.fail("safekeeper-2", "POST", "/timeline", 503, times=100)
    created = await weir.project(name="missed")
    timeline = created["branch"]["timeline_id"]
    assert [timeline in keeper for keeper in weir.storage.keepers[:3]] == [True, False, True]
    weir.storage.faults.clear()
    await repair_safekeepers(weir.resources)
    keepers = weir.storage.keepers
    assert keepers[1][timeline]["system_identifier"] == keepers[0][timeline]["system_identifier"]
    assert keepers[1][timeline]["start_lsn"] == keepers[0][timeline]["start_lsn"]
    assert created["branch"]["id"] not in await repair_safekeepers(weir.resources)


async def test_every_founding_is_stored_with_its_time(weir: Weir) -> None:
    created = await weir.project(name="founded")
    members = await _members(weir, created["branch"]["timeline_id"])
    assert sorted(members) == [1, 2, 3]
    assert all(member.founded_at is not None and member.lost_at is None for member in members.values())


async def test_a_log_is_founded_on_the_disks_of_all_safekeepers_or_on_none_by_name(weir: Weir) -> None:
    created = await weir.project(name="disks")
    disks = [{"node": number, "disk": f"{number:032x}"} for number in (1, 2, 3)]
    timeline = created["branch"]["timeline_id"]
    assert [keeper[timeline].get("founders") for keeper in weir.storage.keepers[:3]] == [disks] * 3
    weir.storage.fail("safekeeper-3", "GET", "/v1/disk", 503, times=100)
    created = await weir.project(name="a-silent-disk")
    weir.storage.faults.clear()
    timeline = created["branch"]["timeline_id"]
    assert [keeper[timeline].get("founders") for keeper in weir.storage.keepers[:3]] == [None] * 3


async def test_a_safekeeper_that_lost_a_log_is_reported_and_given_no_empty_one(weir: Weir) -> None:
    created = await weir.project(name="lost-disk")
    timeline = created["branch"]["timeline_id"]
    lost = weir.storage.keepers[1].pop(timeline)
    before = len(weir.storage.calls_of("safekeeper-2", "POST", "/timeline"))
    for _ in range(2):
        assert created["branch"]["id"] not in await repair_safekeepers(weir.resources)
    assert timeline not in weir.storage.keepers[1]
    assert len(weir.storage.calls_of("safekeeper-2", "POST", "/timeline")) == before
    members = await _members(weir, timeline)
    assert members[2].lost_at is not None
    assert members[1].lost_at is None
    assert LOST.labels("2")._value.get() == 1
    health = await weir.call("GET", "/fleet/storage")
    assert [node["lost_timelines"] for node in health["safekeepers"]] == [0, 1, 0, 0, 0]

    # Its disk is put back.
    weir.storage.keepers[1][timeline] = lost
    await repair_safekeepers(weir.resources)
    assert (await _members(weir, timeline))[2].lost_at is None
    assert LOST.labels("2")._value.get() == 0


async def test_a_timeline_of_before_counts_as_founded_everywhere(weir: Weir) -> None:
    created = await weir.project(name="of-before")
    timeline = created["branch"]["timeline_id"]
    async with weir.resources.database.transaction() as session:
        await session.execute(delete(TimelineMember).where(TimelineMember.timeline_id == timeline))
    del weir.storage.keepers[2][timeline]
    assert created["branch"]["id"] not in await repair_safekeepers(weir.resources)
    assert timeline not in weir.storage.keepers[2]
    assert (await _members(weir, timeline))[3].lost_at is not None


async def test_a_founding_whose_answer_was_lost_is_not_repeated_by_the_reconciler(weir: Weir) -> None:
    created = await weir.project(name="unsure")
    timeline = created["branch"]["timeline_id"]
    async with weir.resources.database.transaction() as session:
        await session.execute(
            update(TimelineMember)
            .where(TimelineMember.timeline_id == timeline, TimelineMember.safekeeper_id == 1)
            .values(founded_at=None)
        )
    held = weir.storage.keepers[0].pop(timeline)
    assert created["branch"]["id"] not in await repair_safekeepers(weir.resources)
    assert timeline not in weir.storage.keepers[0]
    # It did found the log: it shows it later.
    weir.storage.keepers[0][timeline] = held
    await repair_safekeepers(weir.resources)
    assert (await _members(weir, timeline))[1].founded_at is not None


async def test_a_late_repetition_of_the_founding_step_founds_nothing(weir: Weir) -> None:
    created = await weir.project(name="late-step")
    timeline = created["branch"]["timeline_id"]
    held = weir.storage.keepers[0].pop(timeline)
    facts = TimelineFacts(held["start_lsn"], held["system_identifier"], 15, None)
    step = StorageActivities(weir.resources)
    assert await step.create_on_safekeepers(SafekeeperTimelineInput(created["branch"]["id"], facts)) == 3
    assert timeline not in weir.storage.keepers[0]


@pytest.mark.parametrize(
    ("status", "cause", "certain"),
    [
        (None, httpx.ConnectError("refused"), True),
        (None, httpx.ReadTimeout("silent"), False),
        (409, None, True),
        (503, None, True),
        (500, None, False),
    ],
)
def test_only_a_refusal_is_taken_for_a_founding_that_did_not_happen(
    status: int | None, cause: Exception | None, certain: bool
) -> None:
    error = RemoteError("the safekeeper", "POST", status, NO_ANSWER, "")
    error.__cause__ = cause
    assert founding._did_nothing(error) is certain


async def _sick(weir: Weir, timeline: str, number: int) -> TimelineMember:
    await repair_safekeepers(weir.resources)
    return (await _members(weir, timeline))[number]


async def test_another_kind_of_sickness_keeps_the_time_and_health_clears_it(weir: Weir) -> None:
    created = await weir.project(name="kinds")
    timeline = created["branch"]["timeline_id"]
    weir.storage.damaged(timeline, 2)
    row = await _sick(weir, timeline, 2)
    since = row.sick_since
    assert (row.sick_kind, since is not None) == (SickKind.DAMAGED, True)
    assert "a wrong checksum" in (row.sick_reason or "")
    weir.storage.damaged(timeline, 2, "nobody has it")
    row = await _sick(weir, timeline, 2)
    assert ("nobody has it" in (row.sick_reason or ""), row.sick_since) == (True, since)

    weir.storage.fail("safekeeper-2", "GET", "/v1/timelines", 503, times=1)
    row = await _sick(weir, timeline, 2)
    assert (row.sick_kind, row.sick_since) == (SickKind.UNREACHABLE, since)
    assert "503" in (row.sick_reason or "")
    held = weir.storage.keepers[1].pop(timeline)
    row = await _sick(weir, timeline, 2)
    assert (row.sick_kind, row.sick_since) == (SickKind.LOST, since)
    assert SICK.labels("2", "lost")._value.get() == 1
    assert SICK.labels("2", "damaged")._value.get() == 0

    shown = await weir.call(
        "GET", f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/safekeepers"
    )
    assert [(row["state"], row["sick_since"] is None) for row in shown["members"]] == [
        ("active", True), ("lost", False), ("active", True),
    ]  # fmt: skip
    (sick,) = (await weir.call("GET", "/fleet/storage"))["safekeepers"][1]["sick"]
    assert (sick["kind"], sick["branches"]) == ("lost", 1)
    assert datetime.fromisoformat(sick["since"]) == since

    weir.storage.keepers[1][timeline] = held | {"damage": []}
    row = await _sick(weir, timeline, 2)
    assert (row.sick_kind, row.sick_reason, row.sick_since) == (None, None, None)
    assert SICK.labels("2", "lost")._value.get() == 0


async def test_what_the_pageserver_met_counts_until_it_says_otherwise(weir: Weir) -> None:
    created = await weir.project(name="marked")
    timeline = created["branch"]["timeline_id"]
    weir.storage.found_sick(timeline, 1, "diverged")
    weir.storage.found_sick(timeline, 3, "damaged")
    assert (await _sick(weir, timeline, 1)).sick_kind == SickKind.DIVERGED
    assert (await _members(weir, timeline))[3].sick_kind == SickKind.DAMAGED
    weir.storage.sick.clear()
    # It does not answer, which says nothing.
    weir.storage.fail("pageserver", "GET", "/v1/sick_safekeepers", 503)
    row = await _sick(weir, timeline, 1)
    assert row.sick_kind == SickKind.DIVERGED
    assert "a diverged record" in (row.sick_reason or "")
    assert (await _sick(weir, timeline, 1)).sick_kind is None
    # A pageserver of before cannot say.
    weir.storage.fail("pageserver", "GET", "/v1/sick_safekeepers", 404)
    assert (await _sick(weir, timeline, 3)).sick_kind is None


async def test_a_change_that_leaves_no_majority_of_well_members_is_refused(weir: Weir) -> None:
    created = await weir.project(name="refused-sick")
    path = f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/safekeepers"
    timeline = created["branch"]["timeline_id"]
    weir.storage.damaged(timeline, 1)
    weir.storage.found_sick(timeline, 2, "diverged")
    await repair_safekeepers(weir.resources)
    refused = await weir.call("POST", path, 412, json={"safekeepers": [1, 2, 4]})
    assert "1 of the wanted safekeepers are well" in refused["message"]
    (operation,) = (await weir.call("POST", path, json={"safekeepers": [1, 3, 4]}))["operations"]
    await weir.finish({"operations": [operation]})
    row = (await _members(weir, timeline))[2]
    assert (row.state, row.sick_kind) == (MemberState.REMOVED, None)


async def test_logs_are_looked_at_in_parts_and_counted_together(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two logs of one safekeeper are lost, each in another part."""
    monkeypatch.setattr(safekeepers, "LOGS_A_ROUND", 2)
    created = [await weir.project(name=f"in-parts-{number}") for number in range(5)]
    created.sort(key=lambda one: one["branch"]["id"])
    first, last = created[0]["branch"]["timeline_id"], created[-1]["branch"]["timeline_id"]
    held = {timeline: weir.storage.keepers[1].pop(timeline) for timeline in (first, last)}
    await repair_safekeepers(weir.resources)
    for timeline in held:
        assert (await _members(weir, timeline))[2].lost_at is not None
    assert LOST.labels("2")._value.get() == 2
    weir.storage.keepers[1].update(held)
    await repair_safekeepers(weir.resources)
    assert LOST.labels("2")._value.get() == 0

    # A part at a time, the whole of them once.
    part, parts = await safekeepers.repair_part(weir.resources, ""), 1
    while part.seen_to:
        before, part = part.seen_to, await safekeepers.repair_part(weir.resources, part.seen_to)
        assert not part.seen_to or part.seen_to > before
        parts += 1
    assert parts >= 3
