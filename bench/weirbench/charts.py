"""Pictures of what was measured, for the documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

# A read looks into each of these layers, so there have to be few.
L0_BOUND = 30


def level_0(changes: Sequence[Sequence[float]], to: Path) -> None:
    """How many level-0 layers there were as WAL came in: (MiB taken in, layers from then on) at each change."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.step([mib for mib, _ in changes], [count for _, count in changes], where="post", linewidth=0.8)
    axes.axhline(L0_BOUND, color="tab:red", linewidth=0.8, linestyle="--", label=f"bound, {L0_BOUND}")
    axes.set(xlabel="MiB of WAL taken in by a bulk load", ylabel="level-0 layers", ylim=(0, None), xlim=(0, None))
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(to, dpi=110)
