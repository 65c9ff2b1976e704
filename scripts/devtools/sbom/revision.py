"""Which commit of a checkout a bill of materials is of."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from devtools.run import capture


def of(root: Path) -> tuple[str, datetime]:
    """The commit that is checked out, and when it was made; "unknown" and 1970 where Git does not say."""
    commit = (capture(("git", "-C", root, "rev-parse", "HEAD")) or "unknown").strip()
    when = (capture(("git", "-C", root, "show", "-s", "--format=%cI", "HEAD")) or "").strip()
    return commit, datetime.fromisoformat(when) if when else datetime.fromtimestamp(0).astimezone()
