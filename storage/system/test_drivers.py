"""Drivers as they are published, through the proxy: at an endpoint's own host and at its pooler's."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy, proxied

TOOLS = Path(os.environ.get("WEIR_TOOLS_DIR", Path.home() / ".cache/weir/bin"))
SCRIPTS = Path(__file__).resolve().parents[2] / "e2e" / "clients"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Few server connections, so that clients of the pooler meet those of others."""
    with proxied("--pool-size", "4") as proxy:
        yield proxy


@pytest.mark.parametrize("script", ["serverless-http", "serverless-ws", "node-postgres"])
def test_a_driver_of_node_works_unchanged(proxy: Proxy, script: str) -> None:
    run_client(proxy, "node", str(SCRIPTS / f"{script}.mjs"))


def test_pgx_works_unchanged(proxy: Proxy) -> None:
    """The program is `e2e/clients/pgx`, which `scripts/setup --only pgx-client` builds."""
    run_client(proxy, str(TOOLS / "weir-pgx-client"))


def test_pgjdbc_works_unchanged(proxy: Proxy) -> None:
    """`scripts/setup --only jdbc-driver` fetches the driver; Java compiles the program as it runs it."""
    program = SCRIPTS / "jdbc" / "Client.java"
    run_client(proxy, "java", "-cp", str(TOOLS / "pgjdbc.jar"), str(program))


def run_client(proxy: Proxy, *command: str) -> None:
    """Runs a program that tries a driver, fails with what went wrong, and says when it is done."""
    environment = {
        **os.environ,
        "NODE_EXTRA_CA_CERTS": str(proxy.authority.root),
        "PROXY_CA": str(proxy.authority.root),
        "PROXY_PORT": str(proxy.port),
        "PROXY_DOMAIN": DOMAIN,
        "PROXY_ENDPOINT": ENDPOINT,
        "PROXY_PASSWORD": PASSWORD,
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert PASSWORD not in proxy.log


@pytest.mark.parametrize("suffix", ["", "-pooler"])
def test_asyncpg_works_with_its_cache_of_statements(proxy: Proxy, suffix: str) -> None:
    async def run() -> None:
        context = ssl.create_default_context(cafile=str(proxy.authority.root))
        context.check_hostname = False
        where: dict[str, Any] = {"host": "127.0.0.1", "port": proxy.port, "database": "appdb", "password": PASSWORD}
        user = f"endpoint={ENDPOINT}{suffix};app"
        clients = [await asyncpg.connect(user=user, ssl=context, **where) for _ in range(8)]

        async def work(client: Any) -> None:
            for number in range(20):
                assert await client.fetchval("SELECT $1::int + 1", number) == number + 1
                async with client.transaction():
                    assert await client.fetchval("SELECT $1::text", str(number)) == str(number)

        await asyncio.gather(*(work(client) for client in clients))
        with pytest.raises(asyncpg.UndefinedTableError):
            await clients[0].fetch("SELECT * FROM nothing")
        with pytest.raises(asyncpg.QueryCanceledError):
            await clients[0].execute("SET LOCAL statement_timeout = 100; SELECT pg_sleep(20)")
        for client in clients:
            await client.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(user=user, ssl=context, **(where | {"password": "wrong"}))

    asyncio.run(run())
