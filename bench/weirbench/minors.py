"""A second minor of Postgres, where set-up puts one, and making it available to an installation."""

from __future__ import annotations

import os
from pathlib import Path

from weir import postgres_versions
from weir.config import Settings
from weir_workflows.runtime.servers import Servers

CACHE = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache" / "weir"))
INSTALLED = Path("/usr/lib/postgresql/15/bin")


def other_minor() -> tuple[str, Path] | None:
    """A tested minor that is not the installed one, and its programs; None when set-up has put none in the cache."""
    installed = postgres_versions.of_programs(INSTALLED)
    for versions in postgres_versions.TESTED.values():
        for version in versions:
            programs = CACHE / f"postgres-{version}" / "bin"
            if version != installed and postgres_versions.of_programs(programs) == version:
                return version, programs
    return None


def copy_into(home: Path, programs: Path) -> None:
    """As if that minor had been installed and copied before: computes of the installation can be started on it."""
    settings = Settings(home=home, pg_bin_dir=programs)
    Servers(settings).copy_installed()
