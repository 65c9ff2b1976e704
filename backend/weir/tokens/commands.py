"""`weir-admin tokens`, and `python -m weir.tokens`: the keys and tokens of an installation of containers
(`weir.tokens.keeper`). The second loads little of what others wrote, and is what has the key all the time."""

import argparse
import datetime as dt
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from weir import logging
from weir.tokens.keeper import Keeper, keep
from weir.tokens.keys import KeyFileError

VARIABLE = "WEIR_CREDENTIALS_DIR"


def add_to(tokens: argparse.ArgumentParser) -> None:
    """The words behind `tokens`."""
    verbs = tokens.add_subparsers(dest="verb", required=True)
    keeping = verbs.add_parser("keep", help="make keys and tokens, and keep them good until this is ended")
    keeping.add_argument("--alive", type=Path, metavar="FILE", help="touched after each round that went well")
    rotating = verbs.add_parser("rotate", help="a new key; the old one counts for 13 hours more")
    rotating.add_argument("--at-once", action="store_true", help="tokens of all other keys count no longer")
    verbs.add_parser("list", help="which public keys count, and until when")
    for verb in verbs.choices.values():
        verb.add_argument(
            "--folder", type=Path, default=os.environ.get(VARIABLE), help=f"of the keys (default: {VARIABLE})"
        )


def run(arguments: argparse.Namespace) -> int:
    """What the words asked for; the exit code."""
    if arguments.folder is None:
        print(f"weir-admin: set {VARIABLE}, or give --folder: where the keys are", file=sys.stderr)  # noqa: T201
        return 2
    keeper = Keeper(Path(arguments.folder))
    try:
        if arguments.verb == "keep":
            logging.configure()
            signal.signal(signal.SIGTERM, _end)
            keep(keeper, arguments.alive)
        elif arguments.verb == "rotate":
            keeper.rotate(lambda said: print(said, flush=True), at_once=arguments.at_once)  # noqa: T201  its answer
        else:
            for key, signs in keeper.listing():
                until = "-" if key.retires is None else dt.datetime.fromtimestamp(key.retires, dt.UTC).isoformat()
                print(f"{key.name}  {'signs' if signs else '     '}  {until}")  # noqa: T201  its answer
    except (KeyFileError, OSError) as error:
        print(f"weir-admin: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _end(_: int, __: FrameType | None) -> None:
    """Every file is there whole or not at all: nothing has to be ended."""
    sys.exit(0)
