"""The keys that protect the data keys of projects whose layers and WAL are encrypted.

A key file has one key a line, the newest last (docs/formats.md). It is replaced as a whole or not at all. A rotation
goes: add a key, wrap all data keys by it, take the older ones out. At each point everything can be read.
"""

import hashlib
import json
import os
import secrets
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.cli.errors import CliError
from weir.cli.files import write_whole
from weir.cli.installation import Installation
from weir.cli.output import note
from weir.cli.services import with_object_store_variables

_FIRST_LINE = "weir-encryption-keys 1"
_KEY_OCTETS = 32
_PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Key:
    """A key-encryption key: its id, which says nothing of it, and 32 bytes."""

    name: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.name!r})"


def named(secret: bytes) -> Key:
    """A key with the id that is made of it: 16 hexadecimal digits."""
    return Key(hashlib.sha256(b"weir key-encryption key " + secret).hexdigest()[:16], secret)


def render(keys: list[Key]) -> str:
    """The text of a key file, the newest key last."""
    lines = [_FIRST_LINE, *(f"{key.name} {key.secret.hex()}" for key in keys), f"end {len(keys)}"]
    return "".join(f"{line}\n" for line in lines)


def read(path: Path) -> list[Key]:
    """The keys of a file, the newest last. Raises CliError if it is lost, torn, or open to other users."""
    try:
        found, text = path.stat(), path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"The key file {path} cannot be read: {error}. {PUT_BACK}") from None
    # The programs of storage read a file of root's as a group, where they have users of their own.
    if found.st_mode & (0o037 if found.st_uid == 0 else 0o077):
        raise CliError(f"{path} holds secrets and can be read by others: chmod 600 {path}")
    keys: list[Key] = []
    for line in text.splitlines()[1:-1]:
        try:
            secret = bytes.fromhex(line.partition(" ")[2])
        except ValueError:
            secret = b""
        keys.append(named(secret))
    # What is no key, or was cut, is not what such keys are written as.
    if not keys or any(len(key.secret) != _KEY_OCTETS for key in keys) or render(keys) != text:
        raise CliError(f"The key file {path} is torn, or no key file. {PUT_BACK}")
    return keys


PUT_BACK = "Put the right one back: what is encrypted cannot be read without it, and no other can be made."


def _write(path: Path, keys: list[Key]) -> None:
    """Durable on return: what is wrapped by a key is lost with it."""
    write_whole(path, render(keys), stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def prepare(installation: Installation) -> None:
    """The key file is there and good when this returns, if layers are to be encrypted or were. A new one is made only
    where no data key needs an older one. Raises CliError."""
    path = installation.storage_keys
    if path.exists():
        read(path)
        return
    if not installation.encryption or installation.is_simulated:
        return
    if found := data_keys(installation):
        raise CliError(
            f"The key file {path} is missing, and {len(found)} project(s) in {installation.object_store} are "
            f"encrypted by keys that were in it. {PUT_BACK}"
        )
    key = named(secrets.token_bytes(_KEY_OCTETS))
    _write(path, [key])
    note(f"layers are encrypted by key {key.name}: keep a copy of {path} elsewhere")
    note("without that file all databases are lost")


def data_keys(installation: Installation) -> list[dict[str, Any]]:
    """The data keys in the object store: `tenant`, `data_key`, `wrapped_by`, `plain` of each."""
    store = installation.object_store
    if store.startswith("file://") and not Path(store.removeprefix("file://")).exists():
        return []
    return json.loads(_tool(installation, "list"))


def _tool(installation: Installation, command: str, *options: str) -> str:
    program = installation.bin_dir / "weir-pageserver"
    if not program.is_file():
        raise CliError(f"The program {program} is missing; `make setup` builds it.")
    words = [*with_object_store_variables(installation), str(program), "keys", command, *options]
    words += ["--object-store", installation.object_store]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise CliError(f"{installation.object_store} did not answer within {_PATIENCE_SECONDS} s.") from None
    if done.returncode != 0:
        raise CliError(f"The data keys in {installation.object_store}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def rotate(installation: Installation) -> Key:
    """Adds a key, and wraps all data keys by it. Answers with the key. Call with the installation's lock."""
    path = installation.storage_keys
    keys = read(path)
    key = named(secrets.token_bytes(_KEY_OCTETS))
    _write(path, [*keys, key])
    _wrap_all(installation)
    return key


def _wrap_all(installation: Installation) -> None:
    done = json.loads(_tool(installation, "rewrap", "--key-file", str(installation.storage_keys)))
    note(f"{done['wrapped']} data key(s) wrapped by the newest key")


def retire(installation: Installation) -> list[Key]:
    """Takes all keys but the newest out of the file, once no data key is wrapped by them; answers with them. Call
    with the installation's lock. Raises CliError, with the file as it was, if a data key needs one."""
    path = installation.storage_keys
    keys = read(path)
    newest, older = keys[-1], keys[:-1]
    if not older:
        return []
    _wrap_all(installation)
    _refuse_needed(installation, newest)
    _write(path, [newest])
    try:
        # A project that was made meanwhile: whoever makes one looks at the file again afterwards.
        _refuse_needed(installation, newest)
    except CliError:
        _write(path, keys)
        raise
    return older


def _refuse_needed(installation: Installation, newest: Key) -> None:
    needed = sorted({row["wrapped_by"] for row in data_keys(installation)} - {newest.name})
    if needed:
        raise CliError(f"Data keys are still wrapped by {', '.join(needed)}; nothing was taken out. Try again.")
