"""A number that no column can hold is the client's mistake, and says so; it is no failure of the API."""

from typing import Any

import pytest
from weir_testing.fixtures import Weir

BEYOND_INTEGER, BEYOND_BIGINT = 2**31, 2**63


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/rollouts/ro-none/computes?wave={BEYOND_INTEGER}", None),
        ("GET", f"/rollouts/ro-none/evidence?wave={BEYOND_INTEGER}", None),
        ("POST", "/rollouts/ro-none/rollback", {"scope": "wave", "wave": BEYOND_INTEGER}),
        ("POST", "/rollouts/ro-none/skip", {"wave": BEYOND_INTEGER}),
        ("DELETE", f"/api_keys/{BEYOND_BIGINT}", None),
        (
            "PATCH",
            "/projects/none/endpoints/ep-none",
            {"endpoint": {"suspend_timeout_seconds": -BEYOND_INTEGER - 1}},
        ),
    ],
)
async def test_a_number_that_no_column_holds_is_refused(
    weir: Weir, method: str, path: str, body: dict[str, Any] | None
) -> None:
    refusal = await weir.call(method, path, 400, json=body)
    assert "than or equal to" in refusal["message"]
