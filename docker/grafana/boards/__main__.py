"""Writes dashboards/*.json; with --check says which of them are not as they would be written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boards.all import DASHBOARDS
from boards.panel import Dashboard, as_json

FOLDER = Path(__file__).resolve().parents[1] / "dashboards"


def files() -> dict[Path, str]:
    """What each file is to hold."""
    return {_path(board): json.dumps(as_json(board), indent=1) + "\n" for board in DASHBOARDS}


def _path(board: Dashboard) -> Path:
    return FOLDER / f"{board.uid.removeprefix('weir-')}.json"


def main() -> int:
    wanted = files()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    extra = [path for path in FOLDER.glob("*.json") if path not in wanted]
    if "--check" in sys.argv:
        for path in [*stale, *extra]:
            print(f"{path.name} is not what docker/grafana/boards says; run `python -m boards` in docker/grafana")
        return 1 if stale or extra else 0
    for path in stale:
        path.write_text(wanted[path])
        print(f"wrote {path}")
    for path in extra:
        path.unlink()
        print(f"removed {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
