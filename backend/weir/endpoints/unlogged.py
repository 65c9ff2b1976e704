"""Rows of unlogged tables, which end with the run of a compute: nobody loses them unasked (ADR 66)."""

from weir.clients.compute import Unlogged, agent_of
from weir.clients.http import HttpClient, RemoteError
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import UnavailableError, UnloggedRowsError

#: Tables that a refusal names.
NAMED = 5
_TOAST = "pg_toast"


async def refuse_to_lose(endpoint: Endpoint, http: HttpClient) -> None:
    """Asks the compute's agent what would be lost. To be called outside of a transaction.

    Raises UnloggedRowsError when unlogged tables hold rows, and UnavailableError when a compute that should run
    cannot say it. One that does not run has none any more, and an agent of an older Weir is not held against the
    suspend."""
    if endpoint.state != EndpointState.ACTIVE:
        return
    try:
        found = await agent_of(endpoint.id, endpoint.host, endpoint.port, http).unlogged()
    except RemoteError as error:
        # 404: of an older Weir. 409: no Postgres runs there.
        if error.nobody_listens or error.status in {404, 409}:
            return
        raise UnavailableError(
            f"whether compute {endpoint.id} has rows in unlogged tables is not known now: {error}; repeat the "
            "request, or send it with discard_unlogged=true, which loses them if there are any"
        ) from error
    if found.bytes > 0:
        raise UnloggedRowsError(
            f"compute {endpoint.id} holds {_size(found.bytes)} in unlogged tables{named(found)}, which are empty "
            "after its next start; keep rows with ALTER TABLE ... SET LOGGED, or send discard_unlogged=true "
            "to lose them"
        )


def named(found: Unlogged) -> str:
    """Tables with the most bytes, their indexes and TOAST tables counted with them; empty where none has a name."""
    schemas = {(each.database, each.table): each.schema for each in found.relations if each.schema != _TOAST}
    by_table: dict[str, int] = {}
    for relation in found.relations:
        schema = schemas.get((relation.database, relation.table))
        # Indexes of TOAST tables are of no table that anybody knows.
        if relation.database and relation.table and schema:
            name = f"{relation.database}: {schema}.{relation.table}"
            by_table[name] = by_table.get(name, 0) + relation.bytes
    largest = sorted(by_table.items(), key=lambda item: -item[1])
    shown = [f"{name} {_size(count)}" for name, count in largest[:NAMED]]
    if not shown:
        return ""
    return f" ({', '.join(shown)}{', and others' if found.more or len(largest) > NAMED else ''})"


def _size(count: int) -> str:
    for unit, of in (("GB", 10**9), ("MB", 10**6)):
        if count >= of:
            return f"{count / of:.1f} {unit}"
    return f"{max(1, round(count / 1000))} kB"
