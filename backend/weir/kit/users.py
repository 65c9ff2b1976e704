"""Numbers of users of the operating system that have no account: who has one already.

`weir up` takes numbers for an installation's services, and the worker one for each compute. Both keep what is taken
in `USERS_DIR`, for all installations of the machine."""

import grp
import os
import pwd
from contextlib import suppress
from pathlib import Path

USERS_DIR = Path("/var/lib/weir-users")
# In that folder: whoever takes or gives back a number holds a lock on it.
LOCK = "lock"


def has_account(number: int) -> bool:
    """Whether an account of this machine has the number."""
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def has_named_group(number: int) -> bool:
    """Whether a group of this machine has the number."""
    try:
        grp.getgrgid(number)
    except KeyError:
        return False
    return True


def of_processes() -> set[int]:
    """Effective users of all processes: without the right to change it a process has no other. The owner of a
    process's folder in /proc is that user even where the process hides what is in the folder."""
    found: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208  names, thousands of them
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                found.add(os.stat(f"/proc/{name}").st_uid)  # noqa: PTH116
    return found
