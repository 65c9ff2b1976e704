"""Promise: a linter has nothing to say of the Dockerfiles (dockerfile-utils, which editors use)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

DOCKER = Path(__file__).resolve().parents[1]
LINTER = DOCKER.parent / "e2e/node_modules/.bin/dockerfile-utils"
DOCKERFILES = sorted([DOCKER / "Dockerfile", *DOCKER.glob("*.Dockerfile")])


def complaints(path: Path) -> str:
    """What the linter says of a Dockerfile; empty where it says nothing. It ends with 1 when it complains."""
    assert LINTER.exists(), "run `make setup`: the linter is one of e2e's npm packages"
    done = subprocess.run([LINTER, "lint", path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_is_as_the_linter_wants_it(path: Path) -> None:
    assert complaints(path) == ""


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian\nMAINTAINER somebody\n",
        "FROM debian AS one\nFROM debian AS one\n",
        "FROM debian\nCMD true\nCMD false\n",
        "FROM debian\nEXPOSE all\n",
        "FROM debian\nSHELL /bin/sh\n",
    ],
)
def test_the_linter_complains_of_what_is_wrong(text: str, tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(text)
    assert complaints(broken)
