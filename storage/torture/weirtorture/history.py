"""What clients did and saw, one line of JSON an operation, in the shape that the checker reads.

Times are nanoseconds of the machine's monotonic clock, taken before the client looks which compute to ask and after
the answer has come. Outcomes: `ok`; `failed`, when `COMMIT` was never sent or the server said that it rolled back;
`unknown`, when `COMMIT` was sent and no answer came, or one with the warning that it is not replicated.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
# Operations that change something and, acknowledged, have to stay.
CHANGES = ("write", "append", "insert", "transfer")


@dataclass
class Operation:
    """`parts` are what one transaction did, in the checker's words; all have its times and its outcome."""

    client: int
    parts: list[dict[str, Any]]
    call: int = field(default_factory=time.monotonic_ns)
    end: int = 0
    outcome: str = FAILED

    def ended(self, outcome: str) -> None:
        self.end, self.outcome = time.monotonic_ns(), outcome

    @property
    def changes(self) -> bool:
        return any(part["op"] in CHANGES for part in self.parts)

    def lines(self) -> Iterable[dict[str, Any]]:
        for part in self.parts:
            yield {
                "client": self.client,
                "call": self.call,
                "return": self.end,
                "outcome": self.outcome,
                **part,
            }


@dataclass
class History:
    operations: list[Operation] = field(default_factory=list[Operation])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    def lines(self) -> list[dict[str, Any]]:
        return [line for operation in self.operations for line in operation.lines()]

    def acknowledged(self) -> list[Operation]:
        """Transactions that changed something and returned."""
        return [it for it in self.operations if it.changes and it.outcome == OK]

    def commit_times(self) -> list[float]:
        """When transactions that changed something returned, seconds of the monotonic clock, ascending."""
        return sorted(operation.end / 1e9 for operation in self.acknowledged())

    def write(self, path: Path) -> None:
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines()))
