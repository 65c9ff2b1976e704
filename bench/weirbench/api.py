"""A small client of Weir's public API, with the waiting that every user of it needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from psycopg.conninfo import conninfo_to_dict

T = TypeVar("T")
_DONE = {"finished", "skipped"}
_BAD = {"failed", "error", "cancelled"}
# Of a rollout that goes on by itself.
OPEN = {"planned", "running"}


class ApiError(Exception):
    """The API refused or an operation failed; the message is the API's own. `status`: of an answer that refused."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Database:
    """A project with its branch, its compute and how to connect to that compute itself."""

    project_id: str
    name: str
    branch_id: str
    compute_id: str
    uri: str


class Weir:
    def __init__(self, url: str, api_key: str, *, timeout: float = 60) -> None:
        self.url = url
        self._client = httpx.Client(
            base_url=f"{url}/api/v2", headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout
        )

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, **parameters: Any) -> Any:
        """One call. 423 means that the project is busy with an earlier request: wait and repeat."""
        deadline = time.monotonic() + 120
        while True:
            answer = self._client.request(method, path, json=body, params=parameters or None)
            if answer.status_code == 423 and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            if answer.is_error:
                raise ApiError(f"{method} {path}: {answer.status_code} {_message(answer)}", answer.status_code)
            return answer.json() if answer.content else None

    def get(self, path: str, **parameters: Any) -> Any:
        return self.request("GET", path, **parameters)

    def wait_operations(self, operations: list[dict[str, Any]], timeout: float = 180) -> None:
        """Until every operation has finished; raises with the first one that failed."""
        deadline = time.monotonic() + timeout
        for operation in operations:
            path = f"/projects/{operation['project_id']}/operations/{operation['id']}"
            while True:
                current = self.get(path)["operation"]
                if current["status"] in _DONE:
                    break
                if current["status"] in _BAD:
                    raise ApiError(f"operation {current['action']} of {current['project_id']}: {current['error']}")
                if time.monotonic() > deadline:
                    raise ApiError(
                        f"operation {current['action']} is still {current['status']} after {timeout:.0f} s"
                    )
                time.sleep(0.2)

    def projects(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            parameters = {"limit": 100, **({"cursor": cursor} if cursor else {})}
            page = self.get("/projects", **parameters)
            found += page["projects"]
            cursor = page.get("pagination", {}).get("cursor")
            if not cursor or not page["projects"]:
                return found

    def create_database(self, name: str, settings: dict[str, str]) -> Database:
        """A project with a main branch and a running read-write compute."""
        body = {"project": {"name": name, "default_endpoint_settings": {"pg_settings": settings}}}
        made = self.request("POST", "/projects", body)
        self.wait_operations(made["operations"])
        return Database(
            project_id=made["project"]["id"],
            name=name,
            branch_id=made["branch"]["id"],
            compute_id=made["endpoints"][0]["id"],
            uri=self.direct_uri(made),
        )

    def direct_uri(self, made: dict[str, Any]) -> str:
        """Of the compute of a project or a branch that was just made: without the proxy, which would add its own time
        and wake a compute that is to sleep. `made`: the API's answer."""
        compute = self.compute(made["endpoints"][0]["id"])
        given = made["connection_uris"][0]["connection_parameters"]
        role, password, database = (quote(given[name], safe="") for name in ("role", "password", "database"))
        return f"postgresql://{role}:{password}@{compute['host']}:{compute['port']}/{database}"

    def delete_project(self, project_id: str) -> None:
        removed = self.request("DELETE", f"/projects/{project_id}")
        self.wait_operations([op for op in removed["operations"] if op["action"] != "delete_project"])

    def compute(self, compute_id: str) -> dict[str, Any]:
        return self.get(f"/computes/{compute_id}")["compute"]

    def rollout(self, rollout_id: str) -> dict[str, Any]:
        """The rollout, with its computes."""
        rollout = self.get(f"/rollouts/{rollout_id}")["rollout"]
        computes: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            parameters = {"limit": 400, **({"cursor": cursor} if cursor else {})}
            page = self.get(f"/rollouts/{rollout_id}/computes", **parameters)
            computes += page["computes"]
            cursor = page["pagination"]["cursor"]
            if not cursor:
                return {**rollout, "computes": computes}


def push_down(weir: Weir, project_id: str, name: str, seconds: float = 180) -> dict[str, Any]:
    """Switches image pushdown on for a project's computes by a rollout without windows, as a person would; a switch
    at an agent would be taken back. The rollout as it ended, well or not. Raises RuntimeError when it goes on for
    longer than `seconds`."""
    body = {
        "name": name,
        "feature": "image_pushdown",
        "selector": {"project_ids": [project_id]},
        "strategy": {"waves": [{"percent": 100}], "baseline_seconds": 0, "bake_seconds": 0, "soak_seconds": 0},
    }
    rollout = weir.request("POST", "/rollouts", body)["rollout"]
    deadline = time.monotonic() + seconds
    while (now := weir.rollout(rollout["id"]))["status"] in OPEN:
        if time.monotonic() > deadline:
            raise RuntimeError(f"rollout {rollout['id']} is still {now['status']} after {seconds:.0f} s")
        time.sleep(0.5)
    return now


def admin_uri(home: Path, database: Database) -> str:
    """For the superuser of a compute of this machine, who has its local socket only. `home`: the installation's."""
    port = conninfo_to_dict(database.uri)["port"]
    return f"postgresql://weir_admin@/appdb?host={home / 'computes' / database.compute_id / 'sock'}&port={port}"


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]


def wait_for(what: str, look: Callable[[], T | None], timeout: float, every: float = 0.25) -> T:
    """The first thing that `look` finds; raises when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise ApiError(f"{what}: not after {timeout:.0f} s")
        time.sleep(every)
