"""The WAL that safekeepers have stored, as files, and what a disk may do to it."""

from __future__ import annotations

from pathlib import Path

from harness import Engine, Timeline

SEGMENT_BYTES = 16 << 20


def segment(running: Engine, number: int, timeline: Timeline, place: int) -> Path:
    """The file that has this position on a safekeeper; `number` counts from 0."""
    at = place // SEGMENT_BYTES
    name = f"00000001{at // 256:08X}{at % 256:08X}"
    return running.root / f"safekeeper-{number + 1}" / timeline.tenant / timeline.id / name


def flip(running: Engine, number: int, timeline: Timeline, place: int) -> None:
    """Changes one bit of the byte at this position; again: puts it back."""
    with segment(running, number, timeline, place).open("r+b") as file:
        file.seek(place % SEGMENT_BYTES)
        (byte,) = file.read(1)
        file.seek(place % SEGMENT_BYTES)
        file.write(bytes([byte ^ 0x20]))
