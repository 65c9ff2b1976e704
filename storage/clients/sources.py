"""What drivers' own tests are made of, fetched once and pinned by hashes, in ~/.cache/weir: an interpreter with the
drivers (`requirements.txt`), sources of Python (`sources.txt`), and modules of Go (the `go.sum` of who pins them).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
E2E = HERE.parents[1] / "e2e"
CACHE = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache" / "weir"))
UV = CACHE / "uv-venv" / "bin" / "uv"
# A driver that the proxy's own tests have a program for is the same here.
PINS = {"pgx": E2E / "clients" / "pgx"}
MOST_SECONDS = 900


def environment() -> Path:
    """Python with what the suites need, made again when the lock changes."""
    lock = HERE / "requirements.txt"
    home = CACHE / f"clients-{_digest(lock)}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        _must(UV, "venv", "--quiet", "--clear", "--python", sys.executable, home)
        _must(UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock)
        (home / "complete").touch()
    return python


def source(name: str) -> Path:
    """A source of `sources.txt`, unpacked; all are fetched again when that changes."""
    lock = HERE / "sources.txt"
    home = CACHE / f"clients-sources-{_digest(lock)}"
    if not (home / "complete").exists():
        home.mkdir(exist_ok=True)
        options = ("--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
        _must(environment(), "-m", "pip", "download", *options, "-d", home, "-r", lock)
        for archive in home.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(home, filter="data")
        (home / "complete").touch()
    return next(path for path in home.glob(f"{name}-[0-9]*") if path.is_dir() and (path / "PKG-INFO").is_file())


def module(go: Path, name: str, path: str) -> Path:
    """The module of this path as `PINS` has it, in a folder where its tests may write."""
    listed = _must(go, "mod", "download", "-json", path, cwd=PINS[name], GOFLAGS="-mod=readonly")
    found = json.loads(listed)
    target = CACHE / f"clients-go-{name}-{found['Version']}"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        # The cache's files cannot be written; a copy of the text alone can.
        shutil.copytree(found["Dir"], target, copy_function=shutil.copyfile)
        for folder, _, _ in os.walk(target):
            Path(folder).chmod(0o755)
        (target / "complete").touch()
    return target


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _must(*command: str | Path, cwd: Path | None = None, **more: str) -> str:
    """What it says. Raises CalledProcessError when it fails."""
    words = [str(word) for word in command]
    environment = {**os.environ, **more}
    done = subprocess.run(
        words, cwd=cwd, env=environment, check=True, timeout=MOST_SECONDS, stdout=subprocess.PIPE, text=True
    )
    return done.stdout
