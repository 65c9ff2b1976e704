"""Services are strangers to each other: on a whole Weir, whoever takes over one has nothing of another's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from stack import Stack, wait_for
from weirbench.api import Database
from weirbench.postgres import SqlError, query

from weir.cli import installation
from weir.cli.installation import Installation
from weir.cli.ownership import readers
from weir.cli.service_users import PARTS, STORAGE

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "system"))

from strangers import connects, environment_of, run, user_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives services users of their own")
SAFEKEEPERS = tuple(f"safekeeper-{number}" for number in (1, 2, 3))
WITH_FOLDERS = ("postgres", "temporal", "prometheus", "pageserver", *SAFEKEEPERS)
APART = (*WITH_FOLDERS, "api", "proxy")


@pytest.fixture(name="kept", scope="module")
def _kept(stack: Stack) -> Database:
    """A database with rows that are to outlive all that follows."""
    database = stack.api().create_database("kept", {})
    query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    return database


def loaded(stack: Stack) -> Installation:
    return installation.load(stack.home)


def number(stack: Stack, service: str) -> int:
    found = loaded(stack).own_users.of(service)
    assert found is not None
    return found


def answers(database: Database) -> str | None:
    try:
        return query(database.uri, "SELECT sum(n) FROM kept", timeout=10)
    except SqlError:
        return None


def all_of(folder: Path) -> list[Path]:
    return [folder, *sorted(folder.rglob("*"))]


def test_each_service_runs_as_its_own_user_and_gains_nothing(stack: Stack, kept: Database) -> None:
    seen = {name: user_of(stack.pid(name)) for name in APART}
    assert seen == {name: {number(stack, name)} for name in APART}
    assert len({next(iter(users)) for users in seen.values()}) == len(APART)
    for name in APART:
        lines = dict(line.split(":\t", 1) for line in status_of(stack.pid(name)))
        assert {lines[field].strip("0") for field in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}, name
        assert lines["NoNewPrivs"] == "1", name
    # What starts processes as other users has to be root.
    assert user_of(stack.pid("worker")) == {0}


def status_of(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line]


def test_a_services_user_reads_no_folder_and_no_secret_of_another(stack: Stack, kept: Database) -> None:
    home, secrets = stack.home, {path: of for path, of in readers(loaded(stack)).items() if path.exists()}
    private = [path for path in (home / "secrets").rglob("*") if path.is_file()]
    assert set(secrets) < set(private)
    pids = {str(entry["name"]): int(entry["pid"]) for entry in stack.status()["processes"] if entry["pid"]}
    pids = {name: pids[name] for name in (*APART, "worker")}
    closed = [home / name for name in ("log", "run", "secrets", "secrets/tokens", "computes")]
    files = [*private, home / "computes" / kept.compute_id / "spec.json", home / "run" / "services.json"]
    for service in APART:
        own = {home / service, *(path for path, of in secrets.items() if of == service)}
        folders = [*(home / name for name in WITH_FOLDERS), *closed]
        environments = {Path(f"/proc/{pid}/environ") for pid in pids.values()}
        paths = [*folders, *files, *environments, *(folder / "planted" for folder in folders)]
        could = reached(stack, service, paths)
        (home / service / "planted").unlink(missing_ok=True)
        allowed = own | {home / service / "planted", Path(f"/proc/{pids[service]}/environ")}
        assert could == {path for path in paths if path in allowed}, service


def reached(stack: Stack, service: str, paths: list[Path]) -> set[Path]:
    """Which folders the service's user can list, which files read, and which named `planted` make."""
    user, parts = number(stack, service), loaded(stack).own_users.group(PARTS)
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={parts}", "--", "/usr/bin/python3", "-c"]
    done = run(0, *command, REACHES, *map(str, paths))
    assert done.returncode == 0, done.stderr
    return {Path(line) for line in done.stdout.splitlines()}


# What the kernel refuses is not printed; anything else that goes wrong ends the program.
REACHES = """
import os, sys
for path in sys.argv[1:]:
    try:
        if path.endswith("/planted"):
            open(path, "w").close()
        elif os.path.isdir(path):
            os.listdir(path)
        else:
            open(path, "rb").read(1)
    except PermissionError:
        continue
    print(path)
"""


def test_no_service_reaches_the_supervisor_which_can_start_anything(stack: Stack, kept: Database) -> None:
    installed = loaded(stack)
    parts = installed.own_users.group(PARTS)
    assert connects(0, installed.socket).returncode == 0
    for service in APART:
        # By the group of all services it reads what is for all, and no more.
        what = [installed.token_keys_file, *(installed.run_dir / name for name in ("services.json", "lock"))]
        assert reached(stack, service, what) == {installed.token_keys_file}
        command = ("setpriv", f"--reuid={number(stack, service)}", f"--regid={parts}", "--clear-groups", "--")
        done = run(0, *command, "/usr/bin/python3", "-c", CONNECT, str(installed.socket))
        assert "PermissionError" in done.stderr, service


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


def test_the_metadata_password_is_told_to_who_uses_it(stack: Stack, kept: Database) -> None:
    password = (stack.home / "secrets" / "postgres_password").read_text().strip()
    supervisor = int((stack.home / "run" / "supervisor.pid").read_text().split()[0])
    told = {name: environment_of(stack.pid(name)) for name in (*APART, "worker")}
    told["supervisor"] = environment_of(supervisor)
    assert {name for name, found in told.items() if any(password in value for value in found.values())} == {
        "api",
        "worker",
    }


def test_storage_shares_the_object_store_and_nobody_else_has_it(stack: Stack, kept: Database) -> None:
    group = loaded(stack).own_users.group(STORAGE)
    store = stack.home / "objects"

    def writers() -> set[int] | None:
        owners = {path.lstat().st_uid for path in store.rglob("*") if path.is_file()}
        return owners if number(stack, "pageserver") in owners else None

    found = wait_for("something of the pageserver's in the store", writers)
    assert found <= {number(stack, name) for name in ("pageserver", *SAFEKEEPERS)}
    assert {path.lstat().st_gid for path in all_of(store)} == {group}
    for service in ("api", "temporal", "postgres", "prometheus", "proxy"):
        assert reached(stack, service, [store, *list(store.iterdir())[:1]]) == set()


def test_a_killed_service_comes_back_as_its_user(stack: Stack, kept: Database) -> None:
    for name in ("pageserver", "postgres", "api", "proxy"):
        stack.kill(name)
        assert user_of(stack.pid(name)) == {number(stack, name)}
    assert wait_for("the database", lambda: answers(kept)) == "500500"


def test_a_safekeeper_with_a_new_disk_of_roots_runs_as_its_user(stack: Stack, kept: Database) -> None:
    stack.stop("safekeeper-2")
    stack.lose_disk(2)
    assert user_of(stack.pid("safekeeper-2")) == {number(stack, "safekeeper-2")}
    folder = stack.home / "safekeeper-2"
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (number(stack, "safekeeper-2"), 0o700)
    assert wait_for("the database", lambda: answers(kept)) == "500500"


def test_doctor_says_who_is_apart(stack: Stack, kept: Database) -> None:
    result = stack.weir("doctor")
    assert result.returncode == 0, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "services with users of their own" in line]
    assert all(name in line for name in APART)
    assert "runs as root" not in result.stdout


def test_an_older_installation_is_taken_over_and_can_go_back(stack: Stack, kept: Database) -> None:
    """Everything is root's, as it was when services ran as root; a link in a folder leads out of it."""
    stack.down()
    elsewhere = stack.home.parent / "elsewhere"
    elsewhere.write_text("root's")
    for folder in ("temporal", "prometheus", "pageserver", "objects", "run", "secrets", *SAFEKEEPERS):
        for path in all_of(stack.home / folder):
            os.chown(path, 0, 0, follow_symlinks=False)
        (stack.home / folder).chmod(0o700)
    (stack.home / "pageserver" / "link").symlink_to(elsewhere)
    stack.up()
    for name in WITH_FOLDERS:
        assert {path.lstat().st_uid for path in all_of(stack.home / name)} == {number(stack, name)}, name
    assert elsewhere.stat().st_uid == 0
    (stack.home / "pageserver" / "link").unlink()
    assert wait_for("the database", lambda: answers(kept)) == "500500"
    # Without users of their own again, services run as before.
    stack.down()
    settings = stack.home / "weir.toml"
    text = settings.read_text()
    settings.write_text(text.replace('users = "60578-60705"', 'users = ""'))
    assert "[services] users is empty" in stack.up()
    assert user_of(stack.pid("pageserver")) == user_of(stack.pid("api")) == {0}
    assert user_of(stack.pid("postgres")) not in ({0}, {60_579})
    assert wait_for("the database", lambda: answers(kept)) == "500500"
    stack.down()
    settings.write_text(text)
    stack.up()
    assert user_of(stack.pid("pageserver")) == {number(stack, "pageserver")}
    assert wait_for("the database", lambda: answers(kept)) == "500500"
