"""Settings of a compute: an allow-list that the agent checks for itself, and changes that are taken back whole."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from harness import PASSWORD, Compute, Engine, scram_verifier, wait_for

# Those that once went through, and then locked everyone out, ran programs, or wrote files.
REFUSED = {
    "ssl_passphrase_command": "/bin/true",
    "jit_provider": "x",
    "local_preload_libraries": "x",
    "session_preload_libraries": "x",
    "dynamic_library_path": "/tmp",  # noqa: S108 - a path that is refused
    "archive_cleanup_command": "/bin/true",
    "recovery_end_command": "/bin/true",
    "include": "/etc/passwd",
    "log_directory": "/tmp",  # noqa: S108
    "shared_buffers": "64GB",
    "fsync": "off",
    "wal_level": "logical",
    "nonsense": "1",
    "plperl.on_init": "x",
    "work_mem": "lots",
    "search_path": "public\nfsync = off",
    "app.tenant": "a\x00b",
    "work_mem = '4MB'\nfsync": "off",
}


def configure(compute: Compute, settings: dict[str, Any], **changes: object) -> tuple[int, dict[str, Any]]:
    return compute.configure(settings={**compute.spec()["settings"], **settings}, **changes)


def shown(compute: Compute, name: str) -> dict[str, Any]:
    settings = compute.http.get("/settings").raise_for_status().json()["settings"]
    return next(item for item in settings if item["name"] == name)


def start_again(compute: Compute, settings: dict[str, Any]) -> Compute:
    """The compute's process anew, with the same directory and a spec with these settings."""
    spec = {**compute.spec(), "settings": settings}
    compute.suspend()
    (compute.directory / "spec.json").write_text(json.dumps(spec))
    compute.process.start()
    compute.wait_running()
    return compute


def test_the_agent_refuses_what_the_list_does_whoever_asks(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    conf = (compute.directory / "pgdata/weir.settings.conf").read_text()
    for name, value in REFUSED.items():
        code, answer = configure(compute, {"work_mem": "8MB", name: value})
        assert (code, answer["code"]) == (400, "bad_spec"), (name, answer)
        assert name.split("\n")[0].split("=")[0].strip() in answer["message"]
        assert compute.sql("SHOW work_mem") == [("4MB",)]
    assert (compute.directory / "pgdata/weir.settings.conf").read_text() == conf
    compute.suspend()


def test_values_reach_postgres_as_they_were_given(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    odd = {"search_path": """"it's", "back\\slash", 'x' """, "app.tenant": """'; DROP\\'""", "app.empty": ""}
    assert configure(compute, odd)[0] == 200
    for name, value in odd.items():
        assert compute.sql(f"SELECT current_setting('{name}')") == [(value,)]
        assert shown(compute, name)["state"] == "in_force"
        assert shown(compute, name)["in_force"] == value
    compute.suspend()


def test_a_setting_is_in_force_at_once_or_pending_until_the_next_start(shared: Engine) -> None:
    timeline = shared.create_timeline()
    compute = shared.compute(timeline)
    assert configure(compute, {"Work_Mem": "8 MB"}) == (200, {"pending_restart": [], "failed": []})
    assert compute.sql("SHOW work_mem") == [("8MB",)]
    assert shown(compute, "Work_Mem") == {
        "name": "Work_Mem", "wanted": "8 MB", "in_force": "8MB", "state": "in_force", "reason": None,
    }  # fmt: skip
    code, answer = configure(compute, {"shared_buffers": "32MB"})
    assert (code, answer["pending_restart"]) == (200, ["shared_buffers"])
    waiting = shown(compute, "shared_buffers")
    assert (waiting["state"], waiting["wanted"], waiting["in_force"]) == ("pending_restart", "32MB", "64MB")
    again = start_again(compute, {"shared_buffers": "32MB"})
    now = shown(again, "shared_buffers")
    assert (now["state"], now["in_force"]) == ("in_force", "32MB")
    again.suspend()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        # Postgres knows the time zones, and the kernel the limit of a stack; the list knows neither.
        ({"timezone": "Nowhere/Nothing"}, "TimeZone"),
        ({"max_stack_depth": "1GB"}, "max_stack_depth"),
        # Postgres takes it, and then lets in only clients that ask for another encoding.
        ({"client_encoding": "MULE_INTERNAL"}, "conversion between"),
    ],
)
def test_settings_that_postgres_refuses_or_that_lock_clients_out_are_taken_back(
    shared: Engine, setting: dict[str, str], said: str
) -> None:
    compute = shared.compute(shared.create_timeline(), settings={"work_mem": "6MB"})
    [name] = setting
    before = compute.sql(f"SELECT current_setting('{name}')")
    roles = [*compute.spec()["roles"], {"name": "other", "password": scram_verifier(PASSWORD)}]
    code, answer = configure(compute, {**setting, "work_mem": "8MB"}, roles=roles)
    assert (code, answer["code"]) == (422, "refused")
    assert said in answer["message"]
    assert "before" in answer["message"]
    # All of the change is taken back, a client connects, and the rest of the spec is applied.
    with compute.connect() as session:
        assert session.execute("SHOW work_mem").fetchone() == ("6MB",)
    assert compute.sql(f"SELECT current_setting('{name}')") == before
    assert compute.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'other'") == [(1,)]
    for failed in (name, "work_mem"):
        item = shown(compute, failed)
        assert item["state"] == "failed"
        assert said in item["reason"]
    assert shown(compute, "work_mem")["in_force"] == "6MB"
    # Other changes need not wait until it is gone, and are told of it.
    code, answer = configure(compute, {**setting, "work_mem": "8MB"})
    assert code == 200
    assert {item["name"] for item in answer["failed"]} == {name, "work_mem"}
    assert configure(compute, {"work_mem": "8MB"}) == (200, {"pending_restart": [], "failed": []})
    assert compute.sql("SHOW work_mem") == [("8MB",)]
    compute.suspend()


@pytest.mark.parametrize(
    "setting",
    [{"timezone": "Nowhere/Nothing"}, {"client_encoding": "MULE_INTERNAL"}, {"local_preload_libraries": "x"}],
)
def test_a_start_falls_back_to_the_settings_that_worked_last(shared: Engine, setting: dict[str, str]) -> None:
    timeline = shared.create_timeline()
    compute = shared.compute(timeline, settings={"work_mem": "6MB"})
    cleared = {**compute.spec()["settings"], "work_mem": "9MB"}
    again = start_again(compute, {**cleared, **setting})
    [name] = setting
    with again.connect() as session:
        # What the list refuses is left out alone; what Postgres does not start with is not known one by one.
        alone = name == "local_preload_libraries"
        assert session.execute("SHOW work_mem").fetchone() == ("9MB" if alone else "6MB",)
    item = shown(again, name)
    assert item["state"] == "failed"
    assert item["reason"]
    log = again.process.tail(400)
    assert ("starting without a setting" if alone else "starting with the settings that worked last") in log
    # Clearing it works, and with it everything else is in force.
    assert again.configure(settings=cleared) == (200, {"pending_restart": [], "failed": []})
    assert again.sql("SHOW work_mem") == [("9MB",)]
    again.suspend()


def test_settings_that_lock_everybody_out_are_cleared_without_a_session(shared: Engine) -> None:
    """Once, clearing them needed the session that they prevented."""
    timeline = shared.create_timeline()
    compute = shared.compute(timeline)
    settings = compute.directory / "pgdata/weir.settings.conf"
    # Not through the agent, which would have refused it.
    settings.write_text(settings.read_text() + "local_preload_libraries = 'x'\n")
    with compute.admin() as session:
        session.execute("SELECT pg_reload_conf()")

    def locked_out() -> bool:
        try:
            compute.connect().close()
        except psycopg.OperationalError as error:
            return "could not access file" in str(error)
        return False

    wait_for("clients to be locked out", locked_out)
    code, answer = configure(compute, {"work_mem": "8MB"})
    assert code == 200, answer
    assert compute.sql("SHOW work_mem") == [("8MB",)]
    compute.suspend()


def test_another_size_comes_into_force_without_ending_a_session(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    names = ("work_mem", "maintenance_work_mem", "effective_cache_size", "max_parallel_workers", "temp_file_limit")
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    stock = ("4MB", "64MB", "4GB", "8", "10GB")
    with compute.connect() as session:
        assert session.execute(query).fetchone() == stock
        assert configure(compute, {}, compute_units=2.0) == (200, {"pending_restart": [], "failed": []})
        # The same session has them with its next statement.
        assert session.execute(query).fetchone() == ("8MB", "128MB", "8GB", "16", "20GB")
        assert compute.status()["compute_units"] == 2.0
        # What is chosen by name stays, whatever the size is.
        assert configure(compute, {"Work_Mem": "5MB"}, compute_units=0.25)[0] == 200
        assert session.execute(query).fetchone() == ("5MB", "16MB", "1GB", "2", "2560MB")
        assert configure(compute, {}, compute_units=1.0)[0] == 200
        assert session.execute(query).fetchone() == stock
    shown = compute.http.get("/settings").json()["settings"]
    assert "effective_cache_size" not in [item["name"] for item in shown], "nobody has chosen it"
    compute.suspend()
    again = shared.compute(compute.timeline, compute_units=2.0)
    assert again.sql(query) == [("8MB", "128MB", "8GB", "16", "20GB")]
    again.suspend()


def test_a_session_spills_so_much_and_no_more(shared: Engine) -> None:
    """The least size keeps the test short: a hundredth of a unit, and 100 MB of temporary files a session."""
    compute = shared.compute(shared.create_timeline(), compute_units=0.01)
    words = "SELECT md5(n::text) AS word FROM generate_series(1, %s) AS n ORDER BY word OFFSET 1"
    spill = f"SELECT count(*) FROM ({words}) AS sorted"
    with compute.connect() as session:
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temporary file size exceeds"):
            session.execute(spill, (4_000_000,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SET temp_file_limit = -1")
        assert session.execute(spill, (100_000,)).fetchone() == (99_999,)
    compute.suspend()


def test_a_busy_postgres_says_how_busy_it_is(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    idle = wait_for("two samples", lambda: compute.status()["load"], 30)
    assert idle["memory_bytes"] > 10 << 20
    compute.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 200000) n")

    def busy(session: psycopg.Connection[Any]) -> None:
        # Short statements: Postgres counts what a session reads once its transaction is over.
        until = time.monotonic() + 18
        while time.monotonic() < until:
            session.execute("SELECT count(*) FROM t")

    def shown() -> dict[str, float] | None:
        load = compute.status()["load"]
        return load if load["processors"] > 0.05 and load["buffer_hits_per_second"] > 100 else None

    with compute.connect() as session, ThreadPoolExecutor(1) as client:
        running = client.submit(busy, session)
        seen = wait_for("the load to show", shown, 18)
        running.result()
    # One session has no more than one processor; what else Postgres does is little.
    assert idle["processors"] <= seen["processors"] + 1 < 3
    compute.suspend()
