"""Lines by which somebody watches a measurement while it goes on."""

from __future__ import annotations

import time

_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Prints the line at once, behind the seconds since the program began."""
    print(f"[{time.monotonic() - _BEGAN:5.0f}s] {text}", flush=True)
