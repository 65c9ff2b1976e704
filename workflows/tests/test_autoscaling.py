"""A compute whose load asks for another size gets it, between its limits, and no other compute does."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from weir_testing.fixtures import Weir

from weir.computes.repository import ComputeRepository
from weir.computes.service import observe
from weir.config import get_settings
from weir.endpoints.models import Endpoint
from weir_workflows.reconciler.autoscaling import Autoscaling

LARGEST = 8


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(name="sized")
async def _sized(weir: Weir) -> AsyncGenerator[Weir]:
    """An installation that lets computes have other sizes than one unit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_COMPUTE_MAX_CU", str(LARGEST))
        get_settings.cache_clear()
        yield weir
    get_settings.cache_clear()


async def _compute(weir: Weir, name: str, processors: float | None, **limits: float) -> tuple[str, str]:
    """The path and id of a running endpoint whose compute says that it uses so many processors."""
    created = await weir.project(name=name)
    ident = created["endpoints"][0]["id"]
    path = f"/projects/{created['project']['id']}/endpoints/{ident}"
    await weir.finish(await weir.call("PATCH", path, json={"endpoint": limits}))
    await _uses(weir, ident, processors)
    return path, ident


async def _uses(weir: Weir, ident: str, processors: float | None) -> None:
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, ident)
        row.pg_settings = {"test.processors": json.dumps(processors)}
    path = f"/projects/{row.project_id}/endpoints/{ident}"
    await weir.finish(await weir.call("POST", f"{path}/restart"))


async def _look(weir: Weir, scaling: Autoscaling, ident: str, rolling: dict[str, str] | None = None) -> list[str]:
    async with weir.resources.database.transaction() as session:
        rows = [row for row in await ComputeRepository(session, None).beyond("", 1000) if row.endpoint.id == ident]
    seen = await observe(rows, weir.resources.http)
    return await scaling.resize(rows, seen, rolling or {})


async def _sizes(weir: Weir, path: str, ident: str) -> tuple[float, float | None]:
    """The size that is wanted, and the one that the compute was given."""
    endpoint = (await weir.call("GET", path))["endpoint"]
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, ident)
    status = await weir.resources.agent(row).status()
    return endpoint["current_cu"], status.compute_units


async def test_a_busy_compute_grows_soon_and_shrinks_late(sized: Weir) -> None:
    path, ident = await _compute(sized, "busy", 2.0, autoscaling_limit_min_cu=0.5, autoscaling_limit_max_cu=4)
    clock = Clock()
    scaling = Autoscaling(sized.resources, clock)
    assert await _look(sized, scaling, ident) == []
    clock.seconds = 10.0
    assert await _look(sized, scaling, ident) == [ident]
    await sized.idle(path.split("/")[2])
    assert await _sizes(sized, path, ident) == (3.0, 3.0)
    entries = (await sized.call("GET", "/audit", params={"resource": f"endpoint/{ident}"}))["entries"]
    assert entries[0]["actor"] == "autoscaling"
    assert (entries[0]["detail"]["from_cu"], entries[0]["detail"]["to_cu"]) == (1, 3)

    await _uses(sized, ident, 0.1)
    for clock.seconds in (20.0, 300.0):
        assert await _look(sized, scaling, ident) == []
    clock.seconds = 321.0
    assert await _look(sized, scaling, ident) == [ident]
    await sized.idle(path.split("/")[2])
    assert await _sizes(sized, path, ident) == (2.0, 2.0)


async def test_a_compute_of_one_size_or_in_a_rollout_keeps_it(sized: Weir) -> None:
    fixed_path, fixed = await _compute(sized, "fixed", 30.0)
    path, ident = await _compute(sized, "rolling", 30.0, autoscaling_limit_max_cu=4)
    clock = Clock()
    scaling = Autoscaling(sized.resources, clock)
    for clock.seconds in (0.0, 10.0, 20.0):
        assert await _look(sized, scaling, fixed) == []
        assert await _look(sized, scaling, ident, {ident: "ro-1"}) == []
    assert (await _sizes(sized, fixed_path, fixed))[0] == 1
    # What was seen while the rollout went on is no reason afterwards.
    clock.seconds = 30.0
    assert await _look(sized, scaling, ident) == []
    assert (await _sizes(sized, path, ident))[0] == 1


@pytest.mark.parametrize(
    ("limits", "status", "said"),
    [
        ({"autoscaling_limit_max_cu": LARGEST + 1}, 400, "at most 8"),
        ({"autoscaling_limit_min_cu": 0.3}, 400, "no size of a compute"),
        ({"autoscaling_limit_max_cu": 1.5}, 400, "no size of a compute"),
        ({"autoscaling_limit_min_cu": 4, "autoscaling_limit_max_cu": 2}, 400, "is above"),
        ({"autoscaling_limit_min_cu": 2}, 400, "is above"),
        ({"autoscaling_limit_min_cu": -1}, 400, "no size"),
    ],
)
async def test_limits_that_make_no_sense_are_refused(
    sized: Weir, limits: dict[str, Any], status: int, said: str
) -> None:
    found = [row["id"] for row in await sized.projects() if row["name"] == "limits"]
    project = found[0] if found else (await sized.project(name="limits"))["project"]["id"]
    endpoint = (await sized.call("GET", f"/projects/{project}/endpoints"))["endpoints"][0]
    path = f"/projects/{project}/endpoints/{endpoint['id']}"
    assert said in (await sized.call("PATCH", path, status, json={"endpoint": limits}))["message"]
    assert (await sized.call("GET", path))["endpoint"]["current_cu"] == 1


async def test_other_limits_change_the_size_at_once_and_settings_have_to_fit_the_smallest(sized: Weir) -> None:
    path, ident = await _compute(sized, "moved", None)
    wide = {"autoscaling_limit_min_cu": 2, "autoscaling_limit_max_cu": 4}
    changed = await sized.call("PATCH", path, json={"endpoint": wide})
    assert [item["action"] for item in changed["operations"]] == ["apply_config"]
    await sized.finish(changed)
    assert await _sizes(sized, path, ident) == (2.0, 2.0)
    large = {"settings": {"pg_settings": {"shared_buffers": "2GB"}}}
    await sized.finish(await sized.call("PATCH", path, json={"endpoint": large}))
    refused = await sized.call("PATCH", path, 400, json={"endpoint": {"autoscaling_limit_min_cu": 0.5}})
    assert "shared_buffers" in refused["message"]
    assert (await sized.call("GET", path))["endpoint"]["autoscaling_limit_min_cu"] == 2
    # Sizes are of endpoints: a project says nothing of them.
    body = {"project": {"name": "all-large", "autoscaling_limit_max_cu": 4}}
    assert "each endpoint" in (await sized.call("POST", "/projects", 400, json=body))["message"]
