"""A compute is a stranger to everything else on its machine: its server's rights reach its own, and no further."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import Compute, Engine, wait_for
from strangers import PYTHON, beyond_this_kernel, connects, denied, environment_of, run, user_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives computes users of their own")

# Of a range that nothing else on a machine has; the control plane gives others.
ALICE, BOB = 52_001, 52_002
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  not for temporary files, but what is tested
SECRETS = {"WEIR_DATABASE_URL": "postgresql://weir:hush@127.0.0.1/weir", "AWS_SECRET_ACCESS_KEY": "hush"}
# Of the agent: chown, dac_override, fowner, kill, setgid, setuid, sys_admin.
RIGHTS = {0, 1, 3, 5, 6, 7, 21}


@pytest.fixture(name="two", scope="module")
def _two(shared: Engine) -> tuple[Compute, Compute]:
    """Computes of two tenants, started by somebody whose environment has secrets."""
    pair = [
        shared.compute(shared.create_timeline(), user=user, environment=dict(SECRETS), name=f"ep-{name}")
        for user, name in ((ALICE, "alice"), (BOB, "bob"))
    ]
    return pair[0], pair[1]


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def inside(compute: Compute, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program where Postgres is, in its namespaces and as its user."""
    user = user_of(compute.postmaster).pop()
    enter = ["nsenter", "--target", str(compute.postmaster), "--mount", "--ipc"]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    return subprocess.run([*enter, *become, *command], capture_output=True, text=True, check=False, timeout=20)


def test_each_server_and_all_it_starts_run_as_a_user_of_its_own(two: tuple[Compute, Compute]) -> None:
    for compute, user in zip(two, (ALICE, BOB), strict=True):
        assert user_of(compute.postmaster) == {user}
        assert compute.sql("SELECT 1") == [(1,)]
        with compute.connect() as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            assert user_of(compute.here(row[0])) == {user}
        with compute.admin() as superuser:
            superuser.execute("CREATE TEMP TABLE said (word text)")
            superuser.execute(
                "COPY said FROM PROGRAM 'id -u; id -G; umask; grep NoNewPrivs /proc/self/status | cut -f2'"
            )
            said = [word for (word,) in superuser.execute("SELECT word FROM said").fetchall()]
        assert said == [str(user), str(user), "0077", "1"]


def test_one_servers_rights_open_nothing_of_another(two: tuple[Compute, Compute]) -> None:
    alice, bob = two
    for path in (bob.directory, bob.directory / "pgdata", bob.directory / "sock", bob.directory / "cache"):
        denied(ALICE, "ls", str(path))
    for name in ("pgdata/pg_hba.conf", "pgdata/PG_VERSION", "postgres.log", "spec.json"):
        denied(ALICE, "cat", str(bob.directory / name))
    socket = f".s.PGSQL.{bob.port}"
    assert "PermissionError" in connects(ALICE, bob.directory / "sock" / socket).stderr
    # What is refused to others is there for its owner.
    assert connects(BOB, bob.directory / "sock" / socket).returncode == 0
    for pid in (bob.postmaster, bob.process.child.pid if bob.process.child else 0):
        denied(ALICE, "cat", f"/proc/{pid}/environ")
        code = f"import os; os.kill({pid}, 0)"
        assert "PermissionError" in run(ALICE, PYTHON, "-c", code).stderr
    # The agent's files are its own, though they lie in the compute's folder.
    denied(ALICE, "cat", str(alice.directory / "postgres.log"))
    denied(ALICE, "touch", str(alice.directory / "spec.json"))
    denied(ALICE, "ln", "-s", "/etc/passwd", str(alice.directory / "log"))
    denied(ALICE, "ln", "-s", "/etc/passwd", str(alice.directory / "cache" / "1"))


def test_no_environment_has_what_the_starters_had(two: tuple[Compute, Compute]) -> None:
    for compute in two:
        of_postgres = environment_of(compute.postmaster)
        assert set(of_postgres) <= {"PATH", "PGDATA", "LC_ALL", "WEIR_HOME", "WEIR_SERVICE"}, of_postgres
        assert not any("hush" in value for value in of_postgres.values())
        with compute.admin() as superuser:
            superuser.execute("CREATE TEMP TABLE said (word text)")
            superuser.execute("COPY said FROM PROGRAM 'env | cut -d= -f1'")
            names = {name for (name,) in superuser.execute("SELECT word FROM said").fetchall()}
        assert not names & set(SECRETS), names


def test_namespaces_hide_what_others_have(two: tuple[Compute, Compute]) -> None:
    alice, bob = two
    for kind in ("ipc", "mnt", "pid"):
        spaces = {
            Path(f"/proc/{pid}/ns/{kind}").readlink() for pid in (alice.postmaster, bob.postmaster, os.getpid())
        }
        assert len(spaces) == 3, (kind, spaces)
    kept = SHARED_MEMORY / f"weir-test-{os.getpid()}"
    kept.write_text("of somebody else")
    kept.chmod(0o644)
    try:
        assert kept.name not in inside(alice, "ls", str(SHARED_MEMORY)).stdout
        assert kept.name in run(ALICE, "ls", str(SHARED_MEMORY)).stdout, "from outside it is there to be seen"
    finally:
        kept.unlink()


def test_the_agent_keeps_few_rights_of_root_and_nothing_leaves_a_core(two: tuple[Compute, Compute]) -> None:
    alice, _ = two
    assert alice.process.child is not None
    agent, server = status(alice.process.child.pid), status(alice.postmaster)
    assert {bit for bit in range(64) if int(agent["CapEff"], 16) >> bit & 1} <= RIGHTS
    assert {bit for bit in range(64) if int(agent["CapBnd"], 16) >> bit & 1} <= RIGHTS
    assert int(server["CapEff"], 16) == int(server["CapPrm"], 16) == 0
    assert server["NoNewPrivs"] == "1"
    for pid in (alice.process.child.pid, alice.postmaster):
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        assert next(line for line in limits if "core file" in line).split()[4:6] == ["0", "0"]


def test_the_status_says_what_is_in_force(two: tuple[Compute, Compute], shared: Engine) -> None:
    alice, _ = two
    measures = {"own_user", "own_ipc", "own_mounts", "own_shared_memory", "own_processes", "hidden_processes"}
    measures |= {"few_system_calls", "few_rights_of_root", "own_port"}
    measures -= set(beyond_this_kernel())
    found: dict[str, Any] = alice.status()["confinement"]
    assert (found["uid"], [entry["measure"] for entry in found["missing"]]) == (ALICE, beyond_this_kernel())
    assert set(found["in_force"]) == measures
    # One that was given no user says so, and what it runs as.
    shares = shared.compute(shared.create_timeline())
    missing = shares.status()["confinement"]["missing"]
    assert {entry["measure"] for entry in missing} == {"own_user", *beyond_this_kernel()}
    (reason,) = [entry["reason"] for entry in missing if entry["measure"] == "own_user"]
    assert "runs as postgres" in reason
    assert shares.process.tail(400).count("kept apart from others less") == 1
    shares.suspend()


def test_a_server_starts_again_and_is_suspended_as_before(own: Engine) -> None:
    compute = own.compute(own.create_timeline(), user=ALICE)
    compute.sql("CREATE TABLE kept AS SELECT n FROM generate_series(1, 5000) AS n")
    before = compute.status()["start"]
    os.kill(compute.postmaster, 9)
    wait_for("another run", lambda: compute.status()["restarts"] == 1 and compute.status()["state"] == "running")
    assert compute.sql("SELECT sum(n) FROM kept") == [(12_502_500,)], before
    compute.suspend()
    # As another user, in a folder with what the first one left.
    again = own.compute(compute.timeline, user=BOB, name=compute.process.name)
    assert again.sql("SELECT sum(n) FROM kept") == [(12_502_500,)]
    denied(ALICE, "ls", str(again.directory / "pgdata"))
    owners = {path.lstat().st_uid for path in (again.directory / "pgdata").iterdir() if not path.is_symlink()}
    assert owners == {BOB}


def test_the_agent_follows_no_link_that_the_server_puts_in_its_way(own: Engine, tmp_path: Path) -> None:
    compute = own.compute(own.create_timeline(), user=ALICE)
    data = compute.directory / "pgdata"
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    secret.chmod(0o600)

    def plant(name: str, target: Path) -> None:
        done = run(ALICE, "ln", "-sfn", str(target), str(data / name))
        assert done.returncode == 0, done.stderr

    for name in ("weir.settings.conf", "weir.settings.conf.next", "weir.trial.conf", "weir.trial.settings.conf.next"):
        plant(name, secret)
    code, answer = compute.configure(settings={**compute.spec()["settings"], "work_mem": "5MB"})
    assert (code, answer.get("failed")) == (200, []), answer
    assert compute.sql("SHOW work_mem") == [("5MB",)]
    # A suspend reads the server's statistics.
    shutil.rmtree(data / "pg_stat")
    (tmp_path / "pgstat.stat").write_text("of somebody else")
    plant("pg_stat", tmp_path)
    compute.suspend()
    assert "was not followed" in compute.process.tail(400)
    (tmp_path / "pgstat.stat").unlink()
    for name in ("postgresql.auto.conf", "pg_wal"):
        (data / name).unlink() if name.endswith("conf") else shutil.rmtree(data / name)
        plant(name, secret if name.endswith("conf") else tmp_path)
    again = own.compute(compute.timeline, user=BOB, name=compute.process.name)
    assert again.sql("SELECT 1") == [(1,)]
    assert secret.read_text() == "of somebody else"
    assert (secret.stat().st_uid, secret.stat().st_mode & 0o777) == (0, 0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_an_agent_of_a_plain_user_says_what_does_not_hold(own: Engine) -> None:
    # Programs may lie where a plain user cannot come to.
    program = own.root / "weir-compute"
    shutil.copy(own.bin_dir / "weir-compute", program)
    program.chmod(0o755)
    directory = own.compute_directory("ep-plain")
    directory.mkdir(parents=True)
    shutil.chown(directory, "postgres", "postgres")
    # The device of FUSE may be root's alone here: not for this agent, in mounts of its own.
    device = own.root / "fuse"
    os.mknod(device, 0o666 | stat.S_IFCHR, Path("/dev/fuse").stat().st_rdev)
    device.chmod(0o666)
    become = f"mount --bind {device} /dev/fuse && exec setpriv --reuid=postgres --regid=postgres --init-groups -- "
    words = ["unshare", "--mount", "sh", "-c", become + f'{program} "$@"', "agent"]
    compute = own.compute(own.create_timeline(), wait=False, name="ep-plain", launcher=words)
    # It says so whether or not this machine lets a plain user mount.
    wait_for("the agent to answer", lambda: compute.http.get("/status").status_code == 200)
    found = wait_for("a first start", lambda: compute.status()["confinement"] or _cannot_mount(compute))
    missing = {entry["measure"]: entry["reason"] for entry in found["missing"]}
    spaces = {"own_ipc", "own_mounts", "own_shared_memory", "own_processes", "hidden_processes"}
    assert set(missing) == {"own_user", *spaces, *beyond_this_kernel()}
    assert "not run as root" in missing["own_ipc"]


def _cannot_mount(compute: Compute) -> None:
    reason = compute.status()["reason"]
    if reason is not None and "cannot mount" in reason:
        pytest.skip(f"a plain user cannot mount here: {reason}")
