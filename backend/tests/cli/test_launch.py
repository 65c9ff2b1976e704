"""A service starts as its user: its folder is its own, links lead nowhere, and what is closed stays closed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weir.cli import launch, launching
from weir.cli.launch import RefusedError, take_over

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives services users of their own")
USER, OTHER, SHARED = 53_201, 53_202, 53_203


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Path:
    """A folder that others can come to, so that only what a test closes is closed."""
    for part in (tmp_path, *tmp_path.parents):
        if part.is_relative_to("/tmp") and part != Path("/tmp"):  # noqa: S108
            part.chmod(part.stat().st_mode | 0o011)
    return tmp_path


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


def filled(folder: Path) -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("a")
    (folder / "file").write_text("b")
    return folder


@as_root
def test_a_folder_of_roots_is_given_away_whole_and_a_link_in_it_is_not_followed(place: Path) -> None:
    folder, elsewhere = filled(place / "folder"), place / "elsewhere"
    elsewhere.write_text("root's")
    (folder / "link").symlink_to(elsewhere)
    (folder / "to-folder").symlink_to(place)
    folder.chmod(0o755)
    take_over(str(folder), USER, USER)
    for path in (folder, folder / "inner", folder / "inner" / "file", folder / "file", folder / "link"):
        assert owner(path) == (USER, USER), path
    assert owner(elsewhere) == owner(place) == (0, 0)
    assert folder.stat().st_mode & 0o777 == 0o700


@as_root
def test_a_folder_that_is_its_users_is_left_alone(place: Path) -> None:
    folder = filled(place / "folder")
    os.chown(folder, USER, USER)
    take_over(str(folder), USER, USER)
    assert owner(folder / "file") == (0, 0)


@as_root
def test_a_takeover_that_broke_off_goes_on(place: Path) -> None:
    folder = filled(place / "folder")
    os.chown(folder / "inner" / "file", USER, USER)
    take_over(str(folder), USER, USER)
    assert owner(folder / "inner") == owner(folder / "file") == (USER, USER)


@as_root
def test_what_an_earlier_user_put_there_to_have_it_given_away_is_refused(place: Path) -> None:
    """With the rights of a service, its folder gets a second name of root's file, which the next user would own."""
    folder, secret, third = filled(place / "folder"), place / "secret", place / "third"
    take_over(str(folder), OTHER, OTHER)
    secret.write_text("root's")
    os.link(secret, folder / "planted")
    with pytest.raises(RefusedError, match=r"planted belongs to user 0.*move it away"):
        take_over(str(folder), USER, USER)
    assert owner(secret) == (0, 0)
    assert owner(folder) == (OTHER, OTHER), "the next start tries again"
    (folder / "planted").unlink()
    third.write_text("a third user's")
    os.chown(third, SHARED, SHARED)
    os.link(third, folder / "planted")
    with pytest.raises(RefusedError, match=f"planted belongs to user {SHARED}"):
        take_over(str(folder), USER, USER)
    (folder / "planted").unlink()
    # What the operator edited as root has no second name.
    (folder / "edited").write_text("by the operator")
    take_over(str(folder), USER, USER)
    assert owner(folder / "edited") == owner(folder / "inner" / "file") == (USER, USER)


def started(place: Path, spec: dict[str, Any], *command: str) -> subprocess.CompletedProcess[str]:
    (place / "scratch").mkdir(exist_ok=True)
    whole = {
        "user": USER,
        "group": USER,
        "groups": [],
        "folder": "",
        "sees": [],
        "account": "",
        "umask": 0o077,
        "scratch": str(place / "scratch"),
        **spec,
    }
    words = [sys.executable, "-I", "-S", launch.__file__, json.dumps(whole), launching.setpriv()]
    words += [f"--reuid={whole['user']}", f"--regid={whole['group']}", "--clear-groups", "--no-new-privs", "--"]
    return subprocess.run([*words, *command], capture_output=True, text=True, check=False, timeout=60, cwd="/")


def without_namespaces() -> bool:
    return os.geteuid() != 0 or bool(launching.mount_namespaces_refused())


@pytest.mark.skipif(without_namespaces(), reason="this kernel, or this user, makes no mount namespaces")
def test_a_program_in_a_closed_folder_runs_and_the_folder_stays_closed(place: Path) -> None:
    closed = place / "closed"
    (closed / "deeper").mkdir(parents=True)
    (closed / "secret").write_text("not for services")
    program = closed / "deeper" / "program"
    shutil.copy("/bin/cat", program)
    for folder in (closed, closed / "deeper"):
        folder.chmod(0o700)
    readable = closed / "deeper" / "readable"
    readable.write_text("for the service")
    spec: dict[str, Any] = {"sees": [str(program), str(readable)]}
    refused = started(place, {}, str(program), str(readable))
    assert refused.returncode != 0
    done = started(place, spec, str(program), str(readable))
    assert (done.returncode, done.stdout) == (0, "for the service"), done.stderr
    done = started(place, spec, str(program), str(closed / "secret"))
    assert "No such file" in done.stderr
    # Nor can it put anything there, and nobody else sees what was mounted.
    done = started(place, spec, "/bin/sh", "-c", f"touch {closed}/made {closed}/deeper/made; id -u")
    assert done.stderr.count("ermission denied") == 2
    assert done.stdout.strip() == str(USER)
    assert str(closed) not in Path("/proc/self/mountinfo").read_text()
    assert sorted(path.name for path in closed.iterdir()) == ["deeper", "secret"]
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(without_namespaces(), reason="this kernel, or this user, makes no mount namespaces")
def test_a_service_has_a_name_where_its_programs_ask_for_one(place: Path) -> None:
    before = Path("/etc/passwd").read_bytes()
    done = started(place, {"account": "weir-pageserver"}, "/usr/bin/id", "-un")
    assert done.stdout.strip() == "weir-pageserver", done.stderr
    done = started(place, {"account": "weir-pageserver"}, "/usr/bin/id", "-un", "root")
    assert done.stdout.strip() == "root"
    assert Path("/etc/passwd").read_bytes() == before


@as_root
def test_a_service_gains_nothing_and_makes_files_for_itself(place: Path) -> None:
    folder = filled(place / "folder")
    script = f"touch {folder}/made; grep -E '^(Uid|Groups|CapEff|CapPrm|NoNewPrivs)' /proc/self/status"
    done = started(place, {"folder": str(folder)}, "/bin/sh", "-c", script)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(":\t", 1) for line in done.stdout.splitlines())
    assert said["Uid"].split() == [str(USER)] * 4
    assert (int(said["CapEff"], 16), int(said["CapPrm"], 16), said["NoNewPrivs"]) == (0, 0, "1")
    assert (folder / "made").stat().st_mode & 0o777 == 0o600


@as_root
def test_a_folder_that_is_gone_is_named(place: Path) -> None:
    done = started(place, {"folder": str(place / "gone")}, "/bin/true")
    assert done.returncode != 0
    assert str(place / "gone") in done.stderr
    assert f"not started as user {USER}" in done.stderr


def test_the_first_closed_folder_on_the_way_is_found(place: Path) -> None:
    inner = place / "closed" / "inner"
    inner.mkdir(parents=True)
    program = inner / "program"
    program.touch()
    (place / "link").symlink_to(inner)
    (place / "closed").chmod(0o750)
    inner.chmod(0o700)
    by_group = [place.stat().st_gid]
    assert launch.closed_folder(str(program), USER, [USER]) == str(place / "closed")
    assert launch.closed_folder(str(program), USER, by_group) == str(inner)
    assert launch.closed_folder(str(program), os.geteuid(), [USER]) is None
    assert launch.hidden([str(inner), str(program), "/bin/sh"], USER, [USER]) == {str(place / "closed"): [str(inner)]}
    # By another name as well: what is closed is the folder behind the link.
    by_link = [str(place / "link" / "program")]
    assert launch.hidden(by_link, USER, [USER]) == {str(place / "closed"): [str(program)]}
