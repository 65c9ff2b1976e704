"""A double of the logs' members: what safekeepers store of them, and the changes that a compute or `weir-members`
makes.

Keeps the promises of docs/consensus.md that the control plane relies on: one change at a time, generations that
grow, a log that is made again is another member, a safekeeper is no member twice.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_WAL = "127.0.0.1:"


def wal_address(number: int) -> str:
    """Nothing listens there: the number of the safekeeper stands for its port."""
    return f"{_WAL}{number}"


@dataclass
class Members:
    keepers: list[dict[str, dict[str, Any]]]
    # (timeline, who made it, the change), in order.
    made: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list[tuple[str, str, dict[str, Any]]])
    # Answers to the next changes, before anything is done: status and code.
    refusals: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    # Safekeepers that have changed their disk, by how often.
    disks: Counter[int] = field(default_factory=Counter[int])
    _made_on: Counter[tuple[int, str]] = field(default_factory=Counter[tuple[int, str]])

    def disk(self, number: int) -> str:
        return f"{number + 100 * self.disks[number]:032x}"

    def begin(self, number: int, timeline: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a new log's status says of its members."""
        self._made_on[number, timeline] += 1
        incarnation = self._made_on[number, timeline]
        identity = {"node": number, "disk": self.disk(number), "incarnation": incarnation}
        founders = [{**one, "incarnation": 1, "role": "voter"} for one in body.get("founders") or ()]
        named = any({**identity, "role": "voter"} == founder for founder in founders)
        waits = bool(body.get("learner")) or (bool(founders) and not named) or incarnation > 1
        role = "learner" if waits else "voter" if named else "none"
        member = identity | {"role": role}
        members = [member] if waits else founders
        return {"member": member, "members": members, "generation": int(named), "generation_term": 0}

    def of(self, timeline: str) -> tuple[int, list[dict[str, Any]]]:
        """The newest generation and its members."""
        logs = [keeper[timeline] for keeper in self.keepers if timeline in keeper]
        newest = max(logs, key=lambda log: log["generation"])
        if newest["generation"] > 0:
            return newest["generation"], newest["members"]
        return 1, [log["member"] | {"role": "voter"} for log in logs if not log["members"]]

    def voters(self, timeline: str) -> list[int]:
        return sorted(member["node"] for member in self.of(timeline)[1] if member["role"] == "voter")

    def change(self, timeline: str, by: str, change: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """As `POST /members` of an agent: status and body."""
        if self.refusals:
            status, code = self.refusals.pop(0)
            return status, {"code": code, "message": "a refusal of the test"}
        before, members = self.of(timeline)
        after = _changed(members, change, self._greeting(timeline, change.get("add")))
        if isinstance(after, tuple):
            return after[0], {"code": after[1], "message": f"{change} cannot be done"}
        if after != members or not any(
            timeline in keeper and keeper[timeline]["generation"] for keeper in self.keepers
        ):
            self._store(timeline, before + (after != members), members, after)
        self.made.append((timeline, by, change))
        return 200, {"generation": before + 1, "generation_term": 0, "members": after}

    def _greeting(self, timeline: str, address: str | None) -> dict[str, Any] | None:
        if address is None:
            return None
        keeper = self.keepers[int(address.removeprefix(_WAL)) - 1]
        return keeper[timeline]["member"] if timeline in keeper else None

    def _store(
        self, timeline: str, generation: int, before: list[dict[str, Any]], after: list[dict[str, Any]]
    ) -> None:
        """On all that are members before or after, and that are the members that are named."""
        roles = {_identity(member): member["role"] for member in [*[m | {"role": "none"} for m in before], *after]}
        for keeper in self.keepers:
            log = keeper.get(timeline)
            if log is not None and _identity(log["member"]) in roles:
                log["member"] = log["member"] | {"role": roles[_identity(log["member"])]}
                log |= {"members": after, "generation": generation}


def _identity(member: dict[str, Any]) -> tuple[int, str, int]:
    return member["node"], member["disk"], member["incarnation"]


def _changed(
    members: list[dict[str, Any]], change: dict[str, Any], greeting: dict[str, Any] | None
) -> list[dict[str, Any]] | tuple[int, str]:
    nodes = {member["node"]: member for member in members}
    if "add" in change:
        if greeting is None:
            return 504, "timeout"
        there = nodes.get(greeting["node"])
        if there is None:
            return [*members, greeting | {"role": "learner"}]
        return members if _identity(there) == _identity(greeting) else (409, "refused")
    number = change.get("promote") or change["remove"]
    if "remove" in change:
        return [member for member in members if member["node"] != number]
    if number not in nodes:
        return 404, "not_found"
    return [member | {"role": "voter"} if member["node"] == number else member for member in members]
