"""Before a service's program is started as a user of its own: `python -I -S launch.py SPEC PROGRAM ARGUMENT...`,
run by root.

It prepares what only root can, and becomes the program, by its process id as well. Nothing of Weir is imported: a
restart is to take milliseconds. SPEC is JSON:

    user, group    numbers
    groups         numbers of groups that the user is in, too
    folder         what the service writes to, its user's alone; "" for none
    sees           paths that the program reads and that may lie in folders which are closed to its user
    account        a name for the user in this service's /etc/passwd, which some programs ask for; "" for none
    umask          of files that the service makes
    scratch        an empty folder that mounts can be made in

A program, and Python with its packages, may lie below a folder of root's that nobody else can pass, such as /root.
The folder stays closed: the service gets a mount namespace in which another folder lies over it, with nothing but the
way to the paths of `sees`.

A crash at any point leaves nothing behind but a folder of which a part was given away, which the next start goes on
with. Mounts end with the namespace.
"""

# Names are enough here, and importing pathlib takes as long as all else.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH118, PTH120, PTH123
import json
import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 4096, 16384, 1 << 19
MNT_DETACH = 2


class RefusedError(Exception):
    """The service can't be started as its user; the message says why and what to do."""


def take_over(folder: str, user: int, group: int) -> None:
    """Gives a folder, and all in it, to a user; nothing where it is theirs already.

    The folder itself comes last, so that one whose owner is right is whole. Links are not followed, but for the name
    of the folder, which is root's or the operator's. What an earlier user may have put there to have it given away is
    refused: what belongs to neither the folder's owner, nor the user, nor root, and root's files with other names."""
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = os.fstat(top).st_uid
        if before == user:
            return
        _give_below(top, folder, before, user, group)
        os.fchmod(top, 0o700)
        os.fchown(top, user, group)
    finally:
        os.close(top)


def _give_below(directory: int, path: str, before: int, user: int, group: int) -> None:
    for name in os.listdir(directory):
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            # The very file that was opened, whatever has its name by now.
            itself = f"/proc/self/fd/{entry}"
            found = os.fstat(entry)
            _refuse_foreign(found, f"{path}/{name}", before, user)
            if stat.S_ISLNK(found.st_mode):
                os.chown(name, user, group, dir_fd=directory, follow_symlinks=False)
            elif stat.S_ISDIR(found.st_mode):
                inner = os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    _give_below(inner, f"{path}/{name}", before, user, group)
                    os.fchown(inner, user, group)
                finally:
                    os.close(inner)
            else:
                os.chown(itself, user, group)
        finally:
            os.close(entry)


def _refuse_foreign(found: os.stat_result, path: str, before: int, user: int) -> None:
    if found.st_uid in (before, user):
        return
    # Root's own: put there by the operator, unless it may be a second name of something elsewhere.
    if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
        return
    raise RefusedError(
        f"{path} belongs to user {found.st_uid}, or has other names, while its folder was user {before}'s and is to "
        f"be user {user}'s. If it belongs there, chown it to {user}; otherwise move it away"
    )


def passes(found: os.stat_result, user: int, groups: Collection[int], bit: int = 1) -> bool:
    """Whether a user may pass through a folder (1), or read (4) what `found` is about."""
    if found.st_uid == user:
        return bool(found.st_mode >> 6 & bit)
    if found.st_gid in groups:
        return bool(found.st_mode >> 3 & bit)
    return bool(found.st_mode & bit)


def closed_folder(path: str, user: int, groups: Collection[int]) -> str | None:
    """The first folder on the way to an absolute path that the user cannot pass; None: they come through. The way
    ends at a link: what is behind it is asked by its real path."""
    way = "/"
    for part in path.strip("/").split("/"):
        found = os.lstat(way)
        if stat.S_ISLNK(found.st_mode):
            return None
        if not passes(found, user, groups):
            return way
        way = os.path.join(way, part)
    return None


def hidden(sees: Sequence[str], user: int, groups: Collection[int]) -> dict[str, list[str]]:
    """What of these paths the user cannot come to: by the folder that stands before it. Of two paths of which one is
    below the other there is the upper one."""
    found: dict[str, list[str]] = {}
    for path in sorted({os.path.normpath(path) for path in sees} | {os.path.realpath(path) for path in sees}):
        if not os.path.exists(path):
            continue
        folder = closed_folder(path, user, groups)
        if folder is not None:
            shown = found.setdefault(folder, [])
            if not any(path == other or path.startswith(other + "/") for other in shown):
                shown.append(path)
    return found


def _show(covered: Mapping[str, Sequence[str]], account: str, user: int, scratch: str) -> None:
    """In a mount namespace of this process alone."""
    import ctypes  # noqa: PLC0415  most services need none of it

    libc = ctypes.CDLL(None, use_errno=True)

    def done(answer: int, what: str) -> None:
        if answer != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        words = [os.fsencode(word) for word in (source, target, kind)]
        done(libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None), f"mount on {target}")

    def in_scratch(make: str) -> None:
        """Has what lies in a new file system be seen at `make` alone."""
        source = f"{scratch}/passwd" if make == "/etc/passwd" else scratch
        mount(source, make, "", MS_BIND | MS_REC)
        done(libc.umount2(os.fsencode(scratch), MNT_DETACH), f"unmount {scratch}")

    done(libc.unshare(CLONE_NEWNS), "a mount namespace")
    # What others unmount goes here, too.
    mount("", "/", "", MS_REC | MS_SLAVE)
    # Folders that others pass through, and nobody but root writes to.
    os.umask(0o066)
    for folder, paths in covered.items():
        mount("weir", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=1m")
        for path in paths:
            target = scratch + path[len(folder.rstrip("/")) :]
            os.makedirs(os.path.dirname(target), mode=0o711, exist_ok=True)
            if os.path.isdir(path):
                os.mkdir(target, 0o711)
            else:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            mount(path, target, "", MS_BIND | MS_REC)
        in_scratch(folder)
    if account:
        with open("/etc/passwd", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read().rstrip("\n")
        mount("weir", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=4m")
        with open(f"{scratch}/passwd", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{text}\n{account}:x:{user}:{user}::/:/usr/sbin/nologin\n")
            os.fchmod(file.fileno(), 0o644)
        in_scratch("/etc/passwd")


def main(words: Sequence[str]) -> None:
    spec, command = json.loads(words[0]), list(words[1:])
    try:
        user, groups = spec["user"], [spec["group"], *spec["groups"]]
        if spec["folder"]:
            take_over(spec["folder"], user, spec["group"])
        covered = {} if user == 0 else hidden(spec["sees"], user, groups)
        if covered or spec["account"]:
            _show(covered, spec["account"], user, spec["scratch"])
        os.umask(spec["umask"])
        os.execv(command[0], command)  # noqa: S606  the words of the supervisor's configuration
    except (OSError, RefusedError) as error:
        sys.exit(f"The service was not started as user {spec['user']}: {error}.")


if __name__ == "__main__":
    main(sys.argv[1:])
