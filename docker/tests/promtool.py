"""Prometheus's own tool on files that a test makes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs it. It comes with Debian's package `prometheus`, which set-up installs."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("promtool is missing; it is in Debian's package prometheus, which `make setup` installs")
    return subprocess.run(
        [program, *(str(word) for word in words)], capture_output=True, text=True, check=False, timeout=180
    )


def unit_tests(
    path: Path, rules: Sequence[Path], tests: Sequence[dict[str, Any]]
) -> subprocess.CompletedProcess[str]:
    """`promtool test rules` on these rule files, with a file at `path` (JSON is YAML)."""
    document = {"rule_files": [str(rule) for rule in rules], "evaluation_interval": "30s", "tests": list(tests)}
    path.write_text(json.dumps(document, indent=1))
    return promtool("test", "rules", path)
