"""Finds the route of a request by the parts of its path.

FastAPI tries one route after the other by its regular expression, and does so again for each router that another one
includes: with 170 routes in 30 routers that is more work than a statement of the database. Here the routes lie in a
tree, one level for each part of a path, so that a request meets the few that it can be for.

The tree only ever answers with the route that FastAPI would take. What it finds none for, FastAPI looks for itself:
paths that lead nowhere, methods that a path does not have, files of the console.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import APIRouter
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

_PARAMETER = re.compile(r"\{\w+\}")
# FastAPI's own tracing learns the route from FastAPI's own search.
_TRACED = "fastapi.telemetry"


@dataclass(frozen=True)
class _Leaf:
    """`number`: the place among all routes; of several that fit, the first one is taken. `app`: None for a route that
    is FastAPI's to answer."""

    number: int
    route: BaseRoute
    matches: Callable[[Scope], tuple[Match, Scope]]
    app: ASGIApp | None


@dataclass
class _Node:
    """`below`: by the text of the next part; `parameter`: whatever its text. `leaves`: by method."""

    below: "dict[str, _Node]" = field(default_factory=dict)
    parameter: "_Node | None" = None
    leaves: dict[str, _Leaf] = field(default_factory=dict)


def _parts(route: RouteContext) -> list[str] | None:
    """The parts of its path; None where one is neither fixed text nor one parameter, or any method will do."""
    path = route.path
    if not isinstance(route.original_route, Route) or not route.methods or path is None or not path.startswith("/"):
        return None
    parts = path.split("/")[1:]
    return parts if all("{" not in part or _PARAMETER.fullmatch(part) for part in parts) else None


class RouteIndex:
    """Stands before `router`, with the routes that it has when this is made."""

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._search: ASGIApp = router.middleware_stack
        self._root = _Node()
        for number, route in enumerate(iter_route_contexts(router.routes)):
            parts = _parts(route)
            if parts is None:
                # It may fit what later routes fit too, and would come first.
                break
            self._add(number, parts, route)

    def _add(self, number: int, parts: list[str], route: RouteContext) -> None:
        node = self._root
        for part in parts:
            if not _PARAMETER.fullmatch(part):
                node = node.below.setdefault(part, _Node())
                continue
            if node.parameter is None:
                node.parameter = _Node()
            node = node.parameter
        app = route.app if isinstance(route.original_route, APIRoute) else None
        leaf = _Leaf(number, route.original_route, route.matches, app)
        for method in route.methods or ():
            node.leaves.setdefault(method, leaf)

    def _leaf(self, method: str, path: str) -> _Leaf | None:
        first, *parts = path.split("/")
        if first:
            return None
        nodes = [self._root]
        for part in parts:
            below = [node.below[part] for node in nodes if part in node.below]
            if part:
                below += [node.parameter for node in nodes if node.parameter is not None]
            if not below:
                return None
            nodes = below
        fitting = [node.leaves[method] for node in nodes if method in node.leaves]
        return min(fitting, key=lambda leaf: leaf.number, default=None)

    def find(self, scope: Scope) -> tuple[BaseRoute, ASGIApp, Scope] | None:
        """The route of an HTTP request, what answers it, and what it adds to the scope; None: FastAPI has to look."""
        if scope["type"] != "http" or scope.get("root_path") or _TRACED in scope:
            return None
        leaf = self._leaf(scope["method"], scope["path"])
        if leaf is None or leaf.app is None:
            return None
        match, found = leaf.matches(scope)
        return (leaf.route, leaf.app, found) if match is Match.FULL else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope)
        if found is None:
            await self._search(scope, receive, send)
            return
        route, app, added = found
        scope.setdefault("router", self._router)
        scope.update(added)
        scope["route"] = route
        await app(scope, receive, send)
