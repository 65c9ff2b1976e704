"""The pageserver's management API (docs/interfaces.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from weir.clients.http import HttpClient, JsonClient, switch_lsn
from weir.tokens.bearer import for_storage


@dataclass(frozen=True)
class TimelineStatus:
    timeline_id: str
    state: str
    reason: str | None
    pg_version: int
    system_identifier: str
    start_lsn: str
    oldest_lsn: str
    last_record_lsn: str
    # All before is durable as pages; None where the pageserver does not say.
    remote_consistent_lsn: str | None
    ancestor_lsn: str | None
    full_page_writes: bool
    full_page_writes_lsn: str | None
    logical_size: int | None
    history_bytes: int | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "TimelineStatus":
        fpw = body.get("full_page_writes") or {}
        return cls(
            timeline_id=body["timeline_id"],
            state=body["state"],
            reason=body.get("reason"),
            pg_version=body["pg_version"],
            system_identifier=str(body["system_identifier"]),
            start_lsn=body["start_lsn"],
            oldest_lsn=body.get("oldest_lsn") or body["start_lsn"],
            last_record_lsn=body["last_record_lsn"],
            remote_consistent_lsn=body.get("remote_consistent_lsn"),
            ancestor_lsn=body.get("ancestor_lsn"),
            full_page_writes=bool(fpw.get("enabled", True)),
            full_page_writes_lsn=switch_lsn(fpw.get("lsn")),
            logical_size=body.get("current_logical_size"),
            history_bytes=body.get("history_bytes"),
            raw=body,
        )


@dataclass(frozen=True)
class Detaching:
    """`state`: attached, running, failed or detached; how many layers of the ancestors have been copied."""

    state: str
    reason: str | None
    layers: int
    layers_copied: int

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "Detaching":
        return cls(body["state"], body.get("reason"), body["layers"], body["layers_copied"])


@dataclass(frozen=True)
class SickMark:
    """What the pageserver met where it read, or would have read, a timeline's WAL. `safekeeper`: its WAL address.
    `since`: by the pageserver's clock; None where that is not known."""

    timeline_id: str
    safekeeper: str
    kind: Literal["damaged", "diverged"]
    reason: str
    since: datetime | None

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "SickMark":
        since = datetime.fromisoformat(body["since"])
        return cls(body["timeline_id"], body["safekeeper"], body["kind"], body["reason"], since)


class Pageserver:
    def __init__(self, base_url: str, client: HttpClient) -> None:
        self._http = JsonClient("the pageserver", base_url, client, partial(for_storage, "pageserver"), "pageserver")

    async def healthy(self) -> None:
        await self._http.ping("/healthz", timeout=2)

    async def tenants(self) -> list[dict[str, Any]]:
        return await self._http.call("GET", "/v1/tenant", timeout=5)

    async def put_tenant(self, tenant: str) -> None:
        await self._http.call("PUT", f"/v1/tenant/{tenant}", json={})

    async def tenant(self, tenant: str) -> dict[str, Any]:
        return await self._http.call("GET", f"/v1/tenant/{tenant}")

    async def about_revision(self, tenant: str) -> str | None:
        """Of the document that describes the tenant's project; None when there is none."""
        return (await self.tenant(tenant)).get("about_revision")

    async def put_about(self, tenant: str, revision: str, document: dict[str, Any]) -> None:
        path = f"/v1/tenant/{tenant}/about"
        await self._http.call("PUT", path, json={"revision": revision, "about": document}, timeout=30)

    async def delete_tenant(self, tenant: str) -> None:
        await self._http.call("DELETE", f"/v1/tenant/{tenant}", timeout=60, missing_ok=True)

    async def configure_tenant(self, tenant: str, config: dict[str, Any]) -> None:
        await self._http.call("PATCH", f"/v1/tenant/{tenant}/config", json=config)

    async def create_timeline(
        self,
        tenant: str,
        timeline: str,
        pg_version: int,
        safekeepers: list[str],
        *,
        ancestor: str | None = None,
        ancestor_lsn: str | None = None,
        ancestor_timestamp: str | None = None,
    ) -> TimelineStatus:
        body: dict[str, Any] = {
            "new_timeline_id": timeline,
            "pg_version": pg_version,
            "safekeepers": safekeepers,
        }
        if ancestor is not None:
            body["ancestor_timeline_id"] = ancestor
        if ancestor_lsn is not None:
            body["ancestor_start_lsn"] = ancestor_lsn
        if ancestor_timestamp is not None:
            body["ancestor_timestamp"] = ancestor_timestamp
        # A new timeline runs initdb and imports what it made: seconds.
        path = f"/v1/tenant/{tenant}/timeline"
        return await self._http.read(TimelineStatus.parse, "POST", path, json=body, timeout=90)

    async def timeline(self, tenant: str, timeline: str) -> TimelineStatus | None:
        path = f"/v1/tenant/{tenant}/timeline/{timeline}"
        body = await self._http.call("GET", path, missing_ok=True)
        return None if body is None else self._http.parsed(TimelineStatus.parse, body, f"GET {path}")

    async def timelines(self, tenant: str) -> list[TimelineStatus]:
        """All of a tenant's in one call."""
        path = f"/v1/tenant/{tenant}/timeline"
        body = await self._http.call("GET", path, timeout=3)
        return [self._http.parsed(TimelineStatus.parse, item, f"GET {path}") for item in body]

    async def checkpoint(self, tenant: str, timeline: str) -> None:
        """Makes everything that was ingested durable as pages."""
        await self._http.call("POST", f"/v1/tenant/{tenant}/timeline/{timeline}/checkpoint", timeout=300)

    async def delete_timeline(self, tenant: str, timeline: str) -> None:
        await self._http.call("DELETE", f"/v1/tenant/{tenant}/timeline/{timeline}", timeout=60, missing_ok=True)

    async def set_safekeepers(self, tenant: str, timeline: str, addresses: Sequence[str]) -> None:
        """From whom the timeline's WAL is read from now on: WAL addresses, `host:port`. Durable on return."""
        path = f"/v1/tenant/{tenant}/timeline/{timeline}/safekeepers"
        await self._http.call("PUT", path, json={"safekeepers": list(addresses)}, timeout=30)

    async def sick_safekeepers(self) -> list[SickMark]:
        """Of all timelines; none of a pageserver that is too old to say."""
        path = "/v1/sick_safekeepers"
        body = await self._http.call("GET", path, missing_ok=True, timeout=5)
        return [self._http.parsed(SickMark.parse, item, f"GET {path}") for item in body or ()]

    async def detach_timeline(self, tenant: str, timeline: str) -> Detaching:
        """Begins to detach it from its ancestors, unless that is under way or done."""
        path = f"/v1/tenant/{tenant}/timeline/{timeline}/detach"
        return await self._http.read(Detaching.parse, "POST", path)

    async def give_up_detaching(self, tenant: str, timeline: str) -> Detaching:
        """Has it stop; "running" until it has. One that is detached stays so."""
        path = f"/v1/tenant/{tenant}/timeline/{timeline}/detach"
        return await self._http.read(Detaching.parse, "DELETE", path)

    async def detaching(self, tenant: str, timeline: str) -> Detaching:
        path = f"/v1/tenant/{tenant}/timeline/{timeline}/detach"
        return await self._http.read(Detaching.parse, "GET", path)

    async def lsn_by_timestamp(self, tenant: str, timeline: str, timestamp: str) -> tuple[str, str]:
        def answer(body: dict[str, str]) -> tuple[str, str]:
            return body["lsn"], body["kind"]

        path = f"/v1/tenant/{tenant}/timeline/{timeline}/lsn_by_timestamp"
        return await self._http.read(answer, "GET", path, params={"timestamp": timestamp}, timeout=30)

    async def timestamp_of_lsn(self, tenant: str, timeline: str, lsn: str) -> str | None:
        """Time of the newest commit at or before an LSN, RFC 3339; None before the first."""

        def answer(body: dict[str, str | None]) -> str | None:
            return body["timestamp"]

        path = f"/v1/tenant/{tenant}/timeline/{timeline}/timestamp_of_lsn"
        return await self._http.read(answer, "GET", path, params={"lsn": lsn}, timeout=30)
