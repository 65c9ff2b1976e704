"""Safekeepers replaced on the real engine: under a compute that writes, and for a branch that has none."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from weir_testing import programs
from weir_testing.fixtures import Weir, control_plane, own_database
from weir_testing.storage import StorageDouble

from weir.config import Settings

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path("~/.cache/weir/target").expanduser()))
BIN_DIR = Path(os.environ.get("WEIR_BIN_DIR", TARGET / "release"))
COMPUTE_PORTS = 20
SAFEKEEPERS = 4


@dataclass
class Keeper:
    """A safekeeper's process, and its disk."""

    number: int
    home: Path
    wal: int
    http: int
    process: asyncio.subprocess.Process | None = None

    @property
    def directory(self) -> Path:
        return self.home / f"safekeeper-{self.number}"

    async def start(self) -> None:
        with (self.home / f"safekeeper-{self.number}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(BIN_DIR / "weir-safekeeper"),
                *("--id", str(self.number), "--data-dir", str(self.directory)),
                *("--listen-wal", f"127.0.0.1:{self.wal}", "--listen-http", f"127.0.0.1:{self.http}"),
                stderr=log,
                stdout=log,
            )
        async with httpx.AsyncClient() as client:
            for _ in range(200):
                try:
                    if (await client.get(f"http://127.0.0.1:{self.http}/healthz")).is_success:
                        return
                except httpx.HTTPError:
                    await asyncio.sleep(0.05)
        raise TimeoutError(f"safekeeper {self.number} does not serve")

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()

    async def lose_its_disk(self) -> None:
        await self.kill()
        shutil.rmtree(self.directory)


@dataclass
class Engine:
    weir: Weir
    keepers: list[Keeper]


@pytest.fixture(name="engine")
async def _engine(
    environment: Settings, postgres_url: str, storage: StorageDouble, scratch: Path
) -> AsyncGenerator[Engine]:
    """A control plane over real storage, with one spare safekeeper."""
    if not (BIN_DIR / "weir-members").exists():
        pytest.skip(f"the storage engine is not built in {BIN_DIR}")
    del environment
    home = scratch / "replaced"
    home.mkdir(mode=0o755)
    ports = [programs.free_port() for _ in range(2 * SAFEKEEPERS + 2)]
    keepers = [Keeper(n, home, ports[2 * n - 2], ports[2 * n - 1]) for n in range(1, SAFEKEEPERS + 1)]
    pages, http = ports[-2:]
    low = programs.free_port_block(COMPUTE_PORTS)
    variables = {
        "WEIR_HOME": str(home / "home"),
        "WEIR_BIN_DIR": str(BIN_DIR),
        "WEIR_TASK_QUEUE": f"replaced-{http}",
        "WEIR_COMPUTE_PORTS": f"{low}-{low + COMPUTE_PORTS - 1}",
        "WEIR_PAGESERVER_HTTP": f"http://127.0.0.1:{http}",
        "WEIR_PAGESERVER_PAGES": f"127.0.0.1:{pages}",
        "WEIR_SAFEKEEPERS_WAL": ",".join(f"127.0.0.1:{keeper.wal}" for keeper in keepers),
        "WEIR_SAFEKEEPERS_HTTP": ",".join(f"http://127.0.0.1:{keeper.http}" for keeper in keepers),
    }
    async with AsyncExitStack() as stack:
        settings = await stack.enter_async_context(own_database(postgres_url, **variables))
        for directory in (settings.home, settings.computes_dir):
            directory.mkdir(mode=0o711, exist_ok=True)
        for keeper in keepers:
            stack.push_async_callback(keeper.kill)
            await keeper.start()
        command = [
            *(str(BIN_DIR / "weir-pageserver"), "--listen-pages", f"127.0.0.1:{pages}"),
            *("--listen-http", f"127.0.0.1:{http}", "--data-dir", str(home / "pageserver")),
            *("--object-store", f"file://{home / 'objects'}", "--pg-bin-dir", str(settings.pg_bin_dir)),
            *("--pg-user", settings.pg_user),
        ]
        check = f"http://127.0.0.1:{http}/healthz"
        stack.enter_context(programs.program(command, home / "pageserver.log", check))
        weir = await stack.enter_async_context(control_plane(settings, storage))
        yield Engine(weir, keepers)
        # Whatever works on one still: a test that failed leaves nothing running.
        for compute in weir.resources.runtime.known():
            process = weir.resources.runtime.process(compute)
            if process is not None:
                weir.resources.runtime.kill(process)


async def _pgbench(settings: Settings, uri: str, *words: str) -> str:
    program = str(settings.pg_bin_dir / "pgbench")
    process = await asyncio.create_subprocess_exec(
        program, *words, uri, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def _write_until(ended: asyncio.Event, settings: Settings, uri: str) -> None:
    """Four clients write for as long as it takes, and no transaction fails."""
    while not ended.is_set():
        assert "number of failed transactions: 0" in await _pgbench(settings, uri, "-n", "-c", "4", "-T", "2")


async def _transactions(uri: str) -> int:
    async with await psycopg.AsyncConnection.connect(uri) as connection:
        found = await (await connection.execute("SELECT count(*) FROM pgbench_history")).fetchone()
    assert found is not None
    return found[0]


def _shown(answer: dict[str, Any]) -> dict[int, tuple[str, str]]:
    return {row["safekeeper_id"]: (row["role"], row["state"]) for row in answer["members"]}


async def test_lost_disks_are_replaced_under_load_and_without_a_compute(engine: Engine) -> None:
    weir, keepers = engine.weir, engine.keepers
    created = await weir.project(name="replaced")
    project, uri = created["project"]["id"], created["connection_uris"][0]["connection_uri"]
    path = f"/projects/{project}/branches/{created['branch']['id']}/safekeepers"
    endpoint = f"/projects/{project}/endpoints/{created['endpoints'][0]['id']}"
    assert _shown(await weir.call("GET", path)) == dict.fromkeys((1, 2, 3), ("voter", "active"))
    await _pgbench(weir.settings, uri, "-i", "-q", "-s", "1")

    replaced = asyncio.Event()
    load = asyncio.create_task(_write_until(replaced, weir.settings, uri))
    await asyncio.sleep(1)
    await keepers[0].lose_its_disk()
    assert _shown(await weir.call("GET", path))[1] == ("voter", "unreachable")
    await weir.finish(await weir.call("POST", path, json={"safekeepers": [2, 3, 4]}))
    replaced.set()
    await load
    assert _shown(await weir.call("GET", path)) == dict.fromkeys((2, 3, 4), ("voter", "active"))
    done = await _transactions(uri)
    assert done > 0

    # Without a compute: 2 is lost too, and 1 is back with a new disk.
    await weir.finish(await weir.call("POST", f"{endpoint}/suspend"))
    await keepers[1].lose_its_disk()
    await keepers[0].start()
    await weir.finish(await weir.call("POST", path, json={"safekeepers": [1, 3, 4]}))
    # And 3 gets its log again on a new disk of its own.
    await keepers[2].lose_its_disk()
    await keepers[2].start()
    assert _shown(await weir.call("GET", path))[3] == ("voter", "lost")
    await weir.finish(await weir.call("POST", path, json={"safekeepers": [1, 3, 4]}))
    assert _shown(await weir.call("GET", path)) == dict.fromkeys((1, 3, 4), ("voter", "active"))

    # The two that were made without a compute are a majority that has everything.
    await keepers[3].kill()
    await weir.finish(await weir.call("POST", f"{endpoint}/start"))
    assert await _transactions(uri) == done
