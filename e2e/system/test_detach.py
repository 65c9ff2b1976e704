"""A branch is detached through the API, under load and with the pageserver dying on the way: it keeps all its rows,
its parent can go, and it lives on without it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from ledger import Ledger
from stack import Stack, running_stack, wait_for
from weirbench.api import ApiError, Weir
from weirbench.parts import client
from weirbench.postgres import query

from weir.cli import installation
from weir.tokens import bearer

CONTENT = "SELECT count(*) || ' ' || sum(hashtext(n || who)) FROM t"


@pytest.fixture(scope="module")
def fragile() -> Generator[Stack]:
    """A stack whose pageserver can be told where to die."""
    with running_stack({"WEIR_CRASH_POINTS": "1"}) as stack:
        yield stack


def storage(stack: Stack) -> httpx.Client:
    def with_token(request: httpx.Request) -> None:
        request.headers.update(bearer.headers("pageserver", request.url.path, stack.home))

    found = client(installation.load(stack.home), "pageserver_http")
    found.event_hooks = {"request": [*found.event_hooks["request"], with_token]}
    return found


@dataclass
class Branch:
    api: Weir
    project: str
    id: str
    endpoint: str
    uri: str

    @property
    def path(self) -> str:
        return f"/projects/{self.project}/branches/{self.id}"

    def shown(self) -> dict[str, Any]:
        return self.api.get(self.path)["branch"]

    def restart(self) -> None:
        path = f"/projects/{self.project}/endpoints/{self.endpoint}"
        for action in ("suspend", "start"):
            self.api.wait_operations(self.api.request("POST", f"{path}/{action}")["operations"])

    def content(self) -> str:
        return query(self.uri, CONTENT)

    def write(self, who: str, rows: int = 500) -> None:
        query(self.uri, f"INSERT INTO t SELECT n, '{who}' FROM generate_series(1, {rows}) AS n")


def branch_of(api: Weir, project: str, parent: str, name: str) -> Branch:
    body = {"branch": {"name": name, "parent_id": parent}, "endpoints": [{"type": "read_write"}]}
    made = api.request("POST", f"/projects/{project}/branches", body)
    api.wait_operations(made["operations"])
    uri = api.direct_uri(made)
    return Branch(api, project, made["branch"]["id"], made["endpoints"][0]["id"], uri)


@pytest.fixture(scope="module")
def main(fragile: Stack) -> Branch:
    api = fragile.api()
    made = api.create_database("detaching", {})
    query(made.uri, "CREATE TABLE t AS SELECT n, 'main' AS who FROM generate_series(1, 20000) AS n")
    query(made.uri, "CREATE INDEX ON t (n)")
    return Branch(api, made.project_id, made.branch_id, made.compute_id, made.uri)


def timeline_answer(stack: Stack, branch: Branch, timeline: str) -> int:
    tenant = branch.api.get(f"/projects/{branch.project}")["project"]["tenant_id"]
    with storage(stack) as pageserver:
        return pageserver.get(f"/v1/tenant/{tenant}/timeline/{timeline}").status_code


def outlives_its_parent(stack: Stack, main: Branch, parent: Branch, child: Branch) -> None:
    """After the detach: the parent goes, also in storage, and the child lives on, also when nothing is in memory."""
    shown = child.shown()
    assert [shown.get(field) for field in ("parent_id", "parent_lsn", "parent_timestamp")] == [None] * 3
    timeline = parent.shown()["timeline_id"]
    of_main, of_child = main.content(), child.content()
    child.api.wait_operations(child.api.request("DELETE", parent.path)["operations"])
    assert timeline_answer(stack, main, timeline) == 404
    assert child.content() == of_child
    child.write("after the parent")
    of_child = child.content()
    stack.kill("pageserver")
    child.restart()
    assert child.content() == of_child
    assert query(child.uri, "SELECT count(*) FROM t WHERE n = 7") == "4"
    child.write("after the restart")
    assert main.content() == of_main


def family(main: Branch, name: str) -> tuple[Branch, Branch]:
    """A branch of main and a branch of that, with rows of their own after each branch point."""
    parent = branch_of(main.api, main.project, main.id, f"{name}-parent")
    parent.write("parent, before")
    child = branch_of(main.api, main.project, parent.id, f"{name}-child")
    parent.write("parent, after")
    child.write("child")
    query(child.uri, "DELETE FROM t WHERE n % 100 = 0")
    with pytest.raises(ApiError, match=f"412.*{name}-child"):
        main.api.request("DELETE", parent.path)
    return parent, child


def test_a_branch_is_detached_under_load_and_outlives_its_parent(fragile: Stack, main: Branch) -> None:
    parent, child = family(main, "calm")
    ledger = Ledger(child.uri)
    ledger.start()
    wait_for("some promises", lambda: len(ledger.acknowledged) > 50)
    asked = child.api.request("POST", f"{child.path}/detach")
    assert [operation["action"] for operation in asked["operations"]] == ["detach_parent_branch"]
    child.api.wait_operations(asked["operations"])
    promised = len(ledger.acknowledged)
    wait_for("promises after the detach", lambda: len(ledger.acknowledged) > promised + 50)
    ledger.finish()
    assert ledger.interruptions == 0, "the detach was noticed"
    outlives_its_parent(fragile, main, parent, child)
    assert ledger.missing() == []


@pytest.mark.parametrize("point", ["detach.layer-copied", "detach.copied", "detach.indexed"])
def test_a_detach_ends_well_though_the_pageserver_dies_at(point: str, fragile: Stack, main: Branch) -> None:
    parent, child = family(main, point.replace(".", "-"))
    expected = child.content()
    before = fragile.pid("pageserver")
    with storage(fragile) as pageserver:
        pageserver.put(f"/v1/crash_point/{point}").raise_for_status()
    child.api.wait_operations(child.api.request("POST", f"{child.path}/detach")["operations"])
    assert fragile.pid("pageserver") != before, "it did not die"
    assert child.content() == expected
    outlives_its_parent(fragile, main, parent, child)


def test_a_detach_ends_well_though_the_pageserver_is_killed(fragile: Stack, main: Branch) -> None:
    parent, child = family(main, "killed")
    expected = child.content()
    asked = child.api.request("POST", f"{child.path}/detach")
    fragile.kill("pageserver")
    child.api.wait_operations(asked["operations"])
    assert child.content() == expected
    outlives_its_parent(fragile, main, parent, child)
