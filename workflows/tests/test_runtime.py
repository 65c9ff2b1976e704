"""The local runtime: what it starts outlives it, and it never touches a process that is not its own."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Collection, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from weir_testing import programs
from weir_testing.fixtures import install_compute_double

from weir.config import Settings
from weir_workflows.computes import control, stages
from weir_workflows.runtime import local
from weir_workflows.runtime.local import BusyError, LocalRuntime, agent_address, mounts_below
from weir_workflows.runtime.process import ProcessId, find_by_arguments

ID = "ep-test-runtime-00000001"


@pytest.fixture(name="settings")
def _settings(tmp_path: Path) -> Settings:
    install_compute_double(tmp_path / "bin")
    return Settings(home=tmp_path / "home", bin_dir=tmp_path / "bin")


@pytest.fixture(name="runtime")
def _runtime(settings: Settings) -> Generator[LocalRuntime]:
    runtime = LocalRuntime(settings)
    yield runtime
    for compute_id in runtime.known():
        process = runtime.process(compute_id)
        if process is not None:
            runtime.kill(process)


@pytest.fixture(name="http")
async def _http() -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


def spec(**settings: str) -> dict[str, Any]:
    return {
        "compute_id": ID,
        "timeline_id": "0" * 32,
        "listen": "127.0.0.1",
        "port": programs.free_port_block(2),
        "full_page_writes": True,
        "settings": settings,
    }


async def test_starting_twice_starts_once(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    wanted = spec()
    first = await control.ensure_running(runtime, http, wanted)
    process = runtime.process(ID)
    assert first.state == "running"
    assert process is not None
    await asyncio.gather(*(control.ensure_running(runtime, http, wanted) for _ in range(3)))
    assert runtime.process(ID) == process


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", r"127\.0\.0\.1:7701"),
        ("::1", r"\[::1\]:7701"),
        ("localhost", r"(127\.0\.0\.1|\[::1\]):7701"),
    ],
)
def test_an_agent_is_given_an_address_where_its_host_has_a_name(host: str, expected: str) -> None:
    assert re.fullmatch(expected, agent_address(host, 7701))


async def test_a_compute_outlives_the_worker_that_started_it(
    runtime: LocalRuntime, http: httpx.AsyncClient, settings: Settings
) -> None:
    """Started by a process of its own that is then killed with its whole group."""
    wanted = spec()
    runtime.directory(ID).mkdir(parents=True)
    code = (
        "import sys, json; from weir.config import Settings; from pathlib import Path\n"
        "from weir_workflows.runtime.local import LocalRuntime\n"
        "home, bin_dir, spec = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])\n"
        "LocalRuntime(Settings(home=home, bin_dir=bin_dir)).spawn(spec['compute_id'], spec)\n"
        "import time; print('started', flush=True); time.sleep(60)\n"
    )
    arguments = [sys.executable, "-c", code, str(settings.home), str(settings.bin_dir), json.dumps(wanted)]
    worker = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdout is not None
    await asyncio.to_thread(worker.stdout.readline)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()

    process = runtime.process(ID)
    assert process is not None
    status = await control.ensure_running(runtime, http, wanted)
    assert status.state == "running"
    assert runtime.process(ID) == process
    await control.stop(runtime, http, ID, "suspend")
    assert not process.alive()


async def test_a_recycled_pid_is_never_signalled(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    """The pid file names a living process that is somebody else's: same pid, other start time."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        real = ProcessId.of_running(bystander.pid)
        assert real is not None
        for text in (
            ProcessId(real.pid, real.start_ticks - 1, real.boot).text(),
            ProcessId(real.pid, real.start_ticks, "another-boot").text(),
            "garbage",
            "",
        ):
            directory = runtime.directory(ID)
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "pid").write_text(text)
            assert runtime.process(ID) is None
            await control.stop(runtime, http, ID, "immediate")
            assert not (directory / "pid").exists()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.communicate()


async def test_a_process_whose_pid_was_never_written_is_found(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    """The worker died between starting it and writing that down."""
    wanted = spec()
    await control.ensure_running(runtime, http, wanted)
    process = runtime.process(ID)
    (runtime.directory(ID) / "pid").unlink()
    assert runtime.process(ID) == process
    await control.ensure_running(runtime, http, wanted)
    assert runtime.process(ID) == process


async def test_processes_of_others_are_looked_at_only_where_one_may_be_the_computes(
    runtime: LocalRuntime, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(arguments: Collection[str]) -> dict[str, ProcessId]:
        asked.append(len(arguments))
        return find_by_arguments(arguments)

    monkeypatch.setattr(local, "find_by_arguments", counted)
    wanted = spec()
    await control.ensure_running(runtime, http, wanted)
    assert asked.pop() == 1, "nobody has seen it without a process yet"
    await control.stop(runtime, http, ID, "suspend")
    asked.clear()
    await control.ensure_running(runtime, http, wanted)
    process = runtime.process(ID)
    assert process is not None
    assert not any(asked), "it was seen to have none, and nobody had started it"
    # The worker died between starting it and writing that down; then it died itself.
    (runtime.directory(ID) / "pid").unlink()
    assert runtime.process(ID) == process
    assert asked.pop() == 1
    runtime.kill(process)


async def test_each_stage_of_a_start_is_counted_once(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    def counts() -> dict[str, float]:
        return {
            sample.labels["stage"]: sample.value
            for sample in next(iter(stages.SECONDS.collect())).samples
            if sample.name.endswith("_count")
        }

    before = counts()
    wanted = spec()
    await control.ensure_running(runtime, http, wanted)
    more = {stage: count - before[stage] for stage, count in counts().items()}
    # The double's agent tells of these two.
    assert {stage for stage, count in more.items() if count == 1} == {
        "process", "agent", "agent_elect", "agent_bundle",
    }  # fmt: skip
    before = counts()
    await control.ensure_running(runtime, http, wanted)
    assert counts() == before, "it ran already"


async def test_a_compute_on_another_timeline_than_its_branchs_is_started_again(
    runtime: LocalRuntime, http: httpx.AsyncClient
) -> None:
    """A start that was asked for before its branch was put back comes late."""
    first = spec()
    await control.ensure_running(runtime, http, first)
    late = runtime.process(ID)
    wanted = first | {"timeline_id": "1" * 32}
    await control.ensure_running(runtime, http, wanted)
    assert runtime.process(ID) not in {None, late}
    assert (runtime.spec(ID) or {})["timeline_id"] == wanted["timeline_id"]


async def test_a_killed_compute_is_started_again(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    wanted = spec()
    await control.ensure_running(runtime, http, wanted)
    process = runtime.process(ID)
    assert process is not None
    runtime.kill(process)
    while process.alive():
        await asyncio.sleep(0.01)
    assert runtime.process(ID) is None
    await control.ensure_running(runtime, http, wanted)
    assert runtime.process(ID) not in {None, process}


async def test_a_compute_that_cannot_start_says_why(runtime: LocalRuntime, http: httpx.AsyncClient) -> None:
    with pytest.raises(control.ComputeStartError, match="the double was told to fail"):
        await control.ensure_running(runtime, http, spec(**{"test.mode": "fail"}))
    assert runtime.process(ID) is None


async def test_a_compute_that_ignores_requests_to_stop_is_killed(
    runtime: LocalRuntime, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "TERM_PATIENCE_SECONDS", 0.2)
    await control.ensure_running(runtime, http, spec())
    process = runtime.process(ID)
    assert process is not None
    # Stopped by the kernel it neither answers nor takes SIGTERM.
    process.signal(signal.SIGSTOP)
    await control.stop(runtime, http, ID, "suspend")
    assert not process.alive()


async def test_one_actor_a_compute(runtime: LocalRuntime) -> None:
    with runtime.exclusive(ID), pytest.raises(BusyError), runtime.exclusive(ID):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_dead_mount_is_removed_and_never_deleted_through(
    runtime: LocalRuntime, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    volume = runtime.directory(ID) / "volume"
    volume.mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    subprocess.run(["mount", "--bind", str(precious), str(volume)], check=True)
    try:
        assert mounts_below(runtime.directory(ID)) == [volume]
        await control.stop(runtime, http, ID, "immediate")
        assert mounts_below(runtime.directory(ID)) == []
        runtime.remove(ID)
        assert not runtime.directory(ID).exists()
        assert (precious / "file").read_text() == "keep me"
    finally:
        for mount in mounts_below(tmp_path):
            subprocess.run(["umount", "-l", str(mount)], check=False)


def test_ids_that_are_no_ids_never_become_paths(runtime: LocalRuntime) -> None:
    for bad in ("", "../etc", "a/b", "A", "."):
        with pytest.raises(ValueError, match="not a compute id"):
            runtime.directory(bad)
