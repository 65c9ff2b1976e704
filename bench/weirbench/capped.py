"""The demo's second stage: one compute as fast as it goes, with its WAL held to a rate, before and after its switch.

At a fixed rate of transactions, as in the first stage, less WAL is all that a switch can bring. Where WAL is limited,
by a cap or by a slow link, the WAL that images no longer take carries transactions instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from weir.cli.installation import Installation

from . import tproc
from .report import table
from .write.arms import WeirArms
from .write.workloads import Run, tproc_c

# Long enough for both windows to span whole checkpoint cycles, which are 30 s (`weirbench.write.arms.SETTINGS`).
WARM_SECONDS = 30
CLIENTS = 4


@dataclass(frozen=True)
class Capped:
    """Both runs of the one compute; `broken` are the consistency conditions that do not hold at the end."""

    wal_bytes_per_second: int
    before: Run
    after: Run
    broken: list[str]

    @property
    def ratio(self) -> float:
        """New orders after the switch to those before it."""
        return self.after.per_second / max(1e-9, self.before.per_second)

    def document(self) -> dict[str, Any]:
        runs = {"before": asdict(self.before), "after": asdict(self.after)}
        return {"wal_bytes_per_second": self.wal_bytes_per_second, **runs, "new_orders_ratio": round(self.ratio, 2)}

    def table(self) -> str:
        def row(name: str, before: float, after: float, digits: int = 0) -> list[str]:
            return [name, f"{before:,.{digits}f}", f"{after:,.{digits}f}", f"x{after / max(1e-9, before):.2f}"]

        one, other = self.before, self.after
        rows = [
            row("new orders a minute", one.per_second * 60, other.per_second * 60),
            row("WAL a transaction, bytes", one.wal_bytes_per_transaction, other.wal_bytes_per_transaction),
            row("transaction p99, ms", one.p99_ms or 0, other.p99_ms or 0, 1),
        ]
        return table(
            f"unthrottled, WAL held to {self.wal_bytes_per_second / (1 << 20):g} MiB a second",
            ["", "images on", "pushdown", ""],
            rows,
        )


def measure(
    installation: Installation, say: Callable[[str], None], *, rate: int, seconds: float, warehouses: int
) -> Capped:
    """A project of its own, which is deleted at the end. `rate`: bytes of WAL a second; `seconds`: of each run."""
    with WeirArms(installation).arm("demo-capped", pushdown=False) as arm:
        if arm.limit_wal is None or arm.push_down is None:
            raise RuntimeError("an arm of Weir can be limited and switched")
        say(f"loading {warehouses} warehouse(s)")
        tproc.load(arm.uri, warehouses)
        arm.limit_wal(rate)
        workload = tproc_c(CLIENTS, warehouses)
        arm.quiesce()
        workload.run(arm, WARM_SECONDS)
        say(f"{CLIENTS} clients as fast as they go for {seconds:.0f} s, images on")
        before = workload.run(arm, seconds)
        arm.push_down()
        say(f"switched; {CLIENTS} clients as fast as they go for {seconds:.0f} s")
        return Capped(rate, before, workload.run(arm, seconds), tproc.violations(arm.uri))
