"""`weir logs`: what a process said, and what it says now."""

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation

ROTATE_AT = 32 << 20
KEEP_OLD = 3


def log_files(installation: Installation) -> dict[str, Path]:
    """Every log there is, by the name of its process; computes by their id."""
    found = {path.stem: path for path in sorted(installation.log_dir.glob("*.log"))}
    if installation.computes_dir.is_dir():
        found.update({path.parent.name: path for path in sorted(installation.computes_dir.glob("*/log"))})
    return found


def logs(home: Path, names: tuple[str, ...], *, lines: int, follow: bool) -> None:
    installation = installations.load(home)
    files = log_files(installation)
    unknown = [name for name in names if name not in files]
    if unknown:
        raise CliError(f"No log of {', '.join(unknown)}. There are: {', '.join(files) or 'none yet'}.")
    chosen = {name: files[name] for name in names} if names else files
    width = max((len(name) for name in chosen), default=0)
    prefixes = {name: click.style(f"{name:{width}} | ", fg="cyan") if len(chosen) > 1 else "" for name in chosen}
    for name, path in chosen.items():
        for line in last_lines(path, lines):
            click.echo(prefixes[name] + line)
    if follow:
        for name, line in _follow(chosen):
            click.echo(prefixes[name] + line)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines, read from the end: logs can be large."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        tail = b""
        while position > 0 and tail.count(b"\n") <= count:
            step = min(65536, position)
            position = file.seek(position - step)
            tail = file.read(step) + tail
    return tail.decode(errors="replace").splitlines()[-count:] if count else []


def _follow(chosen: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Lines as they come, across rotation: a file that was replaced is opened again."""
    readers: dict[str, BinaryIO] = {}
    for name, path in chosen.items():
        readers[name] = path.open("rb")
        readers[name].seek(0, os.SEEK_END)
    while True:
        quiet = True
        for name, path in chosen.items():
            for line in readers[name].readlines():
                quiet = False
                yield name, line.decode(errors="replace").rstrip("\n")
            if _was_replaced(readers[name], path):
                readers[name].close()
                readers[name] = path.open("rb")
        if quiet:
            time.sleep(0.25)


def _was_replaced(reader: BinaryIO, path: Path) -> bool:
    try:
        now = path.stat()
    except OSError:
        return False
    return now.st_ino != os.fstat(reader.fileno()).st_ino or now.st_size < reader.tell()


def rotate(home: Path, limit: int = ROTATE_AT) -> None:
    """Move what a long log holds into a compressed file, of which the newest few are kept.

    The services go on writing to the file they have open, so it is emptied, not replaced; they append, so that the
    next line begins the empty file. A line written between the copy and the emptying is lost.
    """
    installation = installations.load(home)
    for path in log_files(installation).values():
        if path.stat().st_size < limit:
            continue
        for number in range(KEEP_OLD - 1, 0, -1):
            older = _old(path, number)
            if older.exists():
                older.replace(_old(path, number + 1))
        with path.open("rb") as source, gzip.open(_old(path, 1), "wb") as packed:
            shutil.copyfileobj(source, packed)
        os.truncate(path, 0)


def _old(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}.gz")
