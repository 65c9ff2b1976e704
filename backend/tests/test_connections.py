"""What our programs say to each other over kept connections: everything arrives, and every failure has its kind."""

import asyncio
from collections.abc import AsyncGenerator
from urllib.parse import parse_qs

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from weir_testing import programs
from weir_testing.storage import Server

from weir.clients.connections import Connections
from weir.clients.http import JsonClient, RemoteError


async def _echo(request: Request) -> Response:
    return JSONResponse({"query": dict(request.query_params), "body": (await request.body()).decode()})


async def _slow(_request: Request) -> Response:
    await asyncio.sleep(2)
    return Response()


async def _broken(_request: Request) -> Response:
    return JSONResponse({"code": "NO_QUORUM", "message": "one of three"}, status_code=503)


async def _text(_request: Request) -> Response:
    return PlainTextResponse("not JSON")


async def _gone(_request: Request) -> Response:
    return Response(status_code=404)


@pytest.fixture(name="client")
async def _client() -> AsyncGenerator[JsonClient]:
    port = programs.free_port()
    routes = [
        Route("/echo", _echo, methods=["GET", "POST"]),
        *(Route(f"/{name}", serve) for name, serve in [("slow", _slow), ("broken", _broken), ("text", _text)]),
        Route("/gone", _gone),
    ]
    with Server(Starlette(routes=routes), port):
        async with Connections() as connections:
            yield JsonClient("the server", f"http://127.0.0.1:{port}", connections)


async def test_queries_forms_and_bodies_arrive_as_they_were(client: JsonClient) -> None:
    query = 'sum by (a) (rate(b{c=~"x|y+z"}[5m])) / 100 & more'
    assert (await client.call("GET", "/echo", params={"query": query}))["query"] == {"query": query}
    assert parse_qs((await client.call("POST", "/echo", form={"query": query}))["body"]) == {"query": [query]}
    assert (await client.call("POST", "/echo", json={"enabled": False}))["body"] == '{"enabled": false}'


async def test_each_failure_says_what_kind_it_is(client: JsonClient) -> None:
    with pytest.raises(RemoteError, match="did not answer") as slow:
        await client.call("GET", "/slow", timeout=0.2)
    assert (slow.value.status, slow.value.retryable) == (None, True)
    with pytest.raises(RemoteError, match="one of three") as broken:
        await client.call("GET", "/broken")
    assert (broken.value.status, broken.value.code) == (503, "NO_QUORUM")
    with pytest.raises(RemoteError, match="cannot be understood"):
        await client.call("GET", "/text")
    assert await client.call("GET", "/gone", missing_ok=True) is None


async def test_who_is_not_there_has_not_answered() -> None:
    async with Connections() as connections:
        nobody = JsonClient("nobody", f"http://127.0.0.1:{programs.free_port()}", connections)
        with pytest.raises(RemoteError, match="did not answer") as error:
            await nobody.ping("/healthz", timeout=2)
    assert error.value.retryable
