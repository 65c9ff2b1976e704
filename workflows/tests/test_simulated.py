"""The simulated fleet: the control plane's own clients understand it, and its model keeps what it promises."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from weir.clients.compute import ComputeAgent
from weir.clients.http import RemoteError
from weir.clients.pageserver import Pageserver
from weir.clients.safekeeper import Safekeeper
from weir.kit.ids import parse_lsn
from weir.projects.models import Project
from weir_workflows.runtime.simulated import SimulatedDriver
from weir_workflows.simulated import exposition
from weir_workflows.simulated.compute import Compute, Plant
from weir_workflows.simulated.fleet import Fleet, Tenant
from weir_workflows.simulated.profile import draw
from weir_workflows.simulated.server import app

BASE = "http://fleet"
BEGIN = 1_000_000.0
CYCLE = 30.0
TENANT, TIMELINE = "a" * 32, "b" * 32


def spec(ident: str = "ep-one", **changes: Any) -> dict[str, Any]:
    return {
        "compute_id": ident,
        "tenant_id": TENANT,
        "timeline_id": TIMELINE,
        "pg_version": 15,
        "port": 40000,
        "settings": {"checkpoint_timeout": f"{CYCLE:.0f}s"},
        "full_page_writes": True,
        **changes,
    }


def running(seed: int = 1, ident: str = "ep-one", at: float = BEGIN) -> Compute:
    fleet = Fleet(seed)
    fleet.take_up([spec(ident)], at)
    return fleet.compute(ident)


def p99(histogram_before: list[float], compute: Compute) -> float:
    """The upper bound of the bucket that holds the 99th percentile of what came since."""
    counts = [now - then for now, then in zip(compute.reads.counts, histogram_before, strict=True)]
    rank = 0.99 * counts[-1]
    return next((b for b, count in zip(compute.reads.bounds, counts, strict=False) if count >= rank), float("inf"))


# The model.


def test_the_same_seed_makes_the_same_fleet_and_another_seed_another() -> None:
    assert draw(7, "ep-x") == draw(7, "ep-x")
    assert draw(7, "ep-x") != draw(8, "ep-x")
    assert draw(7, "ep-x") != draw(7, "ep-y")


def test_a_simulated_tenant_takes_every_setting_that_follows_from_a_project() -> None:
    """Or the reconciler would try to repair each of them for ever."""
    fleet = Fleet(seed=1)
    tenant = spec()["tenant_id"]
    fleet.tenants[tenant] = Tenant()
    wanted = Project(history_retention_seconds=86_400).storage_config()
    assert fleet.configure(tenant, wanted).config.items() >= wanted.items()


def test_images_come_in_bursts_after_checkpoints_and_end_with_the_switch() -> None:
    compute = running()
    phase = compute.profile.phase
    start = (round(BEGIN / CYCLE) + 10 - phase) * CYCLE
    compute.advance(start)
    before = compute.image_bytes
    compute.advance(start + CYCLE / 4)
    early = compute.image_bytes - before
    before = compute.image_bytes
    compute.advance(start + CYCLE * 3 / 4)
    compute.advance(start + CYCLE)
    late = compute.image_bytes - before
    assert early > late > 0
    compute.switch(enabled=False, now=start + CYCLE)
    before, rest_before = compute.image_bytes, compute.rest_bytes
    compute.advance(start + 5 * CYCLE)
    assert compute.image_bytes == before
    assert compute.rest_bytes > rest_before


def test_images_return_with_the_next_checkpoint_after_the_switch_back() -> None:
    compute = running()
    begin = (round(BEGIN / CYCLE) + 10 - compute.profile.phase) * CYCLE
    compute.switch(enabled=False, now=begin)
    compute.switch(enabled=True, now=begin + CYCLE / 2)
    before = compute.image_bytes
    compute.advance(begin + CYCLE - 0.1)
    assert compute.image_bytes == before
    compute.advance(begin + CYCLE + 5)
    assert compute.image_bytes > before


def test_chains_fall_to_what_the_pushdown_threshold_allows() -> None:
    compute = running()
    compute.advance(BEGIN + 10)
    assert compute.chain > 16 / 3
    compute.switch(enabled=False, now=BEGIN + 10)
    compute.advance(BEGIN + 200)
    assert compute.chain <= 16 / 3 * 1.001


def test_a_planted_regression_shows_only_after_the_switch() -> None:
    compute = running()
    compute.plant = Plant(read_ratio=4.0)
    compute.advance(BEGIN + 60)
    clean = p99([0.0] * len(compute.reads.counts), compute)
    compute.switch(enabled=False, now=BEGIN + 60)
    compute.advance(BEGIN + 150)
    before = list(compute.reads.counts)
    compute.advance(BEGIN + 210)
    assert p99(before, compute) > clean


def test_counters_never_fall_and_lsns_only_rise() -> None:
    compute = running()
    seen: list[tuple[float, ...]] = []
    for second in range(0, 120, 5):
        if second == 60:
            compute.switch(enabled=False, now=BEGIN + second)
        compute.advance(BEGIN + second)
        seen.append(
            (compute.lsn, compute.image_bytes, compute.rest_bytes, compute.transactions, *compute.reads.counts)
        )
    for earlier, later in itertools.pairwise(seen):
        assert all(now >= then for then, now in zip(earlier, later, strict=True))


def test_storage_sees_the_switch_only_after_its_lag() -> None:
    fleet = Fleet(1)
    fleet.take_up([spec()], BEGIN)
    compute = fleet.compute("ep-one")
    lsn = compute.switch(enabled=False, now=BEGIN + 1)
    lag = compute.profile.ingest_lag_seconds
    assert fleet.timeline(TENANT, TIMELINE).see(BEGIN + 1 + lag / 2).full_page_writes
    seen = fleet.timeline(TENANT, TIMELINE).see(BEGIN + 1 + lag)
    assert (seen.full_page_writes, seen.switch_lsn) == (False, lsn)


def test_a_restarted_compute_keeps_the_state_and_the_log() -> None:
    fleet = Fleet(1)
    fleet.take_up([spec()], BEGIN)
    fleet.compute("ep-one").switch(enabled=False, now=BEGIN + 5)
    fleet.stop("ep-one", BEGIN + 10)
    end = fleet.timeline(TENANT, TIMELINE).lsn
    again = fleet.start(spec(full_page_writes=False), BEGIN + 20)
    assert (again.full_page_writes, again.start_lsn, again.term) == (False, end, 2)


def test_a_share_of_the_fleet_regresses_by_the_seed() -> None:
    fleet = Fleet(3, regress_share=0.2)
    specs = [spec(f"ep-{n}", tenant_id=f"t{n}", timeline_id=f"l{n}") for n in range(500)]
    fleet.take_up(specs, BEGIN)
    planted = {ident for ident, compute in fleet.computes.items() if compute.plant.read_ratio > 1}
    assert 60 <= len(planted) <= 140
    other = Fleet(3, regress_share=0.2)
    other.take_up(specs, BEGIN)
    assert planted == {ident for ident, compute in other.computes.items() if compute.plant.read_ratio > 1}


def test_metrics_are_valid_and_histograms_cumulative() -> None:
    compute = running()
    text = "".join(exposition.of_fleet([compute], BEGIN + 30))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {"weir_compute_wal_bytes", "weir_compute_transactions", "weir_compute_up"} <= families.keys()
    for name in ("commit_quorum_seconds", "page_read_seconds", "page_chain_length"):
        buckets = [s.value for s in families[f"weir_compute_{name}"].samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] > 0


# Over HTTP, by the control plane's own clients.


@pytest_asyncio.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app(Fleet(1)))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        yield client


async def started(http: httpx.AsyncClient) -> tuple[SimulatedDriver, ComputeAgent, Pageserver]:
    pageserver = Pageserver(f"{BASE}/pageserver", http)
    await pageserver.put_tenant(TENANT)
    timeline = await pageserver.create_timeline(TENANT, TIMELINE, 15, [])
    for number in (1, 2, 3):
        keeper = Safekeeper(number, f"{BASE}/safekeepers/{number}", http)
        await keeper.create_timeline(TENANT, TIMELINE, timeline.start_lsn, timeline.system_identifier, 15)
    driver = SimulatedDriver(BASE, http)
    status = await driver.start(spec())
    assert (status.state, status.full_page_writes) == ("running", True)
    return driver, ComputeAgent("ep-one", f"{BASE}/computes/ep-one", http), pageserver


async def test_a_switch_is_confirmed_by_safekeepers_and_pageserver(http: httpx.AsyncClient) -> None:
    _, agent, pageserver = await started(http)
    await pageserver.configure_tenant(TENANT, {"image_threshold_pushdown": 24})
    lsn = await agent.full_page_writes(enabled=False, timeout_ms=5000)
    assert lsn is not None
    for number in (1, 2, 3):
        log = await Safekeeper(number, f"{BASE}/safekeepers/{number}", http).log(TENANT, TIMELINE)
        assert log is not None
        assert log.flush_lsn is not None
        assert parse_lsn(log.flush_lsn) >= parse_lsn(lsn)
    await asyncio.sleep(draw(1, "ep-one").ingest_lag_seconds)
    timeline = await pageserver.timeline(TENANT, TIMELINE)
    assert timeline is not None
    assert (timeline.full_page_writes, timeline.full_page_writes_lsn) == (False, lsn)
    assert (await pageserver.tenant(TENANT))["config"]["image_threshold_pushdown"] == 24


async def test_switching_twice_writes_one_record(http: httpx.AsyncClient) -> None:
    _, agent, _ = await started(http)
    first = await agent.full_page_writes(enabled=False, timeout_ms=5000)
    assert await agent.full_page_writes(enabled=False, timeout_ms=5000) == first
    back = await agent.full_page_writes(enabled=True, timeout_ms=5000)
    assert back is not None
    assert first is not None
    assert parse_lsn(back) > parse_lsn(first)


async def test_a_start_is_idempotent_and_a_stopped_compute_is_gone(http: httpx.AsyncClient) -> None:
    driver, agent, _ = await started(http)
    await driver.start(spec())
    assert (await agent.status()).restarts == 0
    assert await driver.running(["ep-one", "ep-two"]) == {"ep-one"}
    await driver.stop("ep-one", "suspend")
    await driver.stop("ep-one", "suspend")
    assert await driver.known() == []
    with pytest.raises(RemoteError, match="does not run") as refusal:
        await agent.status()
    assert not refusal.value.retryable


async def test_a_refused_switch_is_an_error_worth_repeating(http: httpx.AsyncClient) -> None:
    _, agent, _ = await started(http)
    (await http.put("/computes/ep-one/plant", json={"refuse_switch": True})).raise_for_status()
    with pytest.raises(RemoteError, match="no quorum") as refusal:
        await agent.full_page_writes(enabled=False, timeout_ms=1000)
    assert refusal.value.retryable
    assert (await agent.status()).full_page_writes is True


async def test_a_branch_inherits_the_switch_and_holds_its_parent(http: httpx.AsyncClient) -> None:
    _, agent, pageserver = await started(http)
    await agent.full_page_writes(enabled=False, timeout_ms=5000)
    await asyncio.sleep(0.2)
    branch = await pageserver.create_timeline(TENANT, "c" * 32, 15, [], ancestor=TIMELINE)
    assert branch.full_page_writes is False
    with pytest.raises(RemoteError, match="has the branch"):
        await pageserver.delete_timeline(TENANT, TIMELINE)


async def test_what_is_not_simulated_says_so(http: httpx.AsyncClient) -> None:
    answer = await http.get("/pageserver/v1/tenant/x/timeline/y/layers")
    assert answer.status_code == 404
    assert answer.json()["code"] == "NOT_SIMULATED"
