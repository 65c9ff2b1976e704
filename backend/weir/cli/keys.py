"""`weir keys`: the keys that sign the tokens by which the parts of an installation know each other."""

import datetime as dt
import json
import time
from pathlib import Path

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.output import note, table
from weir.tokens import parts
from weir.tokens.keys import READ_SECONDS, KeyFileError, KeyFiles, read_signing_key


def prepare(installation: Installation) -> None:
    """Keys, and the tokens of services, are there and good when this returns. Raises CliError."""
    files = KeyFiles(installation.home)
    try:
        files.prepare(time.time())
        own = parts.safekeepers(installation.home, installation.safekeepers)
        here = [*parts.services(installation.home), *own, *parts.computes(installation.home)]
        parts.renew(read_signing_key(files.private), here, time.time())
    except KeyFileError as error:
        raise CliError(str(error)) from None


def listing(home: Path, *, as_json: bool) -> None:
    """The public keys that count, the one that signs first."""
    files = KeyFiles(installations.load(home).home)
    try:
        signs = read_signing_key(files.private).name
        keys = sorted(files.published(), key=lambda key: (key.name != signs, key.retires or 0))
    except KeyFileError as error:
        raise CliError(str(error)) from None
    if as_json:
        rows = [{"kid": key.name, "signs": key.name == signs, "retires": _time(key.retires)} for key in keys]
        click.echo(json.dumps(rows, indent=2))
        return
    rows = [(key.name, "signs" if key.name == signs else "", _time(key.retires) or "-") for key in keys]
    click.echo(table(("KEY", "", "COUNTS UNTIL"), rows))


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")


def rotate(home: Path, *, at_once: bool) -> None:
    """Replaces the key that signs, and gives each part a token of the new one. Call with the installation's lock."""
    files = KeyFiles(home)
    try:
        key = files.rotate(time.time, time.sleep)
        note(f"key {key.name} signs from now on")
        here = [*parts.services(home), *parts.computes(home)]
        note(f"{parts.renew(key, here, time.time())} token(s) of services and computes made anew")
        if not at_once:
            note("tokens of the key before count until they have expired; --at-once ends that")
            return
        # What runs has its new token before the old one counts no longer.
        time.sleep(READ_SECONDS)
        gone = files.forget_others()
        note(f"{len(gone)} other key(s) count no longer: " + ", ".join(gone))
    except KeyFileError as error:
        raise CliError(str(error)) from None
