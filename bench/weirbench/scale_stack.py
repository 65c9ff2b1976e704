"""A Weir of the benchmark's own: `weir up` in a temporary directory, on its own ports; with the simulated runtime for
scale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from weir.cli import installation as installations

from .api import Weir

WEIR = Path(sys.executable).parent / "weir"


@dataclass(frozen=True)
class ScaleStack:
    home: Path
    environment: dict[str, str]

    def weir(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(WEIR), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )

    @property
    def installation(self) -> installations.Installation:
        return installations.load(self.home)

    def pid(self, service: str) -> int:
        processes = json.loads(self.weir("status", "--json").stdout)["processes"]
        return next(int(entry["pid"]) for entry in processes if entry["name"] == service)

    def api(self) -> Weir:
        return Weir(self.installation.api_url, self.installation.api_key_file.read_text().strip(), timeout=120)


@contextmanager
def running(stack: ScaleStack) -> Generator[ScaleStack]:
    """Up, and down afterwards. Raises RuntimeError with what `weir up` said where it does not come up; what does not
    go down cleanly is said on stderr."""
    try:
        result = stack.weir("up")
        if result.returncode != 0:
            raise RuntimeError(f"weir up failed:\n{result.stdout}{result.stderr}")
        yield stack
    finally:
        result = stack.weir("down", "--immediate")
        if result.returncode != 0:
            sys.stderr.write(f"weir down left something behind:\n{result.stdout}{result.stderr}\n")


@contextmanager
def simulated_weir(port_base: int, seed: int, scrape_seconds: int) -> Generator[ScaleStack]:
    """Up, and gone afterwards with its directory. When it does not come up or go down cleanly the error says so."""
    # Below /tmp with a short name: Postgres runs unprivileged, and sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="weir-scale-", dir="/tmp"))
    folder.chmod(0o711)
    home = folder / "home"
    # What stays in the environment overrides weir.toml, in this process too.
    os.environ["WEIR_COMPUTE_RUNTIME"] = "simulated"
    os.environ["WEIR_SCRAPE_INTERVAL_SECONDS"] = str(scrape_seconds)
    stack = ScaleStack(home, {**os.environ, "WEIR_HOME": str(home)})
    try:
        installation = installations.create(home, port_base)
        with installation.config_file.open("a") as file:
            file.write(f"\n[simulated]\nseed = {seed}\n")
        with running(stack):
            yield stack
    finally:
        shutil.rmtree(folder, ignore_errors=True)
