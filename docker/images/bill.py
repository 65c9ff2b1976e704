"""What others wrote in an image, read from its files: Debian's packages, Python's, the modules of Go's programs, the
crates of the engine's programs that it has, and the console's npm packages."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from email.parser import HeaderParser
from pathlib import Path

from devtools.paths import FRONTEND, REPO, STORAGE
from devtools.sbom import crates, npm, programs, python, revision
from devtools.sbom.document import document
from devtools.sbom.part import Part, Use, merged

_PYTHON = "opt/weir/lib/python3*/site-packages/*.dist-info/METADATA"
_CONSOLE = "usr/share/weir/console/index.html"
_PROGRAMS = "usr/local/bin"


def write(root: Path, image: str, path: Path, engine: Collection[str] = ()) -> int:
    """Writes the CycloneDX 1.6 document of the image whose files are below `root`; how many packages it names.
    `engine`: the names of all programs of the engine."""
    parts = merged([*debian(root), *python_packages(root), *_go(root), *_crates(root, engine), *_console(root)])
    path.write_text(document(parts, *revision.of(REPO), f"weir/{image}"))
    return len(parts)


def debian(root: Path) -> list[Part]:
    """The packages that dpkg's status file says are installed, by name, version and architecture."""
    status = root / "var/lib/dpkg/status"
    found: list[Part] = []
    for entry in status.read_text().split("\n\n") if status.exists() else []:
        fields = HeaderParser().parsestr(entry)
        if fields["Status"] == "install ok installed":
            found.append(Part("deb", f"debian/{fields['Package']}", fields["Version"], Use.RUN))
    return found


def python_packages(root: Path) -> list[Part]:
    """The installed ones, with the hashes of the lock file. Raises ValueError for one that the lock file lacks."""
    locked = {part.key: part for part in python.parts(REPO)}
    found: list[Part] = []
    for metadata in root.glob(_PYTHON):
        fields = HeaderParser().parsestr(metadata.read_text(errors="replace"))
        key = ("pypi", fields["Name"].lower().replace("_", "-").replace(".", "-"), fields["Version"])
        if key[1].startswith("weir"):
            continue
        if key not in locked:
            raise ValueError(f"{key[1]} {key[2]} is installed in the image, and uv.lock does not have it")
        found.append(locked[key])
    return found


def _go(root: Path) -> list[Part]:
    found: list[Part] = []
    for program in (root / _PROGRAMS).iterdir():
        said = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True, check=False)
        found += programs.modules_of(program.name, Use.RUN, said.stdout)
    return found


def _crates(root: Path, engine: Collection[str]) -> list[Part]:
    ours = [name for name in engine if (root / _PROGRAMS / name).exists()]
    return crates.parts(STORAGE, ours) if ours else []


def _console(root: Path) -> list[Part]:
    if not (root / _CONSOLE).exists():
        return []
    return [part for part in npm.parts(FRONTEND, "console", ships=True) if part.use is Use.RUN]
