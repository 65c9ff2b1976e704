"""Where drivers' own tests are run: a stock Postgres, and a compute of Weir through its proxy, both with the same
names, certificate, role and settings, so that a test can see by nothing but the server's behaviour which it has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from harness import Compute, engine, wait_for
from proxying import DOMAIN, ENDPOINT, PASSWORD, Proxy, proxied
from psycopg import sql

STOCK = "stock"
# Ways to a Weir, by what is added to the endpoint's name.
WAYS = {"direct": "", "pooler": "-pooler"}
ROLE = "app"
# Settings of a compute that drivers' tests ask for, and skip themselves by or compare with; the stock server is given
# the compute's. Which settings may differ at all is the matter of storage/system/test_parity.py.
SHARED = ("max_prepared_transactions", "TimeZone", "log_timezone", "lc_messages", "default_text_search_config")
# What the suites of pools open at most, and room.
CONNECTIONS = "200"
# Between two lines about a run.
TOLD_EVERY_SECONDS = 30.0


class SuiteError(RuntimeError):
    """A suite did not come to its end. The text says how, and where its output is."""


@dataclass(frozen=True)
class Place:
    """One way to one server. `log` is the path of a run's output and results, without suffix."""

    proxy: Proxy
    compute: Compute
    hosts: Path
    way: str
    database: str
    log: Path
    say: Callable[[str], None]

    @property
    def host(self) -> str:
        """A name that resolves for what `run` runs, and that the server's certificate is of."""
        return f"{STOCK}.{DOMAIN}" if self.way == STOCK else f"{ENDPOINT}{WAYS[self.way]}.{DOMAIN}"

    @property
    def port(self) -> int:
        return self.proxy.stock.port if self.way == STOCK else self.proxy.port

    @property
    def root_certificate(self) -> Path:
        return self.proxy.authority.root

    @property
    def libpq(self) -> dict[str, str]:
        """The address as the environment variables that libpq and most drivers read."""
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": ROLE,
            "PGPASSWORD": PASSWORD,
            "PGDATABASE": self.database,
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": str(self.root_certificate),
        }

    def make_database(self, statements: Sequence[str]) -> None:
        """Makes the database anew, owned by the role, and has the role run `statements` in it, past the proxy. Raises
        psycopg.Error when the server refuses."""
        with self._superuser() as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)".encode())
            shape = "TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
            admin.execute(f"CREATE DATABASE {self.database} OWNER {ROLE} {shape}".encode())
        port = self.proxy.stock.port if self.way == STOCK else self.compute.port
        where: dict[str, Any] = {"host": "127.0.0.1", "port": port, "user": ROLE, "password": PASSWORD}
        with psycopg.connect(**where, dbname=self.database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def make_roles(self, *names: str) -> None:
        """Roles that tests name and nobody logs in as; those that are there stay."""
        with self._superuser() as admin:
            there = {row[0] for row in admin.execute("SELECT rolname FROM pg_roles").fetchall()}
            for name in names:
                if name not in there:
                    admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))

    @contextlib.contextmanager
    def _superuser(self) -> Generator[psycopg.Connection[Any]]:
        with self.proxy.stock.admin() if self.way == STOCK else self.compute.admin("postgres") as admin:
            yield admin

    def run(
        self,
        command: Sequence[str],
        directory: Path,
        more: Mapping[str, str],
        *,
        seconds: float,
        ended: Callable[[str], int],
        output: Path | None = None,
    ) -> None:
        """Runs a suite to its end, within `seconds`, and says from time to time how many tests `ended` by what it
        counts in each line of the output. The output goes to `output`, or to the log, where errors go. Raises
        SuiteError when it ended otherwise than by passed and failed tests, or did not end."""
        unset = {name for name in os.environ if name.startswith("PG") or name == "PYTHONPATH"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        environment = {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}
        log = self.log.with_suffix(".log")
        with log.open("wb") as errors, (output or log).open("ab" if output is None else "wb") as out:
            child = subprocess.Popen(
                resolving(self.hosts, command),
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            try:
                status = self._watch(child, output or log, seconds, ended)
            finally:
                # A suite that broke off can leave programs of its own behind.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if status is None:
            raise SuiteError(f"{self.log.name} was not at its end after {seconds:.0f} s; its output is {log}")
        # 1: some tests failed.
        if status not in {0, 1}:
            raise SuiteError(f"{self.log.name} ended with status {status}; its output is {log}")

    def _watch(
        self, child: subprocess.Popen[bytes], output: Path, seconds: float, ended: Callable[[str], int]
    ) -> int | None:
        """Its status; None when it has none after `seconds`."""
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            try:
                return child.wait(min(TOLD_EVERY_SECONDS, seconds - passed))
            except subprocess.TimeoutExpired:
                lines = output.read_text(errors="replace").splitlines()
                done = sum(ended(line) for line in lines)
                self.say(f"  {self.log.name}: {done} tests after {time.monotonic() - begun:.0f} s")
        return None


def resolving(hosts: Path, command: Sequence[str]) -> list[str]:
    """`command` as a process for which `hosts` is /etc/hosts: drivers of other languages cannot be told an address
    beside the name, and the name is what proxies know endpoints by."""
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *rights, "sh", "-c", script, str(hosts), *command]


@dataclass(frozen=True)
class Servers:
    """A stock Postgres and a Weir, for one suite."""

    proxy: Proxy
    compute: Compute
    hosts: Path

    def place(self, way: str, database: str, log: Path, say: Callable[[str], None]) -> Place:
        return Place(self.proxy, self.compute, self.hosts, way, database, log, say)


@contextlib.contextmanager
def servers(*proxy_arguments: str) -> Generator[Servers]:
    """Starts them all anew; nothing of them is left behind."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-clients-")))
        root.chmod(0o755)
        running = stack.enter_context(engine(Path(tempfile.mkdtemp(prefix="weir-clients-engine-"))))
        compute = running.compute(running.create_timeline(), settings={"max_connections": CONNECTIONS})
        proxy = stack.enter_context(proxied(*proxy_arguments))
        _prepare(proxy, compute)
        verifier = str(compute.spec()["roles"][0]["password"])
        proxy.endpoint(ENDPOINT, "running", address=f"127.0.0.1:{compute.port}", app=verifier)
        hosts = root / "hosts"
        names = " ".join(f"{name}.{DOMAIN}" for name in (STOCK, *(ENDPOINT + suffix for suffix in WAYS.values())))
        hosts.write_text(f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {names}\n")
        wait_for("the proxy to know the compute", lambda: _reaches(proxy, compute), 30)
        yield Servers(proxy, compute, hosts)


def _prepare(proxy: Proxy, compute: Compute) -> None:
    """Gives the stock server the certificate, settings and role's rights that the Weir has (docs/roles.md)."""
    stock = proxy.stock
    for source, name in ((proxy.authority.certificate, "server.crt"), (proxy.authority.private_key, "server.key")):
        target = stock.data / name
        shutil.copyfile(source, target)
        target.chmod(0o600)
        owner = stock.data.stat()
        os.chown(target, owner.st_uid, owner.st_gid)
    with compute.admin("postgres") as there, stock.admin() as admin:
        for name in SHARED:
            row = there.execute("SELECT setting FROM pg_settings WHERE name = %s", [name]).fetchone()
            assert row is not None, name
            setting = sql.SQL("ALTER SYSTEM SET {} = {}")
            admin.execute(setting.format(sql.Identifier(name), sql.Literal(row[0])))
        admin.execute("ALTER SYSTEM SET ssl = on")
        admin.execute(f"GRANT pg_monitor, pg_signal_backend TO {ROLE}".encode())
    stock.stop()
    stock.start()


def _reaches(proxy: Proxy, compute: Compute) -> bool:
    """Whether a client that names the endpoint comes to the compute, and no longer to the stock server."""
    with proxy.connect() as connection:
        return connection.execute("SHOW port").fetchone() == (str(compute.port),)
