"""Snapshots on the real engine: the rows of the moment, whatever becomes of the branch, with the pageserver dying on
the way; and the schemas of two branches, read by the real pg_dump."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Stack, wait_for
from weirbench.api import Database, Weir
from weirbench.postgres import query

COUNT = "SELECT count(*) FROM orders"


@pytest.fixture(scope="module")
def shop(stack: Stack) -> Database:
    made = stack.api().create_database("snapshots", {})
    query(made.uri, "CREATE TABLE orders AS SELECT n AS id, 'order ' || n AS what FROM generate_series(1, 5000) AS n")
    return made


def _done(api: Weir, answer: dict[str, Any]) -> dict[str, Any]:
    api.wait_operations(answer["operations"])
    return answer


def _project(shop: Database) -> str:
    return f"/projects/{shop.project_id}"


def test_a_branch_is_put_back_to_a_snapshot_at_its_address(stack: Stack, shop: Database) -> None:
    api, path = stack.api(), _project(shop)
    taken = _done(api, api.request("POST", f"{path}/branches/{shop.branch_id}/snapshot?name=good"))["snapshot"]
    query(shop.uri, "DROP TABLE orders")
    query(shop.uri, "CREATE TABLE other AS SELECT n FROM generate_series(1, 20000) AS n")
    # Nothing that is in memory alone is what is gone back to.
    stack.kill("pageserver")
    (listed,) = api.get(f"{path}/snapshots")["snapshots"]
    assert (listed["id"], listed["current_state"]) == (taken["id"], "ready")
    assert listed["full_size"] > 0
    restore = f"{path}/snapshots/{taken['id']}/restore"
    _done(api, api.request("POST", restore, {"finalize_restore": True}))
    stack.wait_for_compute(shop)
    assert query(shop.uri, COUNT) == "5000"
    query(shop.uri, "INSERT INTO orders VALUES (5001, 'after')")

    # Beside it, with a compute of its own, and in its place again with what was done there.
    made = _done(api, api.request("POST", restore, {"name": "look"}))["branch"]
    endpoint = {"endpoint": {"branch_id": made["id"], "type": "read_write"}}
    compute = api.compute(_done(api, api.request("POST", f"{path}/endpoints", endpoint))["endpoint"]["id"])
    password = api.get(f"{path}/branches/{made['id']}/roles/app_owner/reveal_password")["password"]
    look = f"postgresql://app_owner:{password}@{compute['host']}:{compute['port']}/appdb"
    query(look, "DELETE FROM orders WHERE id > 10")
    _done(api, api.request("POST", f"{path}/branches/{made['id']}/finalize_restore", {"name": "before the look"}))
    stack.wait_for_compute(shop)
    assert query(shop.uri, COUNT) == "10"
    wait_for("what was looked at to serve", lambda: api.compute(compute["id"])["state"] == "active")
    assert query(look, COUNT) == "5001"

    # The snapshot goes; what was restored from it stays whole, also when nothing is in memory.
    api.request("DELETE", f"{path}/snapshots/{taken['id']}")
    assert api.get(f"{path}/snapshots")["snapshots"] == []
    stack.kill("pageserver")
    stack.suspend_compute(shop)
    stack.start_compute(shop)
    stack.wait_for_compute(shop)
    assert query(shop.uri, COUNT) == "10"


def test_schemas_are_compared_and_a_suspended_compute_is_started_for_it(stack: Stack, shop: Database) -> None:
    api, path = stack.api(), _project(shop)
    body = {"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]}
    made = _done(api, api.request("POST", f"{path}/branches", body))
    query(api.direct_uri(made), "CREATE TABLE invoices (id bigint PRIMARY KEY)")
    endpoint = f"{path}/endpoints/{made['endpoints'][0]['id']}"
    _done(api, api.request("POST", f"{endpoint}/suspend"))
    asked = f"{path}/branches/{made['branch']['id']}/compare_schema?db_name=appdb"
    diff = api.get(asked)["diff"]
    assert "+CREATE TABLE public.invoices (" in diff
    assert not [line for line in diff.splitlines()[2:] if line.startswith("-")]
    assert api.get(endpoint)["endpoint"]["current_state"] == "active"
    shown = stack.weir("branches", "schema-diff", "dev", "--database", "appdb", "--project", shop.project_id)
    assert (shown.returncode, shown.stdout) == (0, diff), shown.stderr
