"""What services with users of their own can read: to each its secrets, to all the public keys, to storage its folder.

A secret belongs to the user of the one service that reads it, mode 0600, in a folder of root's: no service can put
another file, or a link, in its place. What several services know is in a file for each; the keys of encrypted layers
and WAL, of which there must be one file only, are root's, and the group of storage reads them.

A crash leaves files that are root's still, which the next `weir up` goes on with; services are started after it.
"""

import os
import stat
from pathlib import Path

from weir.cli import launching
from weir.cli.errors import CliError
from weir.cli.files import write_whole
from weir.cli.installation import Installation
from weir.cli.service_users import PARTS, STORAGE
from weir.kit.crypto import ensure_secrets
from weir.tls import parts as tls_parts
from weir.tls.authority import tls_dir
from weir.tokens.parts import tokens_dir

_PASSAGE = 0o710
_SHARED_FOLDER = 0o2770
_SHARED_FILE = 0o660


def prepare(installation: Installation) -> None:
    """Makes secrets that services are to have and nobody has made yet, and gives each to its service. Raises
    CliError."""
    secrets = installation.home / "secrets"
    write_if_other(control_plane_token(installation.home), installation.proxy_token_file.read_text())
    # The API is to have the key that seals passwords before it starts.
    ensure_secrets(secrets)
    launching.scratch(installation).mkdir(mode=0o700, exist_ok=True)
    if installation.own_users.numbers is None:
        return
    try:
        _give_secrets(installation, secrets)
    except OSError as error:
        raise CliError(f"{error.filename} cannot be given to the service that it is for: {error.strerror}.") from None


def prepare_store(installation: Installation) -> None:
    """Gives the object store's folder, if it is one, to the group of storage. While storage does not run: what it
    would make meanwhile without users of its own would not be the group's. Raises CliError."""
    store, group = launching.object_store_folder(installation), installation.own_users.group(STORAGE)
    if store is None or group is None or installation.is_simulated:
        return
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        share(store, group)
    except OSError as error:
        raise CliError(f"{store} cannot be given to the group of storage: {error.strerror}.") from None


def control_plane_token(home: Path) -> Path:
    """What `proxy_token` holds, for the proxy to read, which shows it to the API."""
    return home / "secrets" / "control_plane_token"


def readers(installation: Installation) -> dict[Path, str]:
    """The service, by its name in `service_users.SERVICES`, that each of these secrets is for. All others are
    root's."""
    secrets, tokens = installation.home / "secrets", tokens_dir(installation.home)
    found = {secrets / name: "api" for name in ("encryption_key", "token_key", "proxy_token")}
    found |= {tokens / name: name for name in _with_proofs(installation)}
    found |= tls_readers(installation)
    found |= {secrets / name: "proxy" for name in ("proxy_mock_secret", "proxy.key")}
    return found | {control_plane_token(installation.home): "proxy"}


def tls_readers(installation: Installation) -> dict[Path, str]:
    """The same of the files by which parts prove themselves. That of the control plane is the API's; the worker is
    root."""
    home = installation.home
    if not installation.has_tls:
        return {}
    found = {tls_parts.service_file(home, name): name for name in _with_proofs(installation)}
    return found | {tls_parts.authorities_file(home): "prometheus", tls_parts.control_file(home): "api"}


def _with_proofs(installation: Installation) -> list[str]:
    """The services that have a token, and a certificate, of their own to show to others."""
    return ["pageserver", "prometheus", *(f"safekeeper-{n}" for n in installation.safekeepers)]


def _give_secrets(installation: Installation, secrets: Path) -> None:
    users = installation.own_users
    parts = users.group(PARTS)
    if parts is None:
        return
    folders = [installation.run_dir, secrets, tokens_dir(installation.home)]
    if installation.has_tls:
        folders.append(tls_dir(installation.home))
    for folder in folders:
        # Files in them are known by name, and each has its own mode.
        _give(folder, 0, parts, _PASSAGE)
    _give(installation.token_keys_file, 0, parts, 0o644)
    storage = users.group(STORAGE)
    if storage is not None and installation.storage_keys.exists():
        _give(installation.storage_keys, 0, storage, 0o640)
    for path, service in readers(installation).items():
        number = users.of(service)
        if number is not None and path.exists():
            _give(path, number, number, 0o600)


def write_if_other(path: Path, text: str) -> None:
    """A secret's file, unless it holds this text."""
    if not path.exists() or path.read_text() != text:
        write_whole(path, text, 0o600)


def _give(path: Path, user: int, group: int, mode: int) -> None:
    """Of a file or folder in a folder of root's. A link is not followed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) != (user, group, mode):
            os.fchown(descriptor, user, group)
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def share(folder: Path, group: int) -> None:
    """The folder and all in it are a group's to read and to change, and so is what is made there from now on. The
    folder itself comes last: one that is right is whole."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = os.fstat(top)
        if (before.st_gid, stat.S_IMODE(before.st_mode)) == (group, _SHARED_FOLDER):
            return
        _share_below(top, group, others_wrote=bool(before.st_mode & stat.S_ISGID))
        os.fchown(top, -1, group)
        os.fchmod(top, _SHARED_FOLDER)
    finally:
        os.close(top)


def _share_below(directory: int, group: int, *, others_wrote: bool) -> None:
    for name in os.listdir(directory):
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            itself = f"/proc/self/fd/{entry}"
            found = os.fstat(entry)
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    _share_below(inner, group, others_wrote=others_wrote)
                    os.fchown(inner, -1, group)
                    os.fchmod(inner, _SHARED_FOLDER)
                finally:
                    os.close(inner)
            # Services could have made a second name of something elsewhere, to be given it.
            elif stat.S_ISREG(found.st_mode) and not (others_wrote and found.st_nlink > 1):
                os.chown(itself, -1, group)
                os.chmod(itself, _SHARED_FILE)  # noqa: PTH101
        finally:
            os.close(entry)
