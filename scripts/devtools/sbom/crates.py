"""Crates of the storage engine, as Cargo resolves them from `storage/Cargo.lock`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devtools.run import StepError, capture

from .part import Part, Use

# Programs of the workspace that only tests and measurements use.
TOOLS = frozenset({"sim", "protocol-model", "test-ports"})


def parts(workspace: Path) -> list[Part]:
    """Fails when Cargo cannot read the workspace, or its lock file does not fit."""
    command = ("cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", workspace / "Cargo.toml")
    output = capture(command)
    if output is None:
        raise StepError(f"Cargo could not list the crates of {workspace}: run `{' '.join(map(str, command))}`")
    lock = tomllib.loads((workspace / "Cargo.lock").read_text())
    return read(json.loads(output), lock)


def read(metadata: dict[str, Any], lock: dict[str, Any]) -> list[Part]:
    """What `cargo metadata` says, with the checksums of `Cargo.lock`."""
    sums = {(it["name"], it["version"]): it["checksum"] for it in lock["package"] if "checksum" in it}
    own = set(metadata["workspace_members"])
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    shipped = _reached(edges, {member for member in own if names[member] not in TOOLS}, kinds={None})
    found: list[Part] = []
    for package in metadata["packages"]:
        if package["id"] in own:
            continue
        total = sums.get((package["name"], package["version"]))
        found.append(
            Part(
                "cargo",
                package["name"],
                package["version"],
                use=Use.RUN if package["id"] in shipped else Use.BUILD,
                # Crates of before SPDX expressions part alternatives by a slash.
                licence=(package.get("license") or "").replace("/", " OR "),
                hashes=frozenset({total} if total else ()),
                used_by=frozenset({"storage"}),
            )
        )
    return found


def _reached(edges: dict[str, list[dict[str, Any]]], roots: Iterable[str], kinds: set[str | None]) -> set[str]:
    """Every crate that the roots reach over dependencies of these kinds; `None` is the normal kind."""
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        crate = waiting.pop()
        if crate in seen:
            continue
        seen.add(crate)
        waiting += [edge["pkg"] for edge in edges[crate] if any(kind["kind"] in kinds for kind in edge["dep_kinds"])]
    return seen
