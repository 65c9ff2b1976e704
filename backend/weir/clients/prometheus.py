"""PromQL over HTTP."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from weir.clients.http import HttpClient, JsonClient

# Beyond this a query goes as a form: one that names thousands of computes is too long for a URL.
LONGEST_IN_URL = 4_000

T = TypeVar("T")
Sample = tuple[dict[str, str], float]
Series = tuple[dict[str, str], list[tuple[float, float]]]


def _instant(body: dict[str, Any]) -> list[Sample]:
    return [(row["metric"], float(row["value"][1])) for row in body["data"]["result"]]


def _range(body: dict[str, Any]) -> list[Series]:
    rows = body["data"]["result"]
    return [(row["metric"], [(float(at), float(value)) for at, value in row["values"]]) for row in rows]


class Prometheus:
    def __init__(self, base_url: str, client: HttpClient, part: str | None = None) -> None:
        """`part`: the name that Prometheus has to prove, where it is a part of this installation and speaks TLS."""
        self._http = JsonClient("Prometheus", base_url.rstrip("/"), client, part=part)

    async def instant(self, query: str, at: datetime | None = None) -> list[Sample]:
        """Label sets with their finite values; NaN (a quantile of nothing) is left out."""
        params = {"query": query}
        if at is not None:
            params["time"] = str(at.timestamp())
        samples = await self._ask(_instant, "/api/v1/query", params, timeout=10)
        return [(labels, value) for labels, value in samples if math.isfinite(value)]

    async def value(self, query: str, at: datetime | None = None) -> float | None:
        samples = await self.instant(query, at)
        return samples[0][1] if samples else None

    async def range(self, query: str, start: datetime, end: datetime, step_seconds: float) -> list[Series]:
        params = {
            "query": query,
            "start": str(start.timestamp()),
            "end": str(end.timestamp()),
            "step": str(step_seconds),
        }
        return await self._ask(_range, "/api/v1/query_range", params, timeout=20)

    async def _ask(
        self,
        parse: Callable[[Any], T],
        path: str,
        params: dict[str, str],
        timeout: float,  # noqa: ASYNC109
    ) -> T:
        if len(params["query"]) > LONGEST_IN_URL:
            return await self._http.read(parse, "POST", path, form=params, timeout=timeout)
        return await self._http.read(parse, "GET", path, params=params, timeout=timeout)
