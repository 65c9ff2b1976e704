"""Packages of npm, as a `package-lock.json` of version 3 has them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from .part import Part, Use


def parts(folder: Path, used_by: str, *, ships: bool) -> list[Part]:
    """`ships`: whether what is not for development becomes part of what people run."""
    return read(json.loads((folder / "package-lock.json").read_text()), used_by, ships=ships)


def read(lock: dict[str, Any], used_by: str, *, ships: bool) -> list[Part]:
    if lock["lockfileVersion"] != 3:
        raise ValueError(
            f"a package-lock.json of version {lock['lockfileVersion']}, expected 3: renew it with npm 7 or newer"
        )
    found: list[Part] = []
    for place, package in lock["packages"].items():
        if not place or package.get("link"):
            continue
        develops = package.get("dev") or package.get("devOptional") or not ships
        found.append(
            Part(
                "npm",
                package.get("name") or place.rpartition("node_modules/")[2],
                package["version"],
                use=Use.BUILD if develops else Use.RUN,
                licence=_licence(package.get("license", "")),
                hashes=_hashes(package.get("integrity", "")),
                used_by=frozenset({used_by}),
            )
        )
    return found


def _licence(stated: Any) -> str:
    return stated if isinstance(stated, str) and not stated.startswith("SEE ") else ""


def _hashes(integrity: str) -> frozenset[str]:
    """Subresource integrity (https://www.w3.org/TR/SRI/): `sha512-` and base64, several parted by spaces."""
    sums = (one.partition("-") for one in integrity.split())
    return frozenset(base64.b64decode(text).hex() for kind, _, text in sums if kind in {"sha256", "sha512"})
