"""A whole Weir whose storage is encrypted: the key file is made once, turned, and missed when it is lost."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack
from weirbench.postgres import query

PG_BIN = Path(os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"))


@pytest.fixture(name="encrypted")
def _encrypted() -> Generator[Stack]:
    with running_stack({"WEIR_STORAGE_ENCRYPTION": "true"}) as running:
        yield running


def weir(stack: Stack, *words: str) -> str:
    done = stack.weir(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def keys(stack: Stack) -> dict[str, str]:
    """Ids and secrets in the key file."""
    text = (stack.home / "secrets" / "storage_keys").read_text()
    return dict(line.split(" ") for line in text.splitlines()[1:-1])


def is_closed(path: Path) -> bool:
    """Whether root alone reads the keys, beside the group of the programs of storage where those have users of their
    own."""
    found = path.stat()
    by_group = os.geteuid() == 0 and found.st_gid != 0
    return (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o640 if by_group else 0o600)


def metadata(stack: Stack) -> str:
    """The metadata database as a backup has it."""
    shown = weir(stack, "env").splitlines()
    url = next(line.partition("=")[2].strip("'") for line in shown if line.startswith("export WEIR_DATABASE_URL="))
    command = [str(PG_BIN / "pg_dump"), url.replace("+psycopg", "")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_keys_of_an_installation_are_made_turned_and_missed(encrypted: Stack) -> None:
    stack = encrypted
    path = stack.home / "secrets" / "storage_keys"
    assert is_closed(path)
    first = keys(stack)
    assert len(first) == 1
    database = stack.api().create_database("shop", {})
    query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    stack.suspend_compute(database)
    layers = [file for file in (stack.home / "objects").rglob("layers/*") if file.is_file()]
    assert layers
    assert {file.read_bytes()[:8] for file in layers} == {b"WEIRCRYP"}

    weir(stack, "encryption", "rotate")
    second = keys(stack)
    assert list(second.items())[:1] == list(first.items())
    listed = json.loads(weir(stack, "encryption", "list", "--json"))
    assert [(row["key"], row["projects"], row["newest"]) for row in listed] == [
        (key, count, bool(count)) for key, count in zip(second, (0, 1), strict=True)
    ]
    assert is_closed(path), "as it was before the rotation"
    weir(stack, "encryption", "retire")
    assert list(keys(stack)) == list(second)[1:]
    dump = metadata(stack)
    assert "shop" in dump
    assert not [key for key, secret in second.items() if secret in dump or secret in stack.logs()]

    stack.down()
    aside = path.rename(stack.home / "aside")
    refused = stack.weir("up")
    assert refused.returncode != 0
    assert "Put the right one back" in refused.stderr
    assert not path.exists()
    aside.rename(path)
    stack.up()
    stack.start_compute(database)
    stack.wait_for_compute(database)
    assert query(database.uri, "SELECT sum(n) FROM kept") == "500500"
