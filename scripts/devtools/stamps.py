"""Stamps: a step whose inputs have not changed since it last succeeded is not done again.

A stamp is the hash of a step's inputs, kept with the checkout it belongs to. Inputs are compared by content,
because a fresh clone gives every file a new time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from .paths import REPO

STAMPS = REPO / ".ledger" / "stamps"
IGNORED = {"node_modules", "dist", "__pycache__", ".git", "target", ".ledger"}


def files_below(*roots: Path) -> list[Path]:
    found: list[Path] = []
    for root in roots:
        if root.is_file():
            found.append(root)
        elif root.is_dir():
            found.extend(
                path
                for path in root.rglob("*")
                if path.is_file() and IGNORED.isdisjoint(part for part in path.relative_to(root).parts)
            )
    return sorted(set(found))


def digest(paths: Iterable[Path], *facts: str) -> str:
    hasher = hashlib.sha256()
    for fact in facts:
        hasher.update(fact.encode() + b"\0")
    for path in paths:
        hasher.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()


def is_current(name: str, value: str) -> bool:
    stamp = STAMPS / name
    return stamp.is_file() and stamp.read_text() == value


def set_current(name: str, value: str) -> None:
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / name).write_text(value)
