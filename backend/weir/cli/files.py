"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, text: str, mode: int) -> None:
    """All of it or nothing: a crash never leaves half a settings file or an empty password. Where this process is
    root, the file belongs to whom the one before belonged to: a service may be reading it. The folder is root's."""
    owner = path.lstat() if path.exists() and os.geteuid() == 0 else None
    draft = path.with_name(path.name + ".new")
    # A draft of an earlier crash may be readable by others.
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        if owner is not None:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
