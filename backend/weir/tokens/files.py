"""Small files that are there whole or not at all, their owner's alone, whoever else writes in the folder."""

import os
import threading
from pathlib import Path

_writing = threading.Lock()


def write_private(path: Path, text: str, *, durable: bool, mode: int = 0o600, keeps_owner: bool = False) -> None:
    """Replaces `path`, with this mode. `durable`: on the disk on return, for what can't be made again. `keeps_owner`:
    it belongs to whom the file before belonged to, where this process is root; for folders of root's alone, since in
    another one that file may be anybody's."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    owner = _owner(path) if keeps_owner and os.geteuid() == 0 else None
    with _writing:
        # A database's own user may write in the folder of its compute: what lies there under the name of the draft is
        # removed and never written through.
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)


def _owner(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def read_own(path: Path) -> str:
    """The text of a small file, through no link. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor) as file:
        return file.read(1 << 17)
