"""`weir certificates`: by what the parts of an installation prove themselves to each other."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.output import note, table
from weir.cli.system import Process
from weir.tls import authority, parts
from weir.tokens.keys import KeyFileError


def _parts(installation: Installation) -> list[parts.Part]:
    return [*parts.services(installation.home, installation.safekeepers), *parts.computes(installation.home)]


def prepare(installation: Installation) -> None:
    """The CA and each part's certificate are there and good when this returns. Raises CliError."""
    if not installation.has_tls:
        return
    try:
        parts.tend(installation.home, _parts(installation))
    except (KeyFileError, OSError) as error:
        raise CliError(str(error)) from None


def unproven(installation: Installation) -> list[str]:
    """That parts of this installation take anybody's word for who they are, and how that ends; nothing where they
    don't."""
    if installation.has_tls or installation.is_simulated:
        return []
    where = installation.config_file
    return [f"parts do not prove to each other who they are: [security] tls is not true in {where}"]


def left_behind(installation: Installation, processes: Iterable[Process]) -> list[int]:
    """Agents, by pid, that were started while the settings said otherwise of TLS: no other part speaks with them. A
    compute can outlive its supervisor, and the settings can be changed then."""
    found: list[int] = []
    for process in processes:
        words = process.command.split()
        is_agent = bool(words) and Path(words[0]).name == "weir-compute" and "--spec" in words
        if is_agent and ("--tls" in words) is not installation.has_tls:
            found.append(process.pid)
    return found


def as_started(installation: Installation, processes: Iterable[Process]) -> Installation:
    """The installation as its computes know it, where [security] tls was changed since they were started."""
    changed = left_behind(installation, processes)
    return replace(installation, has_tls=not installation.has_tls) if changed else installation


def listing(home: Path, *, as_json: bool) -> None:
    """The CAs whose certificates count, the one that signs first."""
    installation = _with_tls(home)
    try:
        it = authority.read(home)
    except KeyFileError as error:
        raise CliError(str(error)) from None
    if it is None:
        raise CliError(f"There is no CA for parts in {installation.home} yet. `weir up` makes it.")
    rows = [(serial, what, until.isoformat(timespec="seconds")) for serial, what, until in authority.listed(it)]
    if as_json:
        names = ("ca", "does", "counts_until")
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    click.echo(table(("CA", "", "COUNTS UNTIL"), rows))


def rotate(home: Path, *, at_once: bool) -> None:
    """A new CA signs for all parts. Call with the installation's lock."""
    installation = _with_tls(home)
    try:
        here = _parts(installation)
        it = parts.rotate(home, here, at_once=at_once)
    except (KeyFileError, OSError) as error:
        raise CliError(str(error)) from None
    note(f"CA {authority.listed(it)[0][0]} signs from now on; {len(here)} part(s) have a certificate of it")
    if at_once:
        note("certificates of other CAs count no longer")
    else:
        note("certificates of the CA before count until they have expired; --at-once ends that")


def _with_tls(home: Path) -> Installation:
    installation = installations.load(home)
    if not installation.has_tls:
        raise CliError(
            f"The parts of this installation speak plain TCP ([security] tls in {installation.config_file})."
        )
    return installation
