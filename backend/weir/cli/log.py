"""`weir log`: what the safekeepers' directories hold of a branch, with everything else down.

The program `weir-log` reads them (storage/crates/log-tool). Here is what it needs to know of the installation: where
the directories are, and which timeline a branch is.
"""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation

if TYPE_CHECKING:
    from weir.config import Settings

_TIMELINE_ID = re.compile(r"[0-9a-fA-F]{32}")
_LISTING_SECONDS = 60
_NOTHING_FOUND = (0, 1)


class CannotLookError(CliError):
    """Nothing could be looked at, which says nothing about the logs."""

    exit_code = 2


def log(home: Path, command: str, branch: str | None, *, as_json: bool) -> int:
    """Run a command of `weir-log` (`list`, `show`, `verify`) on the installation's safekeepers; it prints the answer.

    Returns its exit code: 0 nothing is wrong, 1 something is, 2 it could not be looked at. Raises CannotLookError
    when there is no installation or no program, or when it can't be told which timeline is meant.
    """
    installation = _load(home)
    words = [str(_program(installation)), command, *(["--json"] if as_json else [])]
    if branch is not None:
        is_timeline = _TIMELINE_ID.fullmatch(branch)
        words += ["--timeline", branch if is_timeline else timeline_of(installation, branch)]
    sys.stdout.flush()
    done = subprocess.run([*words, *map(str, installation.safekeeper_dirs)], check=False)
    return done.returncode if done.returncode in _NOTHING_FOUND else CannotLookError.exit_code


def _load(home: Path) -> Installation:
    try:
        installation = installations.load(home)
    except CliError as error:
        raise CannotLookError(
            f"{error}\nWithout an installation, give the safekeepers' directories to the program itself: "
            "weir-log verify --timeline ID DIRECTORY..."
        ) from None
    if installation.is_simulated:
        raise CannotLookError("This installation's storage is a model; there are no logs.")
    return installation


def _program(installation: Installation) -> Path:
    program = installation.bin_dir / "weir-log"
    if not program.is_file():
        raise CannotLookError(f"The program {program} is missing; `make setup` builds it.")
    return program


def timeline_of(installation: Installation, branch: str) -> str:
    """The timeline of a branch by its id or name, from the metadata database. Raises CannotLookError when it does not
    answer, knows no such branch, or knows several."""
    # Late, here and below, so that a timeline's id needs nothing that speaks with the database.
    from weir.config import get_settings  # noqa: PLC0415

    try:
        # What the control plane reads from its environment: the same as its processes do.
        os.environ.update(installation.environment())
        found = asyncio.run(branches_called(get_settings(), branch))
    except OSError as error:
        raise _say_what_to_give(
            installation, f"The metadata database can't be asked for {branch!r}: {error}."
        ) from None
    if not found:
        raise _say_what_to_give(installation, f"There is no branch {branch!r}.")
    if len(found) > 1:
        rows = "\n".join(f"  {identifier}  of project {project}" for identifier, project, _ in found)
        raise CannotLookError(f"Several branches are called {branch!r}; give one's id:\n{rows}")
    return found[0][2]


async def branches_called(settings: "Settings", branch: str) -> list[tuple[str, str, str]]:
    """Ids, projects and timelines of branches with this id or name; deleted ones only when there are no others.
    Raises OSError when the database does not answer."""
    from sqlalchemy import or_, select  # noqa: PLC0415
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    from weir.branches.models import Branch  # noqa: PLC0415
    from weir.db import Database  # noqa: PLC0415

    database = Database(settings)
    try:
        async with database.transaction() as session:
            found = (
                await session.scalars(select(Branch).where(or_(Branch.id == branch, Branch.name == branch)))
            ).all()
    except DBAPIError as error:
        raise OSError(str(error.orig).strip()) from None
    finally:
        await database.close()
    alive = [row for row in found if row.deleted_at is None]
    return [(row.id, row.project_id, row.timeline_id) for row in alive or found]


def _say_what_to_give(installation: Installation, what_happened: str) -> CannotLookError:
    command = [str(_program(installation)), "list", *map(str, installation.safekeeper_dirs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LISTING_SECONDS, check=False)
        held = (done.stdout + done.stderr).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        held = str(error)
    return CannotLookError(
        f"{what_happened} A timeline's id needs no database. The safekeepers' directories hold these timelines:\n"
        f"{click.style(held or 'none', bold=True)}"
    )
