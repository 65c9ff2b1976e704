"""In what two builds of one image differ: files (content, kind, mode, owner) and what the image says of itself."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Paths that may differ between two builds of one commit on one day, and why. docker/README.md says the same.
EXPECTED: Mapping[str, str] = {
    r"var/log/(apt/(history|term)\.log|dpkg\.log|alternatives\.log|fontconfig\.log)": "when packages were installed",
    r"var/cache/ldconfig/aux-cache": "inodes and times of libraries",
    r"etc/(shadow|shadow-|gshadow|gshadow-)": "the day on which a user was made",
    r"var/cache/debconf/config\.dat(-old)?": "the name of the machine that built",
    r".*\.pyc": "when the Python source was written",
    r"opt/weir/.*\.dist-info/(RECORD|uv_cache\.json|direct_url\.json)": "hashes and times of what was built",
}
# Of the configuration of an image.
_SAYS = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "User", "Volumes", "WorkingDir")


def files(root: Path) -> dict[str, str]:
    """Each path below `root` with what it is; times are left out, since copying a file makes a new one."""
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        about = path.lstat()
        kind = stat.S_IFMT(about.st_mode)
        content = ""
        if stat.S_ISREG(kind):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(kind):
            content = str(path.readlink())
        found[str(path.relative_to(root))] = f"{about.st_mode:o} {about.st_uid}:{about.st_gid} {content}"
    return found


def between(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Paths that one lacks, or that are not the same in both."""
    return sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))


def unexpected(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not any(re.fullmatch(pattern, path) for pattern in EXPECTED)]


def of_configurations(first: str, second: str) -> list[str]:
    """The settings that differ, of what `buildah inspect` said of each."""
    one, other = _configuration(first), _configuration(second)
    return [name for name in _SAYS if one.get(name) != other.get(name)]


def _configuration(said: str) -> dict[str, Any]:
    return json.loads(said)["OCIv1"]["config"]
