"""Crates of the storage engine, as Cargo resolves them from `storage/Cargo.lock`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from devtools.run import StepError, capture

from .part import Part, Use

# Programs of the workspace that only tests and measurements use.
TOOLS = frozenset({"sim", "protocol-model", "test-ports"})


def parts(workspace: Path, programs: Collection[str] = ()) -> list[Part]:
    """Of all programs of the workspace, or of those named alone. Fails when Cargo cannot read the workspace, or its
    lock file does not fit."""
    command = ("cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", workspace / "Cargo.toml")
    output = capture(command)
    if output is None:
        raise StepError(f"Cargo could not list the crates of {workspace}: run `{' '.join(map(str, command))}`")
    lock = tomllib.loads((workspace / "Cargo.lock").read_text())
    found = read(json.loads(output), lock, programs)
    return [part for part in found if part.use is Use.RUN] if programs else found


def read(metadata: dict[str, Any], lock: dict[str, Any], programs: Collection[str] = ()) -> list[Part]:
    """What `cargo metadata` says, with the checksums of `Cargo.lock`. What people run is what `programs` reach, or,
    where none are named, all that are no tools of tests."""
    sums = {(it["name"], it["version"]): it["checksum"] for it in lock["package"] if "checksum" in it}
    own = set(metadata["workspace_members"])
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    roots = _makers(metadata, own, programs) if programs else {it for it in own if names[it] not in TOOLS}
    shipped = _reached(edges, roots, kinds={None})
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


def _makers(metadata: dict[str, Any], own: set[str], programs: Collection[str]) -> set[str]:
    """The crates of the workspace that make these programs. Raises ValueError where one is made by none."""
    makers = {
        target["name"]: package["id"]
        for package in metadata["packages"]
        if package["id"] in own
        for target in package["targets"]
        if "bin" in target["kind"]
    }
    unknown = set(programs) - makers.keys()
    if unknown:
        raise ValueError(f"no crate of the workspace makes {', '.join(sorted(unknown))}")
    return {makers[program] for program in programs}


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
