"""What a round costs grows with the installation, and not with its square."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from weir_testing.fixtures import Weir, install_compute_double

from weir.config import Settings
from weir.kit.ids import storage_id
from weir.projects.models import Project
from weir.recovery.description import describe
from weir_workflows.reconciler import activities, storage
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.storage import repair_descriptions
from weir_workflows.runtime import local, process
from weir_workflows.runtime.driver import LocalDriver
from weir_workflows.runtime.local import LocalRuntime
from weir_workflows.runtime.process import ProcessId

# More than Postgres takes parameters in one statement.
MANY = 70_000


@pytest.fixture
def runtime(tmp_path: Path) -> LocalRuntime:
    install_compute_double(tmp_path / "bin")
    return LocalRuntime(Settings(home=tmp_path / "home", bin_dir=tmp_path / "bin"))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many computes each look at the machine's processes was for."""
    made: list[int] = []

    def counted(arguments: Collection[str]) -> dict[str, ProcessId]:
        made.append(len(arguments))
        return process.find_by_arguments(arguments)

    monkeypatch.setattr(local, "find_by_arguments", counted)
    return made


def _suspended(runtime: LocalRuntime, count: int) -> list[str]:
    idents = [f"ep-suspended-{number:04d}" for number in range(count)]
    for ident in idents:
        runtime.directory(ident).mkdir(parents=True)
        runtime.write_spec(ident, {"compute_id": ident, "port": 1, "listen": "127.0.0.1", "pg_bin_dir": "/none"})
    return idents


async def test_the_machine_is_looked_at_once_for_all_computes(
    runtime: LocalRuntime, looks: list[int], weir: Weir
) -> None:
    idents = _suspended(runtime, 50)
    driver = LocalDriver(runtime, weir.resources.http)
    assert await driver.running([*idents, "ep-never-heard-of"]) == set()
    assert looks == [50]
    # Nothing lies about: none of them is locked, and no process looked for.
    assert await driver.tidy(idents) == []
    assert looks == [50]
    assert not list(runtime.directory(idents[0]).glob("lock"))


async def test_whoever_runs_is_found_among_many_by_its_pid_or_its_arguments(
    runtime: LocalRuntime, looks: list[int], weir: Weir
) -> None:
    idents = _suspended(runtime, 20)
    first, second, third = idents[3], idents[7], idents[11]
    base = runtime.spec(first) or {}
    started = {ident: runtime.spawn(ident, base | _spec(ident)) for ident in (first, second)}
    try:
        # As after a crash between the start and the writing of the pid.
        (runtime.directory(second) / "pid").unlink()
        # A pid that is another process's by now.
        (runtime.directory(third) / "pid").write_text(f"{started[first].pid} 1 {process.boot_id()}\n")
        looks.clear()
        assert runtime.processes(idents) == started
        assert looks == [19]
        driver = LocalDriver(runtime, weir.resources.http)
        # The stale pid goes, and nothing of those that run.
        assert await driver.tidy(idents) == [third]
        assert runtime.processes([first]) == {first: started[first]}
    finally:
        for held in started.values():
            runtime.kill(held)


def _spec(ident: str) -> dict[str, Any]:
    return {"compute_id": ident, "port": 9, "settings": {"test.mode": "stuck"}, "full_page_writes": True}


async def test_a_document_has_what_is_its_projects_own(weir: Weir) -> None:
    created = [await weir.project(name=f"own-{number}") for number in range(2)]
    for one, role in zip(created, ("left", "right"), strict=True):
        path = f"/projects/{one['project']['id']}/branches/{one['branch']['id']}"
        await weir.finish(await weir.call("POST", f"{path}/roles", 201, json={"role": {"name": role}}))
    async with weir.resources.database.transaction() as session:
        projects = [await session.get_one(Project, one["project"]["id"]) for one in created]
        together = await describe(session, projects)
        assert together == {
            project.id: document for project in projects for document in (await describe(session, [project])).values()
        }
        assert await describe(session, []) == {}
    for one, role in zip(created, ("left", "right"), strict=True):
        (branch,) = together[one["project"]["id"]]["branches"]
        assert branch["roles"] == sorted(["app_owner", role])
        assert [endpoint["id"] for endpoint in branch["endpoints"]] == [one["endpoints"][0]["id"]]


async def test_more_projects_and_computes_than_a_statement_has_parameters(weir: Weir) -> None:
    created = await weir.project(name="one-of-many")
    async with weir.resources.database.transaction() as session:
        there = await session.get_one(Project, created["project"]["id"])
        others = [
            Project(
                id=f"not-there-{number}", name="", account_id=there.account_id, tenant_id=storage_id(), pg_version=15,
                region_id="local", cell="", tags={}, history_retention_seconds=1, settings={},
                default_endpoint_settings={},
            )
            for number in range(MANY)
        ]  # fmt: skip
        for other in others:
            other.created_at = there.created_at
        documents = await describe(session, [*others, there])
        assert len(documents) == MANY + 1
        assert documents[there.id]["branches"]
        assert not documents["not-there-0"]["branches"]
    round_ = ReconcilerActivities(weir.resources)
    assert await round_._deleted([f"ep-not-there-{number}" for number in range(MANY)]) == set()


async def test_all_projects_are_described_in_turns(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DESCRIBED_A_ROUND", 2)
    created = [(await weir.project(name=f"turn-{number}"))["project"] for number in range(3)]
    for project in created:
        await weir.call("PATCH", f"/projects/{project['id']}", json={"project": {"name": f"{project['name']}-2"}})
    repaired: list[str] = []
    after, turns = "", 0
    while turns == 0 or after:
        found = await repair_descriptions(weir.resources, after)
        assert len(found.repaired) <= 2
        repaired += found.repaired
        after, turns = found.seen_to, turns + 1
    assert {project["id"] for project in created} <= set(repaired)
    assert turns >= 2


async def test_checks_that_take_long_are_not_made_in_one_round(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails does not keep the others from their turn either."""
    made: list[str] = []
    round_ = ReconcilerActivities(weir.resources)

    def check(name: str, *, fails: bool = False) -> Any:
        async def made_now() -> None:
            made.append(name)
            if fails:
                raise OSError(name)

        return made_now

    monkeypatch.setattr(round_, "_check_safekeepers", check("safekeepers", fails=True))
    monkeypatch.setattr(round_, "_check_descriptions", check("descriptions"))
    monkeypatch.setattr(round_, "_check_machine", check("machine"))
    with pytest.raises(OSError, match="safekeepers"):
        await round_._check_storage()
    monkeypatch.setattr(activities, "CHECKS_SECONDS", 0.0)
    await round_._check_storage()
    assert made == ["safekeepers", "descriptions"]
    monkeypatch.setattr(activities, "CHECKS_SECONDS", 60.0)
    await round_._check_storage()
    assert made == ["safekeepers", "descriptions", "machine"]
    # All are made, and the time has not come to begin again.
    await round_._check_storage()
    assert len(made) == 3
    round_._next_storage_check = 0.0
    with pytest.raises(OSError, match="safekeepers"):
        await round_._check_storage()
