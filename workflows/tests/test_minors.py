"""On which minor of Postgres a compute starts, and what is known of it."""

from pathlib import Path
from typing import Any

from weir_testing.fixtures import Weir

from weir import postgres_versions
from weir.endpoints.models import Endpoint
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.versions import keep_servers

OTHER = "15.3"


def installed(weir: Weir) -> str:
    return postgres_versions.of_programs(weir.settings.pg_bin_dir) or ""


def pretend_copy(weir: Weir, version: str) -> Path:
    """A folder that stands for a copy of another minor: computes of these tests run no Postgres."""
    bin_dir = weir.settings.servers_dir / version / "bin"
    bin_dir.mkdir(parents=True, exist_ok=True)
    (bin_dir / "postgres").touch()
    return bin_dir


async def want(weir: Weir, ident: str, **values: Any) -> None:
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, ident)
        for name, value in values.items():
            setattr(row, name, value)


async def seen(weir: Weir, created: dict[str, Any]) -> tuple[str | None, str | None]:
    """The minor that runs and the one that is wanted, which both views must show alike."""
    project, ident = created["project"]["id"], created["endpoints"][0]["id"]
    endpoint = (await weir.call("GET", f"/projects/{project}/endpoints/{ident}"))["endpoint"]
    compute = (await weir.call("GET", f"/computes/{ident}"))["compute"]
    shown = endpoint["postgres_version"], endpoint["wanted_postgres_version"]
    assert (compute["postgres_version"], compute["wanted_postgres_version"]) == shown
    assert compute["installed_postgres_version"] == installed(weir)
    return shown


async def restart(weir: Weir, created: dict[str, Any]) -> None:
    project, ident = created["project"]["id"], created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{project}/endpoints/{ident}/restart"))


async def test_a_compute_takes_the_newest_minor_at_its_first_start_and_stays_on_its_own(weir: Weir) -> None:
    created = await weir.project(name="minors")
    ident = created["endpoints"][0]["id"]
    newest = installed(weir)
    assert await seen(weir, created) == (newest, newest)
    bin_dir = pretend_copy(weir, OTHER)
    await want(weir, ident, postgres_version=OTHER)
    assert await seen(weir, created) == (newest, OTHER)
    for _ in range(2):
        await restart(weir, created)
        assert await seen(weir, created) == (OTHER, OTHER)
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert Path(spec["pg_bin_dir"]) == bin_dir.resolve()


async def test_a_minor_that_is_gone_does_not_keep_a_compute_from_starting(weir: Weir) -> None:
    created = await weir.project(name="minor gone")
    await want(weir, created["endpoints"][0]["id"], postgres_version="15.1")
    await restart(weir, created)
    assert await seen(weir, created) == (installed(weir), installed(weir))


async def test_a_change_of_settings_moves_no_compute_to_another_minor(weir: Weir) -> None:
    """An agent refuses a spec with other programs than those it runs."""
    created = await weir.project(name="minor and settings")
    project, ident = created["project"]["id"], created["endpoints"][0]["id"]
    before = (weir.resources.runtime.spec(ident) or {})["pg_bin_dir"]
    pretend_copy(weir, OTHER)
    await want(weir, ident, postgres_version=OTHER)
    change = {"endpoint": {"settings": {"pg_settings": {"work_mem": "8MB"}}}}
    await weir.finish(await weir.call("PATCH", f"/projects/{project}/endpoints/{ident}", json=change))
    spec = weir.resources.runtime.spec(ident) or {}
    assert (spec["pg_bin_dir"], spec["settings"]) == (before, {"work_mem": "8MB"})


async def test_the_reconciler_records_what_runs_and_keeps_what_is_wanted(weir: Weir) -> None:
    created = await weir.project(name="minor seen")
    ident = created["endpoints"][0]["id"]
    await want(weir, ident, running_postgres_version=None)
    await ReconcilerActivities(weir.resources).reconcile()
    async with weir.resources.database.transaction() as session:
        assert (await session.get_one(Endpoint, ident)).running_postgres_version == installed(weir)
    pretend_copy(weir, OTHER)
    assert await keep_servers(weir.resources) == []
    assert OTHER in await weir.resources.computes.versions()
