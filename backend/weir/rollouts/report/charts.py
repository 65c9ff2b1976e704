"""Charts of a report as inline SVG. Every text goes through `Markup.format`, which escapes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from weir.rollouts.report import format as text

WIDTH = 700
# Told apart by lightness as well as hue, so that they survive a grey print.
IMAGE, REST, LINE, SHADE, AXIS = "#c2620c", "#1f4e99", "#0b6e4f", "#eceff3", "#5b6472"
_BAR, _GAP, _LEFT, _RIGHT = 15, 4, 168, 92


@dataclass(frozen=True)
class BarPair:
    """WAL bytes a transaction, before and after: (images, the rest), None where it was not measured."""

    name: str
    before: tuple[float | None, float | None]
    after: tuple[float | None, float | None]


@dataclass(frozen=True)
class Course:
    """One compute across its switch: seconds since the epoch and figures at them, None in gaps."""

    name: str
    times: Sequence[float]
    image: Sequence[float | None]
    rest: Sequence[float | None]
    commit_p99: Sequence[float | None]
    baseline: tuple[float, float]
    after: tuple[float, float]
    switched: float | None
    # What controls foretell of WAL and commit p99; empty where there were none.
    expected_wal: Sequence[float | None] = ()
    expected_commit_p99: Sequence[float | None] = ()


def bars(pairs: Sequence[BarPair]) -> Markup:
    """A bar before and a bar after for each name, images and the rest stacked."""
    most = max((sum(part or 0.0 for part in side) for pair in pairs for side in (pair.before, pair.after)), default=0)
    scale = (WIDTH - _LEFT - _RIGHT) / (most or 1)
    parts: list[Markup] = []
    y = 6
    for pair in pairs:
        parts.append(
            Markup('<text x="0" y="{}" class="name">{}</text>').format(y + _BAR, text.shortened(pair.name, 22))
        )
        for label, side in (("before", pair.before), ("after", pair.after)):
            parts.append(_stacked(label, side, y, scale))
            y += _BAR + _GAP
        y += 8
    parts.append(Markup('<line x1="{}" y1="0" x2="{}" y2="{}" class="axis"/>').format(_LEFT, _LEFT, y - 6))
    return _svg(y + 2, "WAL bytes a transaction before and after the switch", parts)


def _stacked(label: str, side: tuple[float | None, float | None], y: int, scale: float) -> Markup:
    image, rest = side
    named = Markup('<text x="{}" y="{}" class="tick end">{}</text>').format(_LEFT - 6, y + _BAR - 3, label)
    if image is None or rest is None:
        return named + Markup('<text x="{}" y="{}" class="tick">not measured</text>').format(_LEFT + 6, y + _BAR - 3)
    first, second = image * scale, rest * scale
    return named + Markup(
        '<rect x="{x:.1f}" y="{y}" width="{first:.1f}" height="{h}" fill="{image}"/>'
        '<rect x="{mid:.1f}" y="{y}" width="{second:.1f}" height="{h}" fill="{rest}"/>'
        '<text x="{end:.1f}" y="{base}" class="tick">{total}</text>'
    ).format(
        x=_LEFT, y=y, first=first, h=_BAR, image=IMAGE, mid=_LEFT + first, second=max(second, 0.5), rest=REST,
        end=_LEFT + first + second + 5, base=y + _BAR - 3, total=text.size(image + rest),
    )  # fmt: skip


def course(one: Course) -> Markup:
    """WAL bytes/s as stacked areas above, commit p99 as a line below; both windows shaded, the switch marked."""
    if len(one.times) < 2:
        return Markup('<p class="quiet">No series was kept of this compute.</p>')
    left, right, top, upper, lower = 74, 12, 16, 110, 70
    start, end = one.times[0], one.times[-1]
    panels = _Panels(left, WIDTH - right, start, end)
    parts = [
        panels.shade(one.baseline, top, upper + lower + 22, "baseline"),
        panels.shade(one.after, top, upper + lower + 22, "after"),
    ]
    total = [None if a is None or b is None else a + b for a, b in zip(one.image, one.rest, strict=True)]
    most = max((value for value in [*total, *one.expected_wal] if value is not None), default=0.0) or 1.0
    parts += [
        panels.area(one.times, total, top, upper, most, IMAGE),
        panels.area(one.times, one.rest, top, upper, most, REST),
        panels.line(one.times, one.expected_wal, top, upper, most, AXIS, "expected"),
        panels.scale(top, upper, text.rate(most), "WAL"),
    ]
    below = top + upper + 22
    latencies = [*one.commit_p99, *one.expected_commit_p99]
    worst = max((value for value in latencies if value is not None), default=0.0) or 0.001
    parts += [
        panels.line(one.times, one.commit_p99, below, lower, worst),
        panels.line(one.times, one.expected_commit_p99, below, lower, worst, LINE, "expected"),
        panels.scale(below, lower, text.duration(worst), "commit p99"),
    ]
    if one.switched is not None and start <= one.switched <= end:
        parts.append(panels.mark(one.switched, top, below + lower - top))
    bottom = below + lower + 14
    parts.append(Markup('<text x="{}" y="{}" class="tick">{}</text>').format(left, bottom, _clock(start)))
    parts.append(
        Markup('<text x="{}" y="{}" class="tick end">{} UTC</text>').format(WIDTH - right, bottom, _clock(end))
    )
    return _svg(bottom + 4, f"WAL and commit latency of {one.name} across the switch", parts)


class _Panels:
    """A time axis from `left` to `right`, shared by panels below each other."""

    def __init__(self, left: float, right: float, start: float, end: float) -> None:
        self._left, self._right, self._start, self._span = left, right, start, max(end - start, 1e-9)

    def x(self, at: float) -> float:
        share = min(1.0, max(0.0, (at - self._start) / self._span))
        return self._left + share * (self._right - self._left)

    def shade(self, window: tuple[float, float], top: float, height: float, name: str) -> Markup:
        x, width = self.x(window[0]), self.x(window[1]) - self.x(window[0])
        return Markup(
            '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}"/>'
            '<text x="{:.1f}" y="{}" class="tick middle">{}</text>'
        ).format(x, top, width, height, SHADE, x + width / 2, top - 4, name)

    def area(
        self,
        times: Sequence[float],
        values: Sequence[float | None],
        top: float,
        height: float,
        most: float,
        fill: str,
    ) -> Markup:
        """Gaps stay gaps."""
        floor = top + height
        drawn = Markup()
        for run in _runs(times, values):
            points = " ".join(f"{self.x(at):.1f},{floor - value / most * height:.1f}" for at, value in run)
            drawn += Markup('<polygon points="{:.1f},{} {} {:.1f},{}" fill="{}"/>').format(
                self.x(run[0][0]), floor, points, self.x(run[-1][0]), floor, fill
            )
        return drawn

    def line(
        self,
        times: Sequence[float],
        values: Sequence[float | None],
        top: float,
        height: float,
        most: float,
        stroke: str = LINE,
        look: str = "measured",
    ) -> Markup:
        """Nothing for no values at all."""
        drawn = Markup()
        for run in _runs(times, values) if values else []:
            points = " ".join(f"{self.x(at):.1f},{top + height - value / most * height:.1f}" for at, value in run)
            drawn += Markup('<polyline points="{}" class="{}" stroke="{}"/>').format(points, look, stroke)
        return drawn

    def scale(self, top: float, height: float, most: str, name: str) -> Markup:
        return Markup(
            '<line x1="{left}" y1="{floor}" x2="{right}" y2="{floor}" class="axis"/>'
            '<text x="{label}" y="{high}" class="tick end">{most}</text>'
            '<text x="{label}" y="{floor}" class="tick end">0</text>'
            '<text x="{label}" y="{middle}" class="tick end">{name}</text>'
        ).format(
            left=self._left, right=self._right, floor=top + height, label=self._left - 6, high=top + 9,
            middle=top + height / 2 + 5, most=most, name=name,
        )  # fmt: skip

    def mark(self, at: float, top: float, height: float) -> Markup:
        x = self.x(at)
        return Markup(
            '<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{end}" class="switch"/>'
            '<text x="{x:.1f}" y="{name}" class="tick middle strong">switch</text>'
        ).format(x=x, top=top, end=top + height, name=top - 4)


def _runs(times: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(times, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if len(run) > 1]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _svg(height: float, title: str, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(WIDTH, height, title, Markup().join(parts))
