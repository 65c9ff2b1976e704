"""A user of the operating system is never shared by two computes that run, and finds nothing of the one before."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from weir_testing import programs
from weir_testing.fixtures import install_compute_double

from weir.config import Settings
from weir_workflows.computes import control
from weir_workflows.runtime import environment, users
from weir_workflows.runtime.local import LocalRuntime
from weir_workflows.runtime.users import NoUserError, Users

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives computes users of their own")
# Of a range that nothing else on a machine has.
POOL = range(53_001, 53_004)
NO_FOLDER = r"Not a directory|symbolic"
HIDE = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('hidden', flush=True); time.sleep(60)"


@pytest.fixture(name="folders")
def _folders(tmp_path: Path) -> list[Path]:
    # Other users are to come as far as the folders themselves.
    for part in (tmp_path, *tmp_path.parents):
        if part.is_relative_to("/tmp") and part != Path("/tmp"):  # noqa: S108
            part.chmod(part.stat().st_mode | 0o011)
    made = [tmp_path / name for name in ("first", "second", "third", "fourth")]
    for folder in made:
        folder.mkdir(mode=0o700)
    return made


@pytest.fixture(name="users")
def _users(tmp_path: Path) -> Users:
    return Users(POOL, tmp_path / "users")


def number_of(taken: tuple[int, int] | None) -> int:
    assert taken is not None
    return taken[0]


def reads(user: int, path: Path) -> bool:
    command = ["/bin/cat", str(path)]
    return subprocess.run(command, user=user, group=user, extra_groups=[], cwd="/", check=False).returncode == 0


def put_file(folder: Path, user: int) -> Path:
    """What a server leaves: a folder and a file of its own."""
    data = folder / "pgdata"
    data.mkdir(mode=0o700)
    (data / "rows").write_text("of the one before")
    for path in (data, data / "rows"):
        os.chown(path, user, user)
    return data / "rows"


@as_root
def test_numbers_are_not_shared_and_an_empty_pool_says_what_to_do(users: Users, folders: list[Path]) -> None:
    with users.taken(folders[0]) as one, users.taken(folders[1]) as two, users.taken(folders[2]) as three:
        assert sorted(map(number_of, (one, two, three))) == list(POOL)
        # Another worker, or another installation, of the same machine.
        with pytest.raises(NoUserError, match=r"53001-53003.*\[computes\] users"), users.taken(folders[3]):
            pass
    with users.taken(folders[3]) as again:
        assert number_of(again) in POOL


@as_root
def test_a_number_stays_taken_as_long_as_the_agent_lives(users: Users, folders: list[Path]) -> None:
    with users.taken(folders[0]) as taken:
        assert taken is not None
        number, lock = taken
        agent = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, lock, 3)])
    try:
        with users.taken(folders[1]) as other:
            assert number_of(other) != number
    finally:
        os.kill(agent, signal.SIGKILL)
        os.waitpid(agent, 0)
    with users.taken(folders[2]) as after:
        assert number_of(after) == number, "it is free once the agent has died, however it died"


@as_root
def test_a_crash_frees_the_number_and_what_it_left_is_closed_before_another_gets_it(
    users: Users, folders: list[Path], tmp_path: Path
) -> None:
    """A worker of another process takes a number, and dies before anything was cleaned up."""
    code = (
        "import sys, time; from pathlib import Path; from weir_workflows.runtime.users import Users\n"
        f"with Users(range({POOL[0]}, {POOL[-1]} + 1), Path(sys.argv[1])).taken(Path(sys.argv[2])) as taken:\n"
        "    print(taken[0], flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "users"), str(folders[0])]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    number = int(worker.stdout.readline())
    rows = put_file(folders[0], number)
    assert reads(number, rows), "while it is the compute's"
    with users.taken(folders[1]) as other:
        assert number_of(other) != number
    worker.kill()
    worker.wait()
    worker.stdout.close()
    with users.taken(folders[2]) as reused:
        assert number_of(reused) == number
        assert not reads(number, rows), "another compute's server reads what the one before has left"
        mine = put_file(folders[2], number)
        assert reads(number, mine)
    assert rows.read_text() == "of the one before"


@as_root
def test_a_compute_that_has_another_number_by_now_is_left_alone(users: Users, folders: list[Path]) -> None:
    with users.taken(folders[0]) as first:
        number = number_of(first)
    with users.taken(folders[1]) as _blocks_the_first, users.taken(folders[0]) as second:
        moved = number_of(second)
        assert moved != number
        rows = put_file(folders[0], moved)
        assert reads(moved, rows)
        with users.taken(folders[2]):
            assert reads(moved, rows)


@as_root
def test_a_number_that_a_process_has_is_not_given_even_if_it_hides(users: Users, folders: list[Path]) -> None:
    command = ["/usr/bin/python3", "-c", HIDE]
    left = subprocess.Popen(command, user=POOL[0], group=POOL[0], extra_groups=[], cwd="/", stdout=subprocess.PIPE)
    try:
        assert left.stdout is not None
        assert left.stdout.readline() == b"hidden\n"
        assert Path(f"/proc/{left.pid}/fd").stat().st_uid == 0, "what is in its folder is hidden from its own user"
        with users.taken(folders[0]) as taken:
            assert number_of(taken) == POOL[1]
    finally:
        left.kill()
        left.communicate()


@as_root
def test_a_folder_is_never_opened_through_a_link(users: Users, folders: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "of-somebody-else"
    target.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(OSError, match=NO_FOLDER), users.taken(link):
        pass
    with pytest.raises(OSError, match=NO_FOLDER):
        users.close(link)
    assert (target.stat().st_mode & 0o777, target.stat().st_gid) == (0o700, 0)
    # The number was not kept by the attempt.
    with users.taken(folders[0]) as taken:
        assert number_of(taken) == POOL[0]


def test_a_plain_user_gives_nobody_another(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users.os, "geteuid", lambda: 1000)
    with Users(POOL, folders[0] / "users").taken(folders[1]) as taken:
        assert taken is None
    assert folders[1].stat().st_mode & 0o777 == 0o700
    assert not (folders[0] / "users").exists()


def test_an_agent_is_told_nothing_secret() -> None:
    told = environment.of_agent(
        {
            "PATH": "/usr/bin",
            "WEIR_HOME": "/var/lib/weir",
            "WEIR_SERVICE": "worker",
            "WEIR_COMPUTE_CACHE_MIB": "64",
            "WEIR_DATABASE_URL": "postgresql://weir:hush@127.0.0.1/weir",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=hush",
            "PGPASSWORD": "hush",
        }
    )
    assert sorted(told) == ["PATH", "WEIR_COMPUTE_CACHE_MIB", "WEIR_HOME", "WEIR_SERVICE"]


@as_root
async def test_a_compute_is_started_as_a_user_of_its_own_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "USERS_DIR", tmp_path / "users")
    monkeypatch.setenv("WEIR_DATABASE_URL", "postgresql://weir:hush@127.0.0.1/weir")
    install_compute_double(tmp_path / "bin")
    pool = f"{POOL[0]}-{POOL[-1]}"
    runtime = LocalRuntime(Settings(home=tmp_path / "home", bin_dir=tmp_path / "bin", compute_users=pool))
    started: list[int] = []
    async with httpx.AsyncClient() as http:
        for ident in ("ep-one", "ep-two"):
            await control.ensure_running(runtime, http, _spec(ident))
            process = runtime.process(ident)
            assert process is not None
            words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
            started.append(int(words[words.index("--user") + 1]))
            about = runtime.directory(ident).stat()
            assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (0, started[-1], 0o710)
            assert "hush" not in Path(f"/proc/{process.pid}/environ").read_text()
        assert started == [POOL[0], POOL[1]]
        await control.stop(runtime, http, "ep-one", "suspend")
        about = runtime.directory("ep-one").stat()
        assert (about.st_gid, about.st_mode & 0o777) == (0, 0o700), "a stopped compute's folder is closed"
        # A wake takes whichever is free.
        await control.ensure_running(runtime, http, _spec("ep-one"))
        assert runtime.directory("ep-one").stat().st_gid == POOL[0]
        for ident in ("ep-one", "ep-two"):
            await control.stop(runtime, http, ident, "immediate")


def _spec(ident: str) -> dict[str, Any]:
    return {
        "compute_id": ident,
        "timeline_id": "0" * 32,
        "listen": "127.0.0.1",
        "port": programs.free_port_block(2),
        "full_page_writes": True,
        "settings": {},
    }
