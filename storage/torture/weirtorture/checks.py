"""What is held against the database once everything is healed and a new compute has started from storage.

`lost`: an acknowledged change that is not there. `wrong`: anything else that cannot be: a row twice, a value that
nobody can have written, a sum that is not kept, half a transaction, a history without an order that explains it, an
index that does not fit its table, logs that differ.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Compute
from workloads import amcheck

from . import programs
from .clients import ACCOUNTS, BALANCE, REGISTERS, Served
from .history import FAILED, OK, History, Operation
from .schedule import FOUNDERS

# The client that reads everything at the end.
READER = 0


@dataclass
class Findings:
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    # No verdict: the search for an order was given up.
    undecided: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        return not (self.lost or self.wrong or self.undecided)


@dataclass(frozen=True)
class Content:
    """Everything that clients wrote, as it is in the end."""

    registers: dict[int, int]
    lists: dict[int, list[int]]
    inserted: Counter[tuple[int, int]]
    total: int


def read_content(compute: Served, history: History) -> Content:
    """Reads all; the reads of registers and lists become the last operations of the history."""
    read = Operation(READER, [])
    with compute.connect() as session:
        registers = dict(session.execute("SELECT key, value FROM registers").fetchall())
        lists = dict(session.execute("SELECT key, items FROM lists").fetchall())
        rows = session.execute("SELECT client, number FROM inserted").fetchall()
        balances = session.execute("SELECT sum(balance)::bigint, count(*) FROM accounts").fetchone()
    seen = {part["key"] for it in history.operations for part in it.parts if part["kind"] == "list"}
    for key in range(REGISTERS):
        read.parts.append({"kind": "register", "op": "read", "key": key, "seen": registers.get(key, -1)})
    for key in sorted(seen | set(lists)):
        read.parts.append({"kind": "list", "op": "read", "key": key, "list": lists.get(key, [])})
    read.ended(OK)
    history.add(read)
    total = balances[0] if balances and balances[1] == ACCOUNTS else -1
    return Content(registers, lists, Counter((client, number) for client, number in rows), total)


def check_content(history: History, content: Content, findings: Findings) -> None:
    """Inserts, appends and sums, by counting."""
    outcomes: dict[tuple[int, int], str] = {}
    appended: dict[tuple[int, int], str] = {}
    together: dict[int, list[int]] = defaultdict(list)
    for operation in history.operations:
        for part in operation.parts:
            if part["op"] == "insert":
                outcomes[operation.client, part["number"]] = operation.outcome
            elif part["op"] == "append":
                appended[part["key"], part["value"]] = operation.outcome
                together[part["value"]].append(part["key"])
            elif part["op"] == "sum" and operation.outcome == OK and part["sum"] != ACCOUNTS * BALANCE:
                findings.wrong.append(f"client {operation.client} read the sum {part['sum']} of all accounts")
    if content.total != ACCOUNTS * BALANCE:
        findings.wrong.append(f"the accounts add up to {content.total}, not to {ACCOUNTS * BALANCE}")
    _compare("row", outcomes, content.inserted, findings)
    there = Counter((key, value) for key, items in content.lists.items() for value in items)
    _compare("value of a list", appended, there, findings)
    for value, keys in together.items():
        holds = [key for key in keys if there[key, value]]
        if holds and len(holds) < len(keys):
            findings.wrong.append(f"half a transaction: {value} was appended to lists {keys}, only {holds} have it")


def _compare(
    what: str, outcomes: dict[tuple[int, int], str], there: Counter[tuple[int, int]], findings: Findings
) -> None:
    for name, outcome in outcomes.items():
        if outcome == OK and not there[name]:
            findings.lost.append(f"the {what} {name} was acknowledged and is not there")
        elif outcome == FAILED and there[name]:
            findings.wrong.append(f"the {what} {name} is there though its transaction never committed")
    for name, times in there.items():
        if times > 1:
            findings.wrong.append(f"the {what} {name} is there {times} times")
        if name not in outcomes:
            findings.wrong.append(f"the {what} {name} is there and nobody wrote it")


def check_history(history: History, path: Path, pictures: Path, findings: Findings) -> dict[str, Any]:
    """The checker's verdict on what was seen; it is among the findings where it is a bad one."""
    history.write(path)
    verdict = programs.check(path, pictures)
    findings.wrong.extend(found["text"] for found in verdict["wrong"])
    findings.undecided.extend(f"{found['kind']} {found['key']}: {found['text']}" for found in verdict["undecided"])
    return {name: value for name, value in verdict.items() if name not in ("wrong", "undecided")}


def check_indexes(compute: Compute, findings: Findings) -> None:
    try:
        amcheck(compute)
    except Exception as error:  # noqa: BLE001 - amcheck reports what it finds as errors of SQL
        findings.wrong.append(f"amcheck: {error}")


def _look_at_logs(what: str, root: Path, bin_dir: Path, timeline: str) -> subprocess.CompletedProcess[str]:
    directories = [str(root / f"safekeeper-{number}") for number in FOUNDERS]
    command = [str(bin_dir / "weir-log"), what, "--json", "--timeline", timeline, *directories]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)


def stored_commits(root: Path, bin_dir: Path, timeline: str) -> list[str | None]:
    """What the voters' control files say is committed; none where a log is not there."""
    members = json.loads(_look_at_logs("show", root, bin_dir, timeline).stdout)["members"]
    return [(member["durable"] or {}).get("commit_lsn") for member in members]


def check_logs(root: Path, bin_dir: Path, timeline: str, findings: Findings) -> None:
    """`weir-log verify` over the voters' directories."""
    done = _look_at_logs("verify", root, bin_dir, timeline)
    if done.returncode == 0:
        return
    try:
        report = json.loads(done.stdout)
        texts = [f"{found['kind']} {found['member']} {found['lsn']}: {found['text']}" for found in report["findings"]]
    except (json.JSONDecodeError, KeyError):
        texts = [done.stdout[-1000:] + done.stderr[-1000:]]
    findings.wrong.extend(f"weir-log verify: {text}" for text in texts or ["exit code 1 without a finding"])
