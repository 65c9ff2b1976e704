"""What a whole run of the tests ran on and how it ended: one line a run in `tests.jsonl` of the cache.

The file outlives checkouts, so that it can be asked whether a tree has ever passed, and on which Postgres.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from . import servers, system
from .paths import CACHE, REPO
from .run import capture

HISTORY = CACHE / "tests.jsonl"


@dataclass(frozen=True)
class Checkout:
    """The tree that is tested: git's id of HEAD's tree, and whether the files on disk are that tree's."""

    tree: str | None
    clean: bool


@dataclass(frozen=True)
class Run:
    """`at`: RFC 3339, when the run ended. `minors`: the newest server of each major that the tests had."""

    at: str
    tree: str | None
    clean: bool
    outcome: str
    failed: list[str]
    minors: dict[str, str]
    seconds: float


def checkout() -> Checkout:
    """Read before the tests begin: what is changed while they run is not what they prove."""
    changes = capture(("git", "-C", REPO, "status", "--porcelain"))
    return Checkout(capture(("git", "-C", REPO, "rev-parse", "HEAD^{tree}")), changes == "")


def minors() -> dict[str, str]:
    """The newest minor by major, such as `{"15": "15.20"}`: of the system's server, on which computes run, and of
    those that are installed beside it for tests of redo."""
    found = {"15": system.postgres_minor()}
    for server in (server for server in servers.SERVERS if server.newest):
        said = capture((server.home / "bin/postgres", "--version"))
        version = system.version_of(said) if said else None
        found[str(server.major)] = f"{version[0]}.{version[1]}" if version else None
    return {major: minor for major, minor in found.items() if minor is not None}


def append(run: Run) -> None:
    HISTORY.parent.mkdir(parents=True, exist_ok=True)
    with HISTORY.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")
