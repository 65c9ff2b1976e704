"""Libraries that stand between a program and the kernel, by LD_PRELOAD: built where a test runs, from C."""

from __future__ import annotations

import subprocess
from pathlib import Path


def library(folder: Path, name: str, source: str) -> Path:
    """The shared library `name` made of `source`, built in `folder` once."""
    code, built = folder / f"{name}.c", folder / f"{name}.so"
    if not built.exists():
        code.write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(code)], check=True)
    return built


def together(*environments: dict[str, str]) -> dict[str, str]:
    """One environment with all of them, whose libraries are all loaded."""
    merged: dict[str, str] = {}
    for environment in environments:
        merged |= environment
    libraries = {one["LD_PRELOAD"]: None for one in environments if "LD_PRELOAD" in one}
    return merged | ({"LD_PRELOAD": ":".join(libraries)} if libraries else {})
