"""Rows of unlogged tables: a suspend or restart that somebody asks for does not lose them unasked."""

import json
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from weir_testing.fixtures import Weir
from weir_testing.storage import Server

from weir.clients.compute import Unlogged
from weir.clients.http import RemoteError
from weir.endpoints.unlogged import named

HELD = 123_456_789


async def _compute(weir: Weir, name: str, count: int = HELD, **fields: Any) -> tuple[str, str]:
    """The paths of a project and of its compute, whose unlogged tables hold so many bytes."""
    settings = {"pg_settings": {"test.unlogged_bytes": json.dumps(count)}}
    created = await weir.project(name=name, default_endpoint_settings=settings, **fields)
    project = f"/projects/{created['project']['id']}"
    return project, f"{project}/endpoints/{created['endpoints'][0]['id']}"


async def test_a_stop_that_would_lose_rows_is_refused_with_their_tables_until_that_is_asked_for(weir: Weir) -> None:
    project, path = await _compute(weir, "keeps")
    disable = {"endpoint": {"disabled": True}}
    for method, where, body in (
        ("POST", f"{path}/suspend", None),
        ("POST", f"{path}/restart", None),
        ("PATCH", path, disable),
    ):
        refused = await weir.call(method, where, 409, json=body)
        assert refused["code"] == "UNLOGGED_ROWS", where
        for part in ("123.5 MB", "appdb: public.cache", "discard_unlogged=true", "SET LOGGED"):
            assert part in refused["message"], refused
    endpoint = (await weir.call("GET", path))["endpoint"]
    assert (endpoint["current_state"], endpoint["pending_state"], endpoint["disabled"]) == ("active", None, False)
    assert not [each for each in (await weir.call("GET", f"{project}/operations"))["operations"]
                if each["action"] == "suspend_compute"]  # fmt: skip

    await weir.finish(await weir.call("POST", f"{path}/restart?discard_unlogged=true"))
    await weir.finish(await weir.call("POST", f"{path}/suspend?discard_unlogged=true"))
    assert (await weir.call("GET", path))["endpoint"]["current_state"] == "idle"
    # Nothing is held by what does not run.
    assert (await weir.call("POST", f"{path}/suspend"))["operations"] == []
    assert (await weir.call("PATCH", path, json=disable))["endpoint"]["disabled"] is True


async def test_a_project_can_say_that_rows_may_go(weir: Weir) -> None:
    project, path = await _compute(weir, "discards", settings={"unlogged_on_suspend": "discard"})
    assert (await weir.call("GET", project))["project"]["settings"]["unlogged_on_suspend"] == "discard"
    await weir.finish(await weir.call("POST", f"{path}/restart"))
    await weir.call("PATCH", project, json={"project": {"settings": {"unlogged_on_suspend": "refuse"}}})
    await weir.call("POST", f"{path}/suspend", 409)
    await weir.call("PATCH", project, 400, json={"project": {"settings": {"unlogged_on_suspend": "perhaps"}}})
    await weir.call("PATCH", project, json={"project": {"settings": {"unlogged_on_suspend": "discard"}}})
    await weir.finish(await weir.call("POST", f"{path}/suspend"))


async def test_a_compute_without_such_rows_stops_as_any_client_asks(weir: Weir) -> None:
    _, path = await _compute(weir, "empty", 0)
    await weir.finish(await weir.call("POST", f"{path}/restart"))
    await weir.finish(await weir.call("POST", f"{path}/suspend"))


async def test_what_a_compute_does_not_say_is_not_lost_unless_it_is_not_there(weir: Weir) -> None:
    created = await weir.project(name="silent")
    endpoint = created["endpoints"][0]
    path = f"/projects/{created['project']['id']}/endpoints/{endpoint['id']}"
    process = weir.resources.runtime.process(endpoint["id"])
    assert process is not None
    weir.resources.runtime.kill(process)

    async def gone() -> bool:
        return not process.alive()

    await weir.wait(gone)

    async def broken(request: Request) -> Response:
        del request
        return JSONResponse({"code": "unlogged", "message": "the volume does not answer"}, 500)

    with Server(Starlette(routes=[Route("/unlogged", broken)]), endpoint["port"] + 1):
        unknown = await weir.call("POST", f"{path}/suspend", 503)
        assert "the volume does not answer" in unknown["message"]
        assert "discard_unlogged=true" in unknown["message"]
    # With the process, the rows are gone: nothing keeps its compute from being suspended.
    await weir.finish(await weir.call("POST", f"{path}/suspend"))
    assert (await weir.call("GET", path))["endpoint"]["current_state"] == "idle"


def test_a_table_is_named_once_with_its_indexes_and_what_is_stored_out_of_line() -> None:
    def relation(count: int, schema: str, name: str, table: str | None = None) -> dict[str, Any]:
        return {"bytes": count, "database": "appdb", "schema": schema, "relation": name, "table": table}

    relations = [
        relation(5_000_000, "pg_toast", "pg_toast_1", "cache"),
        relation(2_000_000, "app", "cache"),
        relation(1_000_000, "app", "cache_pkey", "cache"),
        relation(500_000, "pg_toast", "pg_toast_1_index", "pg_toast_1"),
        {"bytes": 1, "database": None, "schema": None, "relation": None, "table": None},
    ]
    text = named(Unlogged.parse({"bytes": 8_500_001, "relations": relations, "more": False}))
    assert text == " (appdb: app.cache 8.0 MB)"
    assert named(Unlogged.parse({"bytes": 1, "relations": relations[-1:], "more": False})) == ""


def test_only_a_connection_that_was_not_made_means_that_nobody_is_there() -> None:
    late, refused = RemoteError("agent", "GET /", None, "NO_ANSWER", ""), RemoteError("agent", "GET /", None, "", "")
    late.__cause__, refused.__cause__ = httpx.ReadTimeout("late"), httpx.ConnectError("refused")
    assert (late.nobody_listens, refused.nobody_listens) == (False, True)
