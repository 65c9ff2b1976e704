"""Pictures of what was measured, for the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def write_rates(workloads: Mapping[str, Any], to: Path) -> None:
    """A panel for each workload of `write.py`: what each arm does a second, median, with least and most."""
    columns = 4
    rows = -(-len(workloads) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.4 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.set_axis_off()
    for panel, (name, found) in zip(panels, workloads.items(), strict=False):
        panel.set_axis_on()
        arms = list(found["arms"])
        rates = [found["arms"][arm]["per_second"] for arm in arms]
        middle = [rate["median"] for rate in rates]
        around = [
            [at - rate["min"] for at, rate in zip(middle, rates, strict=True)],
            [rate["max"] - at for at, rate in zip(middle, rates, strict=True)],
        ]
        panel.barh([arm.replace("_", " ") for arm in arms], middle, xerr=around, height=0.6)
        panel.invert_yaxis()
        panel.set_title(f"{name}, {found['unit']}", fontsize=8)
        panel.tick_params(labelsize=7)
    figure.savefig(to, dpi=110)


def churn(samples: Sequence[Mapping[str, float]], figures: Sequence[tuple[str, str]], to: Path) -> None:
    """A panel for each figure of `churn.py`, by name and unit: its value after each cycle, over minutes. The last two
    thirds, which are compared, are shaded."""
    columns = 3
    rows = -(-len(figures) // columns)
    figure = Figure(figsize=(3.4 * columns, 1.9 * rows), layout="constrained")
    minutes = [sample["at"] / 60 for sample in samples]
    third = len(samples) // 3
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.set_axis_off()
    for panel, (name, unit) in zip(panels, figures, strict=False):
        scale = 2**20 if unit == "bytes" else 1
        panel.set_axis_on()
        panel.plot(minutes, [sample[name] / scale for sample in samples], linewidth=0.8)
        if third > 0:
            panel.axvspan(minutes[-2 * third], minutes[-third], alpha=0.08, linewidth=0)
            panel.axvspan(minutes[-third], minutes[-1], alpha=0.16, linewidth=0)
        panel.set_ylim(0, None)
        panel.set_title(f"{name.replace('_', ' ')}, {'MiB' if unit == 'bytes' else unit}", fontsize=8)
        panel.tick_params(labelsize=7)
    figure.savefig(to, dpi=110)


def neighbours(result: Mapping[str, Any], to: Path) -> None:
    """A bar for each storm of `neighbours.py`: p99 of the neighbour's commits, median of the rounds, with least and
    most; and lines at that of the neighbour alone and at what is promised beside a storm."""
    alone = result["alone"]["p99_ms"]
    found = {"alone": alone, **{name: of["p99_ms"] for name, of in result["storms"].items()}}
    middle = [figure["median"] for figure in found.values()]
    around = [
        [at - figure["min"] for at, figure in zip(middle, found.values(), strict=True)],
        [figure["max"] - at for at, figure in zip(middle, found.values(), strict=True)],
    ]
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    axes.barh(list(found), middle, xerr=around, height=0.6)
    axes.axvline(alone["median"], color="tab:gray", linewidth=0.8, linestyle="--")
    promised = alone["median"] * result["most_ratio"]
    axes.axvline(
        promised, color="tab:red", linewidth=0.8, linestyle="--", label=f"{result['most_ratio']:g} times alone"
    )
    axes.invert_yaxis()
    axes.set(xlabel="99th percentile of the quiet neighbour's commits, ms", xlim=(0, None))
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(to, dpi=110)
