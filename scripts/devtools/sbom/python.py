"""Python packages, as `uv.lock` has them; their licences, as the installed packages state them."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .part import Part, Use

# Classifiers of packages of before licence expressions.
CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT No Attribution License (MIT-0)": "MIT-0",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "License :: OSI Approved :: Historical Permission Notice and Disclaimer (HPND)": "HPND",
}


# What packages write in place of an expression.
WORDS = {"3-Clause BSD License": "BSD-3-Clause"}


def parts(root: Path) -> list[Part]:
    return read(tomllib.loads((root / "uv.lock").read_text()), licence)


def read(lock: dict[str, Any], licence_of: Callable[[str], str]) -> list[Part]:
    """`licence_of` gets a package's name."""
    # A package has several versions where another Python needs another one.
    packages: dict[str, list[dict[str, Any]]] = {}
    for package in lock["package"]:
        packages.setdefault(package["name"], []).append(package)
    members = set(lock["manifest"]["members"])
    runtime = _reached(packages, members)
    found: list[Part] = []
    for package in lock["package"]:
        name = package["name"]
        if name in members:
            continue
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        found.append(
            Part(
                "pypi",
                name,
                package["version"],
                use=Use.RUN if name in runtime else Use.BUILD,
                licence=licence_of(name),
                hashes=frozenset(file["hash"].removeprefix("sha256:") for file in files),
                used_by=frozenset({"control plane"}),
            )
        )
    return found


def _reached(packages: dict[str, list[dict[str, Any]]], roots: set[str]) -> set[str]:
    """What the roots need without groups for development; extras of a package count as the package."""
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in packages:
            continue
        seen.add(name)
        for package in packages[name]:
            extras = package.get("optional-dependencies", {}).values()
            needed = [*package.get("dependencies", []), *(entry for extra in extras for entry in extra)]
            waiting += [entry["name"] for entry in needed]
    return seen


def licence(name: str) -> str:
    """What the installed package says, of several locked versions the one for this Python; empty
    when it is not installed, or says nothing that is clear.
    """
    try:
        stated = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    expression = (stated.get_all("License-Expression") or [""])[0]
    if expression:
        return str(expression)
    known = [CLASSIFIERS[line] for line in stated.get_all("Classifier") or [] if line in CLASSIFIERS]
    if known:
        return " OR ".join(dict.fromkeys(known))
    words = (stated.get_all("License") or [""])[0].strip()
    return WORDS.get(words, words if "\n" not in words and len(words) < 60 else "")
