"""Which Weir a command talks to, and with whose key."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.resources.api import ANSWER_SECONDS, Api

KEY_VARIABLE = "WEIR_API_KEY"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def connect(home: Path, url: str | None, key_file: Path | None, *, seconds: float = ANSWER_SECONDS) -> Api:
    """The API of the address given, or of the installation in `home`.

    The key is the file's, or WEIR_API_KEY, or the installation's own. The installation's own key goes to its own
    address only: a key is not told to whoever answers somewhere else."""
    own = installations.load(home) if installations.exists(home) else None
    if url is None and own is None:
        raise CliError(
            f"There is no Weir in {home}. `weir up` makes one; for a Weir elsewhere, give its address by --url or "
            "WEIR_API_URL and a key in WEIR_API_KEY."
        )
    address = own.api_url if url is None and own is not None else _address(str(url))
    host = str(urlsplit(address).hostname)
    local = host in _LOOPBACK
    if address.startswith("http://") and not local:
        click.echo(f"weir: {address} is not encrypted: whoever is on the way to it can read the key.", err=True)
    return Api(address, _key(own, address, key_file), seconds=seconds, local=local)


def _address(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise CliError(f"{url!r} is no address of an API; write it as http://127.0.0.1:7400 or https://host.")
    if parts.username is not None or parts.password is not None:
        raise CliError("The address of the API has a user or a password in it; the key goes into WEIR_API_KEY.")
    return url.rstrip("/").removesuffix("/api/v2")


def _key(own: Installation | None, address: str, key_file: Path | None) -> str:
    if key_file is not None:
        return _fit(_text(key_file), str(key_file))
    if os.environ.get(KEY_VARIABLE):
        return _fit(os.environ[KEY_VARIABLE], KEY_VARIABLE)
    if own is not None and address == own.api_url:
        return _fit(_text(own.api_key_file), str(own.api_key_file))
    raise CliError(
        f"There is no key for {address}. Put one into WEIR_API_KEY, or name a file that holds it by --api-key-file."
    )


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CliError(f"The API key in {file} cannot be read: {reason}.") from None


def _fit(text: str, place: str) -> str:
    """The key without the end of its line. The message for another text does not show it."""
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise CliError(f"What {place} holds is no API key: a key is one word of ASCII characters.")
    return key
