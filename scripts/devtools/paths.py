"""Where things are: the checkout, and the cache that every checkout of one user shares."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache" / "weir"))

BIN = CACHE / "bin"
LOGS = CACHE / "log"
UV_HOME = CACHE / "uv-venv"
UV = UV_HOME / "bin" / "uv"
VENV = CACHE / "venv"
CARGO_TARGET = CACHE / "target"
RELEASE = CARGO_TARGET / "release"
NPM_CACHE = CACHE / "npm"

STORAGE = REPO / "storage"
FRONTEND = REPO / "frontend"
E2E = REPO / "e2e"
IDENTITY_PROVIDER = REPO / "backend" / "tests" / "oidc_provider"
TERRAFORM = REPO / "terraform"

PG_BIN = Path(os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"))


def tool_environment() -> dict[str, str]:
    """The environment in which every build and test step runs, so that all of them use one cache."""
    environment = dict(os.environ)
    environment.update(
        CARGO_TARGET_DIR=str(CARGO_TARGET),
        UV_PROJECT_ENVIRONMENT=str(VENV),
        npm_config_cache=str(NPM_CACHE),
        npm_config_update_notifier="false",
        npm_config_fund="false",
        npm_config_audit="false",
        PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD="1",
        GOTOOLCHAIN="local",
        WEIR_BIN_DIR=str(RELEASE),
        WEIR_PG_BIN_DIR=str(PG_BIN),
        WEIR_TOOLS_DIR=str(BIN),
    )
    environment["PATH"] = os.pathsep.join([str(VENV / "bin"), str(BIN), environment.get("PATH", "")])
    return environment
