"""A project in which several things go on at the same time."""

from typing import Any

from sqlalchemy import select

from weir.endpoints.models import Endpoint
from weir.operations.models import OperationLock
from weir_testing.fixtures import Weir


class Project:
    """With the branch `dev` beside `main`, and a running compute of each."""

    def __init__(self, weir: Weir, created: dict[str, Any], dev: dict[str, Any]) -> None:
        self.weir = weir
        self.id: str = created["project"]["id"]
        self.path = f"/projects/{self.id}"
        self.main, self.main_endpoint = created["branch"], str(created["endpoints"][0]["id"])
        self.dev, self.dev_endpoint = dev["branch"], str(dev["endpoints"][0]["id"])

    async def call(self, method: str, rest: str, expect: int = 200, **arguments: Any) -> Any:
        return await self.weir.call(method, self.path + rest, expect, **arguments)

    async def operation(self, ident: str) -> dict[str, Any]:
        return (await self.call("GET", f"/operations/{ident}"))["operation"]

    async def held(self) -> list[str]:
        async with self.weir.resources.database.transaction() as session:
            statement = select(OperationLock.path).where(OperationLock.project_id == self.id)
            return sorted((await session.scalars(statement)).all())

    async def until(self, ident: str, *statuses: str) -> None:
        async def so() -> bool:
            return (await self.operation(ident))["status"] in statuses

        await self.weir.wait(so)

    async def hanging_start(self, endpoint: str) -> str:
        """A start whose compute never comes up: the operation that is open for it."""
        await self.weir.finish(await self.call("POST", f"/endpoints/{endpoint}/suspend"))
        await self.set(endpoint, {"test.mode": "stuck"})
        asked = await self.call("POST", f"/endpoints/{endpoint}/start")
        ident = str(asked["operations"][0]["id"])
        await self.until(ident, "running")
        return ident

    async def set(self, endpoint: str, settings: dict[str, str]) -> None:
        async with self.weir.resources.database.transaction() as session:
            (await session.get_one(Endpoint, endpoint)).pg_settings = settings

    async def slow_detach(self) -> str:
        self.weir.storage.slow_detaches.add(self.dev["timeline_id"])
        asked = await self.call("POST", f"/branches/{self.dev['id']}/detach")
        ident = str(asked["operations"][0]["id"])

        async def under_way() -> bool:
            return self.dev["timeline_id"] in self.weir.storage.detaching

        await self.weir.wait(under_way)
        return ident

    async def cancel(self, ident: str) -> dict[str, Any]:
        await self.call("POST", f"/operations/{ident}/cancel")
        await self.until(ident, "cancelled", "finished", "failed")
        return await self.operation(ident)


async def make(weir: Weir, name: str) -> Project:
    created = await weir.project(name=name)
    weir.storage.advance(created["branch"]["timeline_id"], "0/1900000")
    body = {"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]}
    dev = await weir.call("POST", f"/projects/{created['project']['id']}/branches", 201, json=body)
    await weir.finish(dev)
    return Project(weir, created, dev)
