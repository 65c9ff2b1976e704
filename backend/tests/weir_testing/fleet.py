"""A fleet of compute doubles with known WAL, the rollouts over it, and Prometheus scraping it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from weir.clients.prometheus import Prometheus
from weir.config import get_settings
from weir_testing import programs
from weir_testing.fixtures import Weir

# Checkpoint cycles of the doubles are as long as the windows: the shortest honest rollout.
WINDOW = 5
# Windows this short say nothing to statistics: the hard bounds judge.
STRATEGY: dict[str, Any] = {
    "baseline_seconds": WINDOW,
    "bake_seconds": WINDOW,
    "settle_seconds": 1,
    "soak_seconds": 0,
    "judge_by": "bounds",
}
CLOSED = {"completed", "aborted", "rolled_back", "failed"}


@contextlib.contextmanager
def metrics_from(weir: Weir, url: str) -> Generator[Weir]:
    """The control plane while its Prometheus is the one at `url`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_PROMETHEUS_URL", url)
        get_settings.cache_clear()
        before = weir.settings.prometheus_url
        # The worker's activities hold the settings object itself.
        object.__setattr__(weir.settings, "prometheus_url", url)
        try:
            yield weir
        finally:
            object.__setattr__(weir.settings, "prometheus_url", before)
    get_settings.cache_clear()


@pytest.fixture(scope="session", name="measured")
def _measured(weir: Weir, scratch: Path) -> Generator[Weir]:
    """The control plane with Prometheus scraping it."""
    directory = scratch / "prometheus-of-rollouts"
    directory.mkdir()
    with (
        programs.prometheus(directory, f"{weir.url}/internal/prometheus/targets") as url,
        metrics_from(weir, url) as measured,
    ):
        yield measured


@pytest.fixture(name="unmeasured")
def _unmeasured(weir: Weir) -> Generator[Weir]:
    """The control plane without a Prometheus, whichever tests ran before: nobody listens on port 9 (discard)."""
    with metrics_from(weir, "http://127.0.0.1:9") as unmeasured:
        yield unmeasured


def _described(rollout: dict[str, Any]) -> str:
    """Where a rollout and its computes stand, in a line."""
    computes = ", ".join(f"{item['state']} ({item['reason']})" for item in rollout["computes"])
    return f"{rollout['status']} ({rollout['status_reason']}): {computes}"


class Fleet:
    """Projects of one test and the rollouts over them."""

    def __init__(self, weir: Weir) -> None:
        self.weir = weir
        self.projects: list[dict[str, Any]] = []

    async def add(self, count: int, *, tags: dict[str, str] | None = None, **settings: str) -> list[str]:
        chosen = {"checkpoint_timeout": f"{WINDOW}s"} | {name.replace("__", "."): v for name, v in settings.items()}
        made = await asyncio.gather(
            *(
                self.weir.project(
                    name=f"fleet-{index}", tags=tags or {}, default_endpoint_settings={"pg_settings": chosen}
                )
                for index in range(count)
            )
        )
        self.projects += made
        ids = [item["endpoints"][0]["id"] for item in made]
        for ident in ids:
            await self.weir.wait(lambda ident=ident: self._scraped(ident))
        return ids

    async def _scraped(self, ident: str) -> bool:
        prometheus = Prometheus(self.weir.settings.prometheus_url, self.weir.resources.http)
        return bool(await prometheus.instant(f'weir_compute_transactions_total{{compute_id="{ident}"}}'))

    async def start(self, **strategy: Any) -> str:
        return await self.start_of("image_pushdown", **strategy)

    async def start_of(self, feature: str, **strategy: Any) -> str:
        body = {
            "feature": feature,
            "selector": {"project_ids": [item["project"]["id"] for item in self.projects]},
            "strategy": STRATEGY | strategy,
        }
        return (await self.weir.call("POST", "/rollouts", 201, json=body))["rollout"]["id"]

    async def get(self, ident: str) -> dict[str, Any]:
        """The rollout, with its computes."""
        rollout = (await self.weir.call("GET", f"/rollouts/{ident}"))["rollout"]
        page = await self.weir.call("GET", f"/rollouts/{ident}/computes")
        assert page["total"] == rollout["computes_total"] == sum(rollout["counts"].values())
        return rollout | {"computes": page["computes"]}

    async def wave(self, ident: str, index: int) -> list[str]:
        page = await self.weir.call("GET", f"/rollouts/{ident}/computes", params={"wave": index})
        return [item["compute_id"] for item in page["computes"]]

    async def until(self, ident: str, *statuses: str, seconds: float = 180) -> dict[str, Any]:
        rollout: dict[str, Any] = {}

        async def there() -> dict[str, Any] | None:
            nonlocal rollout
            rollout = await self.get(ident)
            assert rollout["status"] in statuses or rollout["status"] not in CLOSED, rollout
            return rollout if rollout["status"] in statuses else None

        return await self.weir.wait(there, seconds, seen=lambda: _described(rollout))

    async def until_member(self, ident: str, state: str, seconds: float = 180) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            rollout = await self.get(ident)
            return rollout if any(item["state"] == state for item in rollout["computes"]) else None

        return await self.weir.wait(there, seconds)

    async def switch_of(self, compute: str) -> tuple[bool, bool]:
        found = (await self.weir.call("GET", f"/computes/{compute}"))["compute"]["full_page_writes"]
        return found["wanted"], found["actual"]

    async def control(
        self, ident: str, action: str, expect: int = 200, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        answer = await self.weir.call("POST", f"/rollouts/{ident}/{action}", expect, json=body)
        return answer["rollout"] if expect == 200 else answer


@pytest_asyncio.fixture(name="fleet", loop_scope="session")
async def _fleet(measured: Weir) -> AsyncGenerator[Fleet]:
    fleet = Fleet(measured)
    yield fleet
    for item in fleet.projects:

        async def free(item: dict[str, Any] = item) -> bool:
            response = await measured.client.delete(f"/api/v2/projects/{item['project']['id']}")
            return response.status_code in {200, 404}

        await measured.wait(free)
