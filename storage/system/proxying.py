"""What the tests of `weir-proxy` need: a stock Postgres, a CA with its certificates, and the proxy."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness import PG_BIN, Process, default_bin_dir, free_port, scram_verifier, wait_for

DOMAIN = "db.test"
ENDPOINT = "ep-calm-sea-a1b2c3"
PASSWORD = "correct horse"
HBA = "local all postgres peer\nhost all all all scram-sha-256\n"


class Authority:
    """A CA, and the certificates it signs for `*.db.test`."""

    def __init__(self, directory: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of a test")])
        self.directory = directory
        authority = self._certificate(self._name, self._key.public_key(), authority=True)
        self.root = directory / "ca.pem"
        self.root.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        self.serial = 0

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            names = x509.SubjectAlternativeName([x509.DNSName(f"*.{DOMAIN}")])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def sign(self) -> int:
        """Puts a new certificate and its key where the proxy reads them; answers with its serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, DOMAIN)])
        certificate = self._certificate(name, key.public_key())
        for path, content in (
            (self.private_key, _private(key)),
            (self.certificate, certificate.public_bytes(serialization.Encoding.PEM)),
        ):
            draft = path.with_suffix(".new")
            draft.write_bytes(content)
            draft.rename(path)
        return certificate.serial_number

    @property
    def certificate(self) -> Path:
        return self.directory / "server.pem"

    @property
    def private_key(self) -> Path:
        return self.directory / "server.key"


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


class Stock:
    """A stock Postgres as the distribution has it, in place of a compute."""

    def __init__(self, root: Path) -> None:
        self.port = free_port()
        self.data = root / "pgdata"
        self.socket = root / "sock"
        self.socket.mkdir()
        self._user: dict[str, Any] = {"user": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(root, "postgres")
            shutil.chown(self.socket, "postgres")
        self._run("initdb", "-D", str(self.data), "--username=postgres", "-A", "peer", "--no-sync", "-E", "UTF8")
        (self.data / "pg_hba.conf").write_text(HBA)
        self.start()
        with self.admin() as admin:
            admin.execute(f"CREATE ROLE app LOGIN CREATEDB PASSWORD '{scram_verifier(PASSWORD)}'".encode())
            admin.execute("CREATE DATABASE appdb OWNER app")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(PG_BIN / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._user)

    def start(self) -> None:
        options = (
            f"-p {self.port} -k {self.socket} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=1200"
            " -c shared_buffers=64MB"
        )
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.data / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    @contextlib.contextmanager
    def admin(self) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
        # The role postgres comes in by TCP with a password that only the tests have: peer needs its user.
        script = f"ALTER ROLE postgres PASSWORD '{scram_verifier(PASSWORD)}'"
        command = [
            str(PG_BIN / "psql"),
            "-qX",
            "-h",
            str(self.socket),
            "-p",
            str(self.port),
            "-c",
            script,
            "postgres",
        ]
        subprocess.run(command, check=True, cwd="/", **self._user)
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", password=PASSWORD, dbname="postgres", autocommit=True
        ) as connection:
            yield connection

    def verifier(self, role: str) -> str:
        """What the server itself stores, as an agent would read it."""
        with self.admin() as admin:
            row = admin.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [role]).fetchone()
        assert row is not None
        return str(row[0])


@dataclass
class Proxy:
    """The proxy, its directory of endpoints and its certificate."""

    root: Path
    stock: Stock
    authority: Authority
    arguments: list[str] = field(default_factory=list[str])
    endpoints: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.port, self.http_port = free_port(), free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.http_port}")
        self.directory = self.root / "endpoints.json"
        secret = self.root / "mock_secret"
        secret.write_bytes(secrets.token_bytes(32))
        self.endpoint(ENDPOINT, "running", app=self.stock.verifier("app"))
        command = [
            *(str(default_bin_dir() / "weir-proxy"), "--listen", f"127.0.0.1:{self.port}"),
            *("--listen-http", f"127.0.0.1:{self.http_port}", "--domain", DOMAIN),
            *("--certificate", str(self.authority.certificate), "--private-key", str(self.authority.private_key)),
            *("--directory", str(self.directory), "--mock-secret", str(secret), *self.arguments),
        ]
        self.process = Process("weir-proxy", command, self.root / "proxy.log", self._ready)
        self.process.start()

    def _ready(self) -> bool:
        return self.http.get("/healthz").status_code == 200

    def endpoint(
        self, name: str, state: str, *, allowed_ips: list[str] | None = None, address: str | None = None, **roles: str
    ) -> None:
        """Changes one endpoint in the directory, as a whole; its `address` is the stock server's unless given."""
        entry = {"state": state, "address": address or f"127.0.0.1:{self.stock.port}", "roles": roles}
        self.endpoints[name] = entry | ({} if allowed_ips is None else {"allowed_ips": allowed_ips})
        draft = self.directory.with_suffix(".new")
        draft.write_text(json.dumps({"endpoints": self.endpoints}))
        draft.rename(self.directory)

    @property
    def log(self) -> str:
        return self.process.log.read_text()

    def parameters(self, **changes: Any) -> dict[str, Any]:
        """How a careful client connects: it knows the server, and both know that nobody is between them."""
        parameters: dict[str, Any] = {
            "host": f"{ENDPOINT}.{DOMAIN}",
            "hostaddr": "127.0.0.1",
            "port": self.port,
            "user": "app",
            "password": PASSWORD,
            "dbname": "appdb",
            "sslmode": "verify-full",
            "sslrootcert": str(self.authority.root),
            "channel_binding": "require",
            "connect_timeout": 60,
        }
        return {name: value for name, value in (parameters | changes).items() if value is not None}

    def connect(self, **changes: Any) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(**self.parameters(autocommit=True, **changes))

    def psql(self, script: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        parameters = self.parameters(**changes)
        password = parameters.pop("password", "")
        line = " ".join(f"{name}='{value}'" for name, value in parameters.items())
        command = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", line, "-c", script]
        environment = {**os.environ, "PGPASSWORD": str(password)}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)

    def wait_for_end(self, text: LiteralString) -> str:
        """The line of log of a connection that has ended."""
        lines = lambda: [line for line in self.log.splitlines() if "connection ended" in line and text in line]  # noqa: E731
        return wait_for(f"a line of log with {text}", lambda: next(iter(reversed(lines())), None))


@contextlib.contextmanager
def proxied(*arguments: str) -> Generator[Proxy]:
    """A stock Postgres behind a proxy; neither is left behind."""
    root = Path(tempfile.mkdtemp(prefix="weir-proxy-"))
    root.chmod(0o755)
    (root / "postgres").mkdir()
    stock: Stock | None = None
    proxy: Proxy | None = None
    try:
        stock = Stock(root / "postgres")
        authority = Authority(root)
        authority.sign()
        proxy = Proxy(root, stock, authority, list(arguments))
        yield proxy
    finally:
        if proxy is not None:
            proxy.process.stop()
            proxy.http.close()
        if stock is not None:
            with contextlib.suppress(subprocess.CalledProcessError):
                stock.stop("immediate")
        shutil.rmtree(root, ignore_errors=True)
