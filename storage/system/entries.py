"""Entries of relations that are gone: what layers say of a size that ended, and of truncations."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Engine, Timeline


def entries(engine: Engine, timeline: Timeline) -> set[str]:
    """The keys of tombstones of relations' sizes, and of truncations, in all layers that the object store has of the
    timeline; a relation that is there has one of the latter where it was truncated."""
    found: set[str] = set()
    for layer in _layers(engine.root / "objects" / timeline.tenant / timeline.id):
        tool = [str(engine.bin_dir / "weir-pageserver"), "layer", "dump"]
        command = [*tool, "--versions", "--key", "of rel", str(layer)]
        shown = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
        if shown.returncode != 0 and layer.exists():
            raise RuntimeError(f"{layer} can't be read: {shown.stderr}")
        for line in shown.stdout.splitlines():
            key, _, what = (part.strip() for part in line.split("|"))
            if key.startswith("truncations of rel") or what == "tombstone":
                found.add(key)
    return found


def _layers(folder: Path) -> list[Path]:
    return [file for file in (folder / "layers").glob("*") if file.is_file()]
