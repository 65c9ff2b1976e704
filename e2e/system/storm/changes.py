"""Changes of a branch, asked of an API that may die at any moment, as a client asks that wants to know the outcome.

A request whose connection breaks may have been accepted. So the outcome is looked up, and a change is only asked for
again where it has not happened, or where asking twice is no harm.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
import psycopg
from psycopg.conninfo import conninfo_to_dict
from stack import wait_for
from weirbench.api import ApiError, Database, Weir
from weirtorture.clients import ACCOUNTS, BALANCE

from .schedule import SAFEKEEPERS

T = TypeVar("T")
# Until an operation has ended, services that were killed meanwhile included, seconds.
PATIENCE = 180.0
_OPEN = {"scheduling", "running", "cancelling"}
# Refusals of the moment: the project is busy, or something that the API needs is away.
_PASSING = {423, 502, 503, 504}


class ChangeError(Exception):
    """The change, or what it left behind, is not what was asked for."""


@dataclass
class Changes:
    api: Weir
    database: Database
    # Requests whose connection broke: they may or may not have been accepted.
    broken: int = 0
    # Operations that ended as failed; a change may be repeated, so the trial decides what that means.
    failed: list[str] = field(default_factory=list[str])
    _seen: set[str] = field(default_factory=set[str])

    @property
    def _project(self) -> str:
        return f"/projects/{self.database.project_id}"

    @property
    def _endpoint(self) -> str:
        return f"{self._project}/endpoints/{self.database.compute_id}"

    @property
    def _members(self) -> str:
        return f"{self._project}/branches/{self.database.branch_id}/safekeepers"

    def perform(self, kind: str) -> None:
        getattr(self, f"_{kind}")()

    # --- asking

    def _ask(self, what: str, ask: Callable[[], T], happened: Callable[[], T | None] = lambda: None) -> T:
        """What `ask` answers, or `happened` after an answer that did not come; asked again until one of them has."""
        deadline = time.monotonic() + PATIENCE
        asked = False
        while True:
            try:
                if asked and (found := happened()) is not None:
                    return found
                asked = True
                return ask()
            except (httpx.TransportError, ApiError) as error:
                if isinstance(error, httpx.TransportError):
                    self.broken += 1
                elif error.status not in _PASSING:
                    raise
                if time.monotonic() > deadline:
                    raise ChangeError(f"{what}: {error}") from None
                time.sleep(0.3)

    def get(self, path: str) -> Any:
        return self._ask(path, lambda: self.api.get(path))

    def quiet(self) -> None:
        """Until no operation of the project is open."""

        def ended() -> bool:
            operations = self.get(f"{self._project}/operations?limit=100")["operations"]
            for operation in operations:
                if operation["status"] == "failed" and operation["id"] not in self._seen:
                    self._seen.add(operation["id"])
                    self.failed.append(f"{operation['action']} {operation['id']}: {operation['error']}")
            return not any(operation["status"] in _OPEN for operation in operations)

        wait_for("operations to end", ended, PATIENCE)

    def _post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._ask(f"POST {path}", lambda: self.api.request("POST", path, body))

    # --- computes

    def _restart(self) -> None:
        self._post(f"{self._endpoint}/restart")
        self.quiet()

    def suspend(self) -> None:
        self._post(f"{self._endpoint}/suspend")
        self.quiet()

    def start(self) -> None:
        self._post(f"{self._endpoint}/start")
        self.quiet()

    def _suspend_and_start(self) -> None:
        self.suspend()
        self.start()

    # --- members

    def voters(self) -> set[int]:
        return {row["safekeeper_id"] for row in self.get(self._members)["members"] if row["role"] == "voter"}

    def _replace_safekeeper(self) -> None:
        before = self.voters()
        (spare,) = set(range(1, SAFEKEEPERS + 1)) - before
        wanted = {spare, *sorted(before)[1:]}
        self._post(self._members, {"safekeepers": sorted(wanted)})
        self.quiet()
        # An operation that gave up says what is left to do; whoever asks again goes on from there.
        if self.voters() != wanted:
            self._post(self._members, {"safekeepers": sorted(wanted)})
            self.quiet()
        wait_for(f"the members to be {sorted(wanted)}", lambda: self.voters() == wanted, 60)

    def _replace_safekeeper_suspended(self) -> None:
        self.suspend()
        self._replace_safekeeper()
        self.start()

    # --- branches

    def _named(self, name: str) -> list[dict[str, Any]]:
        branches = self.get(f"{self._project}/branches")["branches"]
        return [branch for branch in branches if branch["name"] == name]

    def _branch(self) -> None:
        name = f"at-{time.time_ns()}"
        body = {"branch": {"name": name}, "endpoints": [{"type": "read_write"}]}

        def create() -> None:
            def there() -> bool | None:
                return True if self._named(name) else None

            with contextlib.suppress(ApiError):
                # The second one is refused: the name is taken.
                self._ask("a branch", lambda: self.api.request("POST", f"{self._project}/branches", body), there)

        twice = [threading.Thread(target=create) for _ in range(2)]
        for thread in twice:
            thread.start()
        for thread in twice:
            thread.join(PATIENCE * 2)
        self.quiet()
        found = self._named(name)
        if len(found) != 1:
            raise ChangeError(f"the branch {name} was asked for twice at once, and there are {len(found)} of it")
        branch = found[0]["id"]
        self._look_into(branch)
        self._ask(
            "deletion", lambda: self.api.request("DELETE", f"{self._project}/branches/{branch}"), self._gone(name)
        )
        self.quiet()
        if self._named(name):
            raise ChangeError(f"the branch {name} is there after it was deleted")

    def _gone(self, name: str) -> Callable[[], bool | None]:
        return lambda: None if self._named(name) else True

    def _look_into(self, branch: str) -> None:
        """A branch is one moment of its parent: transfers are there whole."""
        own = conninfo_to_dict(self.database.uri)
        wanted = urlencode({"branch_id": branch, "database_name": own["dbname"], "role_name": own["user"]})
        path = f"{self._project}/connection_uri?{wanted}"
        uri = self.get(path)["uri"]

        def total() -> int | None:
            try:
                with psycopg.connect(uri, connect_timeout=5) as connection:
                    row = connection.execute("SELECT sum(balance)::bigint FROM accounts").fetchone()
                    return row[0] if row else -1
            except psycopg.OperationalError:
                return None

        found = wait_for("the branch's compute to answer", total, PATIENCE)
        if found != ACCOUNTS * BALANCE:
            raise ChangeError(f"the accounts of the branch add up to {found}, not to {ACCOUNTS * BALANCE}")
