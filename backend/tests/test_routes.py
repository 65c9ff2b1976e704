"""The index of routes leads where FastAPI leads, for any path and method; and all of the API is in it."""

import inspect
import re
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import RouteContext, iter_route_contexts
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Scope

from weir.authz.rules import RULES
from weir.kit.routes import RouteIndex
from weir.main import create_app

PARTS = ["", "a", "b", "new", "list", "things", "deep", "7", "x.y", "new\n", "%2F", "é", "..", "a b"]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]


def _made_up(*, indexed: bool) -> FastAPI:
    """Routes that overlap: fixed text after a parameter and before it, one path with several methods, one that is
    cut into parts by no slash, and one that takes any number of parts, with a route behind it."""
    inner, outer, app = APIRouter(prefix="/things"), APIRouter(prefix="/deep"), FastAPI()

    def add(router: APIRouter | FastAPI, path: str, *methods: str) -> None:
        name = f"{len(seen)} {path}"
        seen.append(name)

        async def handler() -> dict[str, str]:
            return {"route": name}

        router.add_api_route(path, handler, methods=list(methods) or ["GET"])

    seen: list[str] = []
    add(inner, "/{thing}")
    add(inner, "/new")
    add(inner, "/new", "POST")
    add(inner, "/{thing}/list", "GET", "DELETE")
    add(inner, "/{other}/{part}", "GET", "POST")
    add(outer, "/{kind}/new")
    add(outer, "", "PUT")
    outer.include_router(inner)
    app.include_router(outer)
    app.include_router(inner)
    add(app, "/{kind}/new/")
    add(app, "/{kind}/list")
    add(app, "/a{kind}/b", "POST")
    add(app, "/{first}/b", "POST")
    add(app, "/new/{rest:path}")
    add(app, "/{any}", "PUT")
    if indexed:
        app.router.middleware_stack = RouteIndex(app.router)
    return app


PLAIN, INDEXED = _made_up(indexed=False), _made_up(indexed=True)


async def _asked(app: FastAPI, method: str, path: str) -> tuple[int, bytes, str | None, str | None]:
    """As a server hands requests on: the path decoded, whatever is in it."""
    sent: list[Any] = []
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "headers": [],
        "server": ("test", 80), "client": ("test", 1),
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = httpx.Headers(sent[0]["headers"])
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body, headers.get("location"), headers.get("allow")


# The first request to each application builds its middleware, however long that takes.
@settings(deadline=None)
@given(method=st.sampled_from(METHODS), parts=st.lists(st.sampled_from(PARTS), max_size=5))
async def test_any_path_is_answered_as_without_the_index(method: str, parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    assert await _asked(INDEXED, method, path) == await _asked(PLAIN, method, path)


@settings(deadline=None)
@given(method=st.sampled_from(METHODS), path=st.text(max_size=20))
async def test_any_text_is_answered_as_without_the_index(method: str, path: str) -> None:
    assert await _asked(INDEXED, method, "/" + path) == await _asked(PLAIN, method, "/" + path)


def _api() -> list[RouteContext]:
    found = [route for route in iter_route_contexts(create_app().routes) if hasattr(route, "dependant")]
    return [route for route in found if str(route.path).startswith("/api/v2")]


def test_the_index_has_every_operation() -> None:
    app = create_app()
    index = app.router.middleware_stack
    assert isinstance(index, RouteIndex)
    found: set[str] = set()
    for route in _api():
        path = re.sub(r"\{\w+\}", "some-1", str(route.path))
        for method in route.methods or ():
            answer = index.find({"type": "http", "method": method, "path": path})
            assert answer is not None, f"{method} {path} is looked for among all routes"
            assert getattr(answer[0], "name", None) == route.name
            assert answer[2]["path_params"] == dict.fromkeys(re.findall(r"\{(\w+)\}", str(route.path)), "some-1")
        found.add(str(route.name))
    assert found == set(RULES)


def test_the_index_leaves_to_fastapi_what_it_does_not_know() -> None:
    index = create_app().router.middleware_stack
    assert isinstance(index, RouteIndex)
    known: Scope = {"type": "http", "method": "GET", "path": "/api/v2/projects"}
    assert index.find(known) is not None
    elsewhere: list[Scope] = [
        known | {"type": "websocket"},
        known | {"method": "DELETE"},
        known | {"path": "/api/v2/projects/"},
        known | {"path": "api/v2/projects"},
        known | {"path": "/api/v2/nothing"},
        known | {"path": "/assets/index.js"},
        known | {"root_path": "/below"},
        known | {"fastapi.telemetry": object()},
    ]
    for scope in elsewhere:
        assert index.find(scope) is None, scope


def _calls(of: Dependant) -> list[Any]:
    return [call for sub in of.dependencies for call in (sub.call, *_calls(sub))]


def test_no_dependency_of_an_operation_needs_a_thread() -> None:
    """FastAPI runs in a thread what is no coroutine, which costs more than what it does there."""

    def waits(call: Any) -> bool:
        return any(
            check(each)
            for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
            for each in (call, getattr(call, "__call__", None))  # noqa: B004
        )

    in_threads = {
        f"{route.name}: {call}"
        for route in _api()
        for call in (route.endpoint, *_calls(route.dependant))
        if not waits(call)
    }
    assert not in_threads
