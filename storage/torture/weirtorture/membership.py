"""Who is to be a member of the log, and one step after the other towards it, through the running compute's agent.

Each step is one `POST /members`. All of them can be repeated, and whoever dies between two of them, agent or
safekeeper, leaves a log that works: so an error here is a reason to look again, until the deadline.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from .availability import Away
from .cluster import Cluster
from .schedule import FOUNDERS


class NotYetError(Exception):
    """The compute does not know the members at present."""


@dataclass
class Membership:
    cluster: Cluster
    away: Away
    # Numbers of the safekeepers that are to be the voters.
    wanted: set[int] = field(default_factory=lambda: set(FOUNDERS))
    steps: list[str] = field(default_factory=list[str])
    _one: threading.Lock = field(default_factory=threading.Lock)

    def reach(self, deadline: float, stop: threading.Event | None = None) -> bool:
        """Whether the voters are the wanted ones, on the disks that these have now, by `deadline` (monotonic)."""
        last = "nothing was tried"
        while time.monotonic() < deadline and not (stop and stop.is_set()):
            with self._one:
                try:
                    done = self._step()
                except (httpx.HTTPError, NotYetError) as error:
                    done, last = False, f"{type(error).__name__}: {error}"
                else:
                    if done:
                        return True
            time.sleep(0.1)
        self._say(f"gave up: {last}")
        return False

    def _say(self, text: str) -> None:
        self.steps.append(f"{time.monotonic():.2f}: {text}")

    def _step(self) -> bool:
        members: list[dict[str, Any]] = (self.cluster.current().status()["members"] or {}).get("members", [])
        if not members:
            raise NotYetError("the agent names no members")
        by_number = {member["safekeeper"]: member for member in members}
        self._saw(members)
        logs = {number: self.cluster.learner(number) for number in sorted(self.wanted)}
        for number, log in logs.items():
            member = by_number.get(number)
            if member and (member["disk"], member["incarnation"]) != (log["disk"], log["incarnation"]):
                return self._change(remove=number)
        for number in logs:
            if number not in by_number:
                return self._change(add=self.cluster.address_for(self.cluster.current(), number))
        for number in logs:
            if by_number[number]["role"] == "learner":
                return self._change(promote=number)
        for number in by_number:
            if number not in logs:
                return self._change(remove=number)
        return True

    def _change(self, **request: Any) -> bool:
        answer = self.cluster.current().http.post("/members", json={**request, "timeout_ms": 5_000}, timeout=10)
        self._say(f"{request}: {answer.status_code} {answer.text[:300]}")
        answer.raise_for_status()
        self._saw(answer.json()["members"])
        return False

    def _saw(self, members: list[dict[str, Any]]) -> None:
        self.away.voters_are({member["safekeeper"] for member in members if member["role"] == "voter"})
