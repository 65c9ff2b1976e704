"""The HTTP API of a compute's agent (docs/interfaces.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from weir.clients.http import HttpClient, JsonClient, RemoteError, switch_lsn
from weir.config import get_settings
from weir.tls.parts import compute_name
from weir.tokens.bearer import for_agent

T = TypeVar("T")


@dataclass(frozen=True)
class UnloggedRelation:
    """One that holds rows; the names are None where Postgres did not say them."""

    bytes: int
    database: str | None
    schema: str | None
    # An index's or TOAST table's own table.
    table: str | None


@dataclass(frozen=True)
class Unlogged:
    """What a suspend would empty: all bytes, and the largest relations, of which there may be `more`."""

    bytes: int
    relations: list[UnloggedRelation]
    more: bool

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "Unlogged":
        found = [
            UnloggedRelation(
                bytes=item["bytes"],
                database=item.get("database"),
                schema=item.get("schema"),
                table=item.get("table") or item.get("relation"),
            )
            for item in body["relations"]
        ]
        return cls(bytes=body["bytes"], relations=found, more=body["more"])


@dataclass(frozen=True)
class ComputeStatus:
    compute_id: str
    state: str
    reason: str | None
    term: int | None
    start_lsn: str | None
    commit_lsn: str | None
    ingested_lsn: str | None
    full_page_writes: bool | None
    full_page_writes_lsn: str | None
    started_at: str | None
    start: dict[str, Any] | None
    active_connections: int | None
    restarts: int
    # Under way: while one is, Postgres writes page images whatever full_page_writes says.
    base_backups: int = 0
    # The minor of the server that runs, such as 15.20; None while none does.
    postgres_version: str | None = None
    # Sessions whose commit waits for a majority; None while nobody can look, or the agent is of an older Weir.
    commits_waiting: int | None = None
    # Let go without a majority since the agent's process began: canceled, terminated, stopped.
    commits_unconfirmed: dict[str, int] | None = None
    # What sessions begin with; None while no Postgres runs, or the agent is of an older Weir.
    synchronous_commit: str | None = None
    # How long clients have done nothing; None while nobody can tell, or the agent is of an older Weir.
    idle_seconds: float | None = None
    # What a suspend would empty, as of a moment within `idle_seconds`; None while that is not known.
    unlogged_bytes: int | None = None
    # Loading pages of the last suspend; None before the first start, or if the agent is of an older Weir.
    prewarm: dict[str, Any] | None = None
    # How busy Postgres is; None while nobody knows, or the agent is of an older Weir.
    load: dict[str, float] | None = None
    # The size that the running server was given; None while none runs, or the agent is of an older Weir.
    compute_units: float | None = None

    @property
    def processors(self) -> float | None:
        """That Postgres's processes use."""
        return None if self.load is None else self.load.get("processors")

    @classmethod
    def parse(cls, body: dict[str, Any]) -> "ComputeStatus":
        fpw = body.get("full_page_writes") or {}
        return cls(
            compute_id=body["compute_id"],
            state=body["state"],
            reason=body.get("reason"),
            term=body.get("term"),
            start_lsn=body.get("start_lsn"),
            commit_lsn=body.get("commit_lsn"),
            ingested_lsn=body.get("ingested_lsn"),
            full_page_writes=fpw.get("enabled"),
            full_page_writes_lsn=switch_lsn(fpw.get("lsn")),
            started_at=body.get("started_at"),
            start=body.get("start"),
            active_connections=body.get("active_connections"),
            restarts=body.get("restarts") or 0,
            base_backups=body.get("base_backups") or 0,
            postgres_version=body.get("postgres_version"),
            commits_waiting=body.get("commits_waiting"),
            commits_unconfirmed=body.get("commits_unconfirmed"),
            synchronous_commit=body.get("synchronous_commit"),
            idle_seconds=body.get("idle_seconds"),
            unlogged_bytes=body.get("unlogged_bytes"),
            prewarm=body.get("prewarm"),
            load=body.get("load"),
            compute_units=body.get("compute_units"),
        )


class ComputeAgent:
    def __init__(self, compute_id: str, base_url: str, client: HttpClient) -> None:
        self._http = JsonClient(
            "the compute's agent", base_url, client, lambda _: for_agent(compute_id), compute_name(compute_id)
        )

    async def status(self, timeout: float = 2.0) -> ComputeStatus:  # noqa: ASYNC109
        return await self._http.read(ComputeStatus.parse, "GET", "/status", timeout=timeout)

    async def started(self, wait_seconds: float) -> ComputeStatus:
        """The status once the compute is in another state than `starting`, or after so long. An agent of an older
        Weir answers at once."""
        wait_ms = {"wait_ms": str(round(wait_seconds * 1000))}
        timeout = wait_seconds + 2
        return await self._http.read(ComputeStatus.parse, "GET", "/status", params=wait_ms, timeout=timeout)

    async def configure(self, spec: dict[str, Any]) -> dict[str, str]:
        """Why settings of the spec are not in force, by name: those that Postgres refused before, and that were not
        tried again now. Settings that are refused now are an error, once the rest of the spec is applied."""

        def failed(body: dict[str, Any]) -> dict[str, str]:
            return {item["name"]: item["reason"] for item in body.get("failed") or []}

        return await self._http.read(failed, "POST", "/configure", json=spec, timeout=90)

    async def settings(self, parse: Callable[[dict[str, Any]], T]) -> T:
        """What is wanted and what is in force, as Postgres says now and `parse` understands it."""
        return await self._http.read(parse, "GET", "/settings", timeout=5)

    async def full_page_writes(self, enabled: bool, timeout_ms: int) -> str | None:
        """Switches, and answers with the end LSN of the record once a majority has it; None when the
        compute has been in that state since its start."""

        def lsn_of(body: dict[str, Any]) -> str | None:
            return switch_lsn(body["lsn"])

        return await self._http.read(
            lsn_of,
            "POST",
            "/full_page_writes",
            json={"enabled": enabled, "timeout_ms": timeout_ms},
            timeout=timeout_ms / 1000 + 5,
        )

    async def change_members(self, timeline: str, change: dict[str, str | int], timeout_ms: int) -> None:
        """One change of the members of this timeline's log, `{"add": "host:port"}`, `{"promote": N}` or `{"remove":
        N}`; refused by a compute of another timeline. A majority of the voters has stored it on return; repeating
        one that was made changes nothing."""
        body = change | {"timeline_id": timeline, "timeout_ms": timeout_ms}
        await self._http.call("POST", "/members", json=body, timeout=2 * timeout_ms / 1000 + 5)

    async def wal_by_relation(self, parse: Callable[[dict[str, Any]], T]) -> T:
        """WAL of the last minutes by relation, and the settings of checkpoints, as `parse` understands the answer."""
        return await self._http.read(parse, "GET", "/wal_by_relation", timeout=15)

    async def synchronous_commit(self, parse: Callable[[dict[str, Any]], T]) -> T:
        """What roles and databases have chosen for their sessions, as `parse` understands the answer."""
        return await self._http.read(parse, "GET", "/synchronous_commit", timeout=5)

    async def unlogged(self) -> Unlogged:
        """What a suspend would empty, counted now."""
        return await self._http.read(Unlogged.parse, "GET", "/unlogged", timeout=10)

    async def terminate(self, mode: str) -> None:
        await self._http.call("POST", "/terminate", json={"mode": mode}, timeout=5)


def agent_of(compute_id: str, host: str, postgres_port: int, client: HttpClient) -> ComputeAgent:
    """The agent listens on the port above Postgres's. Simulated computes share one server, each at its own path."""
    settings = get_settings()
    if settings.compute_runtime == "simulated":
        return ComputeAgent(compute_id, f"{settings.simulator_url}/computes/{compute_id}", client)
    return ComputeAgent(compute_id, f"{settings.parts_scheme}://{host}:{postgres_port + 1}", client)


async def status_of(
    compute_id: str,
    host: str,
    postgres_port: int,
    client: HttpClient,
    timeout: float = 2.0,  # noqa: ASYNC109
) -> ComputeStatus | str:
    """The compute's own status, or why it could not be had: none within `timeout` seconds, or another's."""
    try:
        status = await agent_of(compute_id, host, postgres_port, client).status(timeout)
    except RemoteError as error:
        return str(error)
    if status.compute_id != compute_id:
        return f"port {postgres_port} answers for {status.compute_id}"
    return status
