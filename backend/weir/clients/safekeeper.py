"""The safekeepers' management API (docs/interfaces.md)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from weir.clients.http import HttpClient, JsonClient
from weir.tokens.bearer import for_storage


@dataclass(frozen=True)
class Disk:
    """The identity of a safekeeper's data directory; `disk` is 32 hex digits."""

    node: int
    disk: str


@dataclass(frozen=True)
class Member:
    """A log on a disk, and what it counts for: `voter`, `learner`, or `none` of a log that its configuration does not
    name."""

    node: int
    disk: str
    incarnation: int
    role: str

    @property
    def identity(self) -> tuple[int, str, int]:
        return self.node, self.disk, self.incarnation

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "Member":
        return cls(int(body["node"]), str(body["disk"]), int(body["incarnation"]), str(body["role"]))

    @classmethod
    def parse_all(cls, bodies: list[dict[str, Any]]) -> tuple["Member", ...]:
        """One object for what thousands of logs say alike: a look at all logs finds few disks and roles."""
        return _members(*((body["node"], body["disk"], body["incarnation"], body["role"]) for body in bodies))


@lru_cache(maxsize=4096)
def _members(*given: tuple[Any, Any, Any, Any]) -> tuple[Member, ...]:
    return tuple(Member(int(node), str(disk), int(incarnation), str(role)) for node, disk, incarnation, role in given)


@dataclass(frozen=True)
class Damage:
    """A range of a log in which nothing is proven. `unrepaired`: why the last attempt to repair it failed; None
    before it ends."""

    from_lsn: str
    to_lsn: str
    reason: str
    unrepaired: str | None

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "Damage":
        return cls(body["from_lsn"], body["to_lsn"], body["reason"], body.get("unrepaired"))


@dataclass(frozen=True)
class LogStatus:
    """One safekeeper's log of a timeline, and whom it names as the log's members. Positions are None of a log that
    cannot be opened. `start_lsn`: where it was founded. `generation` 0: it names nobody yet. `verified_at`: when the
    safekeeper last ended a look at the whole log."""

    state: str
    reason: str | None
    term: int | None
    start_lsn: str | None
    flush_lsn: str | None
    commit_lsn: str | None
    member: Member | None
    members: tuple[Member, ...]
    generation: int
    generation_term: int
    damage: tuple[Damage, ...] = ()
    verified_at: datetime | None = None

    @property
    def role(self) -> str | None:
        return None if self.member is None else self.member.role

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "LogStatus":
        member, verified = body.get("member"), body.get("verified")
        return cls(
            state=body["state"],
            reason=body.get("reason"),
            term=body.get("term"),
            start_lsn=body.get("start_lsn"),
            flush_lsn=body.get("flush_lsn"),
            commit_lsn=body.get("commit_lsn"),
            member=None if member is None else Member.parse(member),
            members=Member.parse_all(body.get("members") or []),
            generation=body.get("generation") or 0,
            generation_term=body.get("generation_term") or 0,
            damage=tuple(Damage.parse(item) for item in body.get("damage") or ()),
            verified_at=None if verified is None else datetime.fromisoformat(verified["at"]),
        )


class Safekeeper:
    """`number`: which of the installation's safekeepers it is, from 1; its `--id`."""

    def __init__(self, number: int, base_url: str, client: HttpClient) -> None:
        self.number = number
        self.base_url = base_url
        self._http = JsonClient(
            "the safekeeper", base_url, client, partial(for_storage, "safekeeper"), f"safekeeper-{number}"
        )

    async def healthy(self) -> None:
        await self._http.ping("/healthz", timeout=2)

    async def timelines(self) -> list[dict[str, Any]]:
        return await self._http.call("GET", "/v1/timelines", timeout=5)

    async def disk(self) -> Disk:
        body = await self._http.call("GET", "/v1/disk", timeout=5)
        return self._http.parsed(lambda it: Disk(node=int(it["node"]), disk=str(it["disk"])), body, "GET /v1/disk")

    async def create_timeline(
        self,
        tenant: str,
        timeline: str,
        start_lsn: str,
        system_identifier: str,
        pg_version: int,
        founders: Sequence[Disk] | None = None,
    ) -> None:
        """Without `founders` the log names no members until a compute has written them down."""
        body: dict[str, Any] = {
            "start_lsn": start_lsn,
            "system_identifier": system_identifier,
            "pg_version": pg_version,
        }
        if founders is not None:
            body["founders"] = [asdict(founder) for founder in founders]
        await self._http.call("POST", f"/v1/tenant/{tenant}/timeline/{timeline}", json=body)

    async def create_learner(
        self, tenant: str, timeline: str, start_lsn: str, system_identifier: str, pg_version: int
    ) -> None:
        """An empty log that waits to be made a learner. A log that is there already stays as it is."""
        body = {
            "start_lsn": start_lsn,
            "system_identifier": system_identifier,
            "pg_version": pg_version,
            "learner": True,
        }
        await self._http.call("POST", f"/v1/tenant/{tenant}/timeline/{timeline}", json=body)

    async def log(self, tenant: str, timeline: str, timeout: float = 5.0) -> LogStatus | None:  # noqa: ASYNC109
        """None: the safekeeper has no log of this timeline."""
        path = f"/v1/tenant/{tenant}/timeline/{timeline}"
        body = await self._http.call("GET", path, missing_ok=True, timeout=timeout)
        return None if body is None else self._http.parsed(LogStatus.parse, body, f"GET {path}")

    async def fill(
        self,
        tenant: str,
        timeline: str,
        *,
        up_to: str | None = None,
        begin_by: str | None = None,
        min_term: int = 0,
        timeout: float = 1800.0,  # noqa: ASYNC109
    ) -> str:
        """Brings a log that does not count, or that was founded and not used, up to what the object store has; where
        it ends then. `begin_by`: where an empty log may begin at the latest. `min_term`: terms up to this one were
        won before. After `timeout` seconds the safekeeper goes on with it."""
        path = f"/v1/tenant/{tenant}/timeline/{timeline}/fill"
        body = {"up_to": up_to, "begin_by": begin_by, "min_term": min_term}
        return await self._http.read(lambda it: str(it["filled_to"]), "POST", path, json=body, timeout=timeout)

    async def delete_timeline(self, tenant: str, timeline: str) -> None:
        await self._http.call("DELETE", f"/v1/tenant/{tenant}/timeline/{timeline}", timeout=30, missing_ok=True)
