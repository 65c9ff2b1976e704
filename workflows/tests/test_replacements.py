"""A member that has been sick for too long is replaced where the policy says so, and only then."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update
from weir_testing.fixtures import Weir

from weir.branches.members import TimelineMember
from weir.identity.models import AuditEntry
from weir.kit.clock import now
from weir.operations.models import Operation, OperationKind, OperationStatus
from weir_workflows.reconciler import replacements
from weir_workflows.reconciler.replacements import Replacements
from weir_workflows.reconciler.safekeepers import repair_safekeepers

MINUTES = 30


class Policy:
    """Rounds of the reconciler at times of the test's choice."""

    def __init__(self, weir: Weir, minutes: int = MINUTES) -> None:
        settings = weir.settings.model_copy(update={"safekeepers_replace_after_minutes": minutes})
        self._weir = weir
        self._at = 1_000.0
        self._replacements = Replacements(replace(weir.resources, settings=settings), lambda: self._at)

    async def round(self, seconds: float = 30.0) -> list[str]:
        await repair_safekeepers(self._weir.resources)
        return await self.without_a_look(seconds)

    async def without_a_look(self, seconds: float = 30.0) -> list[str]:
        self._at += seconds
        return await self._replacements.replace_sick()

    async def watch(self) -> None:
        """For as long as it takes before anything is done, but for the last round."""
        for _ in range(10):
            assert await self.without_a_look() == []


async def _sick(weir: Weir, created: dict[str, Any], minutes: float) -> None:
    """What is wrong with the branch's members has been so for a while."""
    await repair_safekeepers(weir.resources)
    async with weir.resources.database.transaction() as session:
        of = TimelineMember.timeline_id == created["branch"]["timeline_id"]
        since = now() - timedelta(minutes=minutes)
        await session.execute(
            update(TimelineMember).where(of, TimelineMember.sick_since.is_not(None)).values(sick_since=since)
        )


async def _operations(weir: Weir, created: dict[str, Any]) -> list[Operation]:
    async with weir.resources.database.transaction() as session:
        statement = select(Operation).where(
            Operation.branch_id == created["branch"]["id"], Operation.kind == OperationKind.REPLACE_SAFEKEEPER
        )
        return list((await session.scalars(statement.order_by(Operation.sequence))).all())


async def _end(weir: Weir, created: dict[str, Any], expect: OperationStatus = OperationStatus.FINISHED) -> Operation:
    async def ended() -> Operation | None:
        last = (await _operations(weir, created))[-1]
        return last if last.status in {OperationStatus.FINISHED, OperationStatus.FAILED} else None

    last = await weir.wait(ended)
    assert last.status == expect
    return last


async def test_a_lost_member_is_replaced_after_its_time_and_that_is_audited(weir: Weir) -> None:
    created = await weir.project(name="replaced-by-policy")
    branch, timeline = created["branch"]["id"], created["branch"]["timeline_id"]
    del weir.storage.keepers[1][timeline]
    await _sick(weir, created, MINUTES - 1)
    early = Policy(weir)
    await early.watch()
    assert await early.round() == []
    await _sick(weir, created, MINUTES + 1)
    off = Policy(weir, minutes=0)
    await off.watch()
    assert await off.round() == []

    policy = Policy(weir)
    await policy.watch()
    assert await policy.round() == [branch]
    # One at a time.
    assert await policy.round() == []
    operation = await _end(weir, created)
    assert operation.origin == "reconciler"
    voters = weir.storage.members.voters(timeline)
    assert voters in ([1, 3, 4], [1, 3, 5])
    assert timeline not in weir.storage.keepers[1]
    async with weir.resources.database.transaction() as session:
        statement = select(AuditEntry).where(
            AuditEntry.resource == f"branch/{branch}", AuditEntry.actor == "reconciler"
        )
        (entry,) = (await session.scalars(statement)).all()
    assert (entry.action, entry.detail["safekeepers"]) == ("branch.safekeepers", voters)
    assert "safekeeper 2 is lost since" in entry.detail["reason"]
    # Nobody is sick any more.
    await policy.watch()
    assert await policy.round() == []
    assert len(await _operations(weir, created)) == 1


async def test_damage_is_left_to_repair_until_that_has_failed(weir: Weir) -> None:
    created = await weir.project(name="damage-by-policy")
    timeline = created["branch"]["timeline_id"]
    weir.storage.damaged(timeline, 3)
    await _sick(weir, created, MINUTES + 1)
    policy = Policy(weir)
    await policy.watch()
    assert await policy.round() == []
    weir.storage.damaged(timeline, 3, "nobody has it")
    assert await policy.round() == [created["branch"]["id"]]
    await _end(weir, created)
    assert 3 not in weir.storage.members.voters(timeline)
    # The damaged log is evidence, and stays.
    assert weir.storage.keepers[2][timeline]["damage"]


async def test_nothing_is_done_without_a_majority_of_the_others_that_is_well(weir: Weir) -> None:
    created = await weir.project(name="two-sick")
    timeline = created["branch"]["timeline_id"]
    del weir.storage.keepers[1][timeline]
    weir.storage.damaged(timeline, 3)
    await _sick(weir, created, MINUTES + 1)
    policy = Policy(weir)
    await policy.watch()
    assert await policy.round() == []
    weir.storage.keepers[2][timeline]["damage"] = []
    assert await policy.round() == [created["branch"]["id"]]
    await _end(weir, created)


async def test_a_member_that_is_well_when_it_is_looked_at_once_more_stays(weir: Weir) -> None:
    created = await weir.project(name="back-in-time")
    timeline = created["branch"]["timeline_id"]
    held = weir.storage.keepers[1].pop(timeline)
    await _sick(weir, created, MINUTES + 1)
    policy = Policy(weir)
    await policy.watch()
    weir.storage.keepers[1][timeline] = held
    assert await policy.without_a_look() == []
    assert await _operations(weir, created) == []


async def test_a_night_in_which_nothing_ran_does_not_count(weir: Weir) -> None:
    created = await weir.project(name="night")
    held = weir.storage.keepers[1].pop(created["branch"]["timeline_id"])
    await _sick(weir, created, 600)
    policy = Policy(weir)
    await policy.watch()
    # The process was stopped, and goes on before the safekeepers do.
    assert await policy.round(28_000.0) == []
    assert await policy.round() == []
    weir.storage.keepers[1][created["branch"]["timeline_id"]] = held
    await repair_safekeepers(weir.resources)


async def test_after_a_failure_it_waits_longer_each_time(weir: Weir) -> None:
    assert [replacements.backoff(failures).total_seconds() for failures in (1, 2, 3, 50)] == [300, 600, 1200, 21_600]
    created = await weir.project(name="fails-by-policy")
    timeline = created["branch"]["timeline_id"]
    del weir.storage.keepers[0][timeline]
    await _sick(weir, created, MINUTES + 1)
    for number in (4, 5):
        weir.storage.fail(f"safekeeper-{number}", "POST", "/timeline", 409)
    policy = Policy(weir)
    await policy.watch()
    assert await policy.round() == [created["branch"]["id"]]
    failed = await _end(weir, created, OperationStatus.FAILED)
    assert weir.storage.members.voters(timeline) == [1, 2, 3]
    weir.storage.faults.clear()
    assert await policy.round() == []
    async with weir.resources.database.transaction() as session:
        of = update(Operation).where(Operation.id == failed.id)
        await session.execute(of.values(finished_at=now() - timedelta(minutes=6)))
    assert await policy.round() == [created["branch"]["id"]]
    await _end(weir, created)
    assert 1 not in weir.storage.members.voters(timeline)


async def test_no_more_are_open_at_the_same_time_than_the_bound(weir: Weir, monkeypatch: Any) -> None:
    monkeypatch.setattr(replacements, "AT_MOST_OPEN", 1)
    projects = [await weir.project(name=f"bound-{number}") for number in range(2)]
    for created in projects:
        del weir.storage.keepers[1][created["branch"]["timeline_id"]]
        await _sick(weir, created, MINUTES + 1)
    policy = Policy(weir)
    await policy.watch()
    queued = await policy.round()
    assert len(queued) == 1
    for created in projects:
        if created["branch"]["id"] in queued:
            await _end(weir, created)
    assert len(await policy.round()) == 1
    for created in projects:
        await _end(weir, created)
