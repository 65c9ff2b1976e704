"""A cursor that a list did not give out is a bad request, whatever is in it; never an error of the server."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from weir_testing.fixtures import Weir

from weir.kit.clock import now
from weir.main import create_app

AT = "2026-11-21T12:00:00+00:00"
CONTENTS: list[Any] = [
    {}, [], {"a": 1, "b": 2}, 7, None, "text", [[], []], [AT], [AT, "x", "y"], ["x", "y"], [1, 2], [AT, None],
    ["2026-11-21T12:00:00", "naive"], [AT, "a\0b"], [AT, "\ud800"], [2**80, "x"], [-1, "x"], [True, []], [f"{2**70}"],
    [AT, str(2**70)], ["\0"], [1e400, "x"],
]  # fmt: skip
# What lists of usage ask for beside it; others pass it over.
DAY = timedelta(days=1)
WITH = {
    "from": (now() - DAY).isoformat(), "to": now().isoformat(), "granularity": "daily",
    "metrics": "compute_unit_seconds",
}  # fmt: skip
RAW = ["%", "====", "bm90IGpzb24=", "ÿ", "W1tb" * 40, "a" * 512]


def lists() -> list[str]:
    paths = create_app().openapi()["paths"]
    return sorted(
        path
        for path, methods in paths.items()
        if any(item["name"] == "cursor" for item in methods.get("get", {}).get("parameters", []))
    )


def test_every_list_is_tried() -> None:
    assert len(lists()) >= 11


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ids(weir: Weir) -> dict[str, str]:
    made = await weir.project(name="cursors")
    project = made["project"]["id"]
    strategy = {"plan_approval_required": True, "new_computes": False}
    body = {"selector": {"project_ids": [project]}, "strategy": strategy}
    rollout = await weir.call("POST", "/rollouts", 201, json=body)
    return {"project_id": project, "feature": "image_pushdown", "rollout_id": rollout["rollout"]["id"]}


@pytest.mark.parametrize("path", lists())
async def test_a_bad_cursor_is_refused(weir: Weir, ids: dict[str, str], path: str) -> None:
    concrete = path.removeprefix("/api/v2").format(**ids)
    cursors = [base64.urlsafe_b64encode(json.dumps(content).encode()).decode() for content in CONTENTS]
    refused = 0
    for cursor in cursors + RAW:
        asked = WITH | {"project_ids": ids["project_id"], "cursor": cursor}
        response = await weir.client.get(f"/api/v2{concrete}", params=asked)
        assert response.status_code in {200, 400}, (cursor, response.text)
        if response.status_code == 400:
            refused += 1
            assert set(response.json()) == {"request_id", "code", "message"}
            assert response.json()["code"] == "BAD_REQUEST"
            assert cursor in response.json()["message"]
    # A list ordered by text takes any one text for a place in it, and one ordered by two texts any two.
    assert refused >= len(cursors + RAW) - 3
