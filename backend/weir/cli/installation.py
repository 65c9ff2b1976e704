"""One installation of Weir on this machine: its directory, its settings file, its environment.

Everything is below `WEIR_HOME`. `weir.toml` is written by the first `weir up` and belongs to the operator from
then on; the environment overrides it (`WEIR_PORT_API=8400`), so that tests can run a second installation.
"""

import os
import secrets
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from weir.cli import api_section, folders, identity_section, port_section, sections, service_users
from weir.cli.certificates import Files
from weir.cli.errors import CliError
from weir.cli.files import write_whole
from weir.cli.port_section import FIRST_PORT, MOST_SAFEKEEPERS, PORTS, SAFEKEEPERS
from weir.cli.settings_file import TEMPLATE
from weir.config import default_home
from weir.kit.http import bracketed
from weir.tls import parts as tls_parts
from weir.tokens.keys import key_set_file
from weir.tokens.parts import tokens_dir

COMPUTE_PORTS = (7700, 7899)


@dataclass(frozen=True)
class Installation:
    home: Path
    ports: Mapping[str, int]
    compute_ports: str
    pg_bin: Path
    pg_user: str
    retention: str
    scrape_interval_seconds: int
    otlp_endpoint: str
    # By the names in `sections.PAGESERVER_LIMITS`.
    pageserver_limits: Mapping[str, int]
    object_store_address: str = ""
    encryption: bool = False
    # Levels of durability that no branch may have.
    durability_forbid: Sequence[str] = ()
    safekeeper_count: int = SAFEKEEPERS
    offload: bool = True
    # Minutes until a sick safekeeper is replaced; 0: never.
    replace_after_minutes: int = 0
    # MiB, by the names in `sections.SAFEKEEPER_LIMITS`.
    safekeeper_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    compute_runtime: str = "local"
    # Local disk of each compute for pages it has read and not written, MiB; 0: no limit.
    compute_cache_mib: int = sections.COMPUTE_CACHE_MIB
    # The largest size that computes may have.
    compute_max_cu: int = 1
    # Numbers of users, one for each compute that runs, where Weir is root; empty: computes share `pg_user`.
    compute_users: str = ""
    compute_cgroup: str = ""
    # Users of the operating system for the services beside the computes.
    own_users: service_users.ServiceUsers = field(default_factory=service_users.ServiceUsers)
    # Arguments of the simulated fleet's server: seed, regress-share, regress-ratio.
    simulated: Mapping[str, float] = field(default_factory=dict[str, float])
    has_tls: bool = False
    proxy: sections.Proxy = field(default_factory=sections.Proxy)
    # What the API alone is told, by variable.
    api: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def config_file(self) -> Path:
        return self.home / "weir.toml"

    @property
    def log_dir(self) -> Path:
        return self.home / "log"

    @property
    def run_dir(self) -> Path:
        return self.home / "run"

    @property
    def socket(self) -> Path:
        return self.run_dir / "supervisor.sock"

    @property
    def postgres_data(self) -> Path:
        return self.home / "postgres"

    @property
    def computes_dir(self) -> Path:
        return self.home / "computes"

    @property
    def safekeepers(self) -> range:
        """The numbers of those that run here."""
        return range(1, self.safekeeper_count + 1)

    @property
    def safekeeper_dirs(self) -> list[Path]:
        return [self.home / f"safekeeper-{number}" for number in self.safekeepers]

    @property
    def metadata_pg_bin(self) -> Path:
        """Programs for the metadata store: of the copy that `weir up` chose, which an upgrade of the package leaves
        alone; the package's own before there is one."""
        copy = self.home / "servers" / "metadata" / "bin"
        return copy if (copy / "postgres").is_file() else self.pg_bin

    @property
    def bin_dir(self) -> Path:
        return Path(os.environ.get("WEIR_BIN_DIR", cache_dir() / "target" / "release"))

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def api_key_file(self) -> Path:
        return self.home / "secrets" / "api_key"

    @property
    def object_store(self) -> str:
        return self.object_store_address or f"file://{self.home / 'objects'}"

    @property
    def object_store_variables(self) -> Path:
        """Credentials and the like of a bucket, for storage alone: a file that a shell reads."""
        return self.home / "secrets" / "object_store.env"

    @property
    def storage_keys(self) -> Path:
        return self.home / "secrets" / "storage_keys"

    @property
    def is_simulated(self) -> bool:
        return self.compute_runtime == "simulated"

    @property
    def shared_user(self) -> str:
        """Why computes are not kept apart by users of their own; empty where they are, or none runs."""
        if self.is_simulated:
            return ""
        if os.geteuid() != 0:
            return "Weir is not run by root, so all computes and Weir itself share one user"
        return (
            "" if self.compute_users else f"[computes] users is empty, so all computes share the user {self.pg_user}"
        )

    @property
    def has_proxy(self) -> bool:
        """A simulated fleet has no database to connect to."""
        return self.proxy.enabled and not self.is_simulated

    @property
    def proxy_files(self) -> Files:
        return Files(self.home, self.proxy.given)

    @property
    def proxy_token_file(self) -> Path:
        """What the API knows the proxy by."""
        return self.home / "secrets" / "proxy_token"

    @property
    def token_keys_file(self) -> Path:
        """The public keys by which parts check tokens."""
        return key_set_file(self.home)

    def token_file(self, part: str) -> Path:
        """The token that a part shows to others."""
        return tokens_dir(self.home) / part

    @property
    def proxy_mock_secret_file(self) -> Path:
        return self.home / "secrets" / "proxy_mock_secret"

    @property
    def proxy_address(self) -> str:
        """Where clients connect: HOST:PORT, the host one of many when there is a domain."""
        host = f"ENDPOINT.{self.proxy.domain}" if self.proxy.domain else self.proxy.host
        return f"{bracketed(host)}:{self.ports['proxy']}"

    @property
    def simulator_url(self) -> str:
        return f"http://{self.address('simulator')}"

    def address(self, port: str) -> str:
        return f"127.0.0.1:{self.ports[port]}"

    def log_file(self, process: str) -> Path:
        return self.log_dir / f"{process}.log"

    def tool(self, name: str) -> Path:
        """A program that set-up built or that the system has."""
        built = Path(os.environ.get("WEIR_TOOLS_DIR", cache_dir() / "bin")) / name
        found = built if built.is_file() else shutil.which(name)
        if found is None:
            raise CliError(f"The program `{name}` is missing. `make setup` installs it.")
        return Path(found)

    def postgres_password(self) -> str:
        return (self.home / "secrets" / "postgres_password").read_text().strip()

    def environment(self) -> dict[str, str]:
        """What every service is told (docs/interfaces.md), on top of what a program needs to run at all."""
        passed = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "RUST_LOG", "RUST_BACKTRACE")
        # How computes read ahead and write, for comparisons (docs/interfaces.md).
        passed += ("WEIR_READ_AHEAD_PAGES", "WEIR_WRITE_THROUGH")
        # Lets tests choose where the pageserver dies; nobody else sets it.
        passed += ("WEIR_CRASH_POINTS",)
        environment = {name: os.environ[name] for name in passed if name in os.environ}
        scheme = "https" if self.has_tls else "http"
        environment.update(
            WEIR_HOME=str(self.home),
            WEIR_DATABASE_URL=(
                f"postgresql+psycopg://weir:{quote(self.postgres_password())}@{self.address('postgres')}/weir"
            ),
            WEIR_TEMPORAL_ADDRESS=self.address("temporal"),
            WEIR_TEMPORAL_NAMESPACE="default",
            WEIR_PROMETHEUS_URL=f"{scheme}://{self.address('prometheus')}",
            WEIR_API_URL=self.api_url,
            WEIR_PAGESERVER_HTTP=f"{scheme}://{self.address('pageserver_http')}",
            WEIR_PAGESERVER_PAGES=self.address("pageserver_pages"),
            WEIR_SAFEKEEPERS_HTTP=",".join(
                f"{scheme}://{self.address(f'safekeeper_{n}_http')}" for n in self.safekeepers
            ),
            WEIR_SAFEKEEPERS_WAL=",".join(self.address(f"safekeeper_{n}_wal") for n in self.safekeepers),
            WEIR_BIN_DIR=str(self.bin_dir),
            WEIR_PG_BIN_DIR=str(self.pg_bin),
            WEIR_PG_USER=self.pg_user,
            WEIR_COMPUTE_PORTS=self.compute_ports,
            WEIR_WORKER_METRICS_PORT=str(self.ports["worker"]),
            WEIR_COMPUTE_RUNTIME=self.compute_runtime,
            WEIR_COMPUTE_USERS=self.compute_users if os.geteuid() == 0 else "",
            WEIR_COMPUTE_CGROUP=self.compute_cgroup if os.geteuid() == 0 else "",
            WEIR_COMPUTE_CACHE_MIB=str(self.compute_cache_mib),
            WEIR_COMPUTE_MAX_CU=str(self.compute_max_cu),
            WEIR_DURABILITY_FORBID=",".join(self.durability_forbid),
            WEIR_SAFEKEEPERS_REPLACE_AFTER_MINUTES=str(self.replace_after_minutes),
            WEIR_SCRAPE_INTERVAL_SECONDS=str(self.scrape_interval_seconds),
        )
        environment.update(self.api)
        if self.has_tls:
            environment["WEIR_TLS_FILE"] = str(tls_parts.control_file(self.home))
        if self.has_proxy:
            environment.update(
                WEIR_PROXY_HOST=self.proxy.host,
                WEIR_PROXY_PORT=str(self.ports["proxy"]),
                WEIR_PROXY_DOMAIN=self.proxy.domain,
                WEIR_PROXY_HTTP=f"http://{self.address('proxy_http')}",
            )
            if self.proxy.given is None:
                environment["WEIR_PROXY_CA"] = str(self.proxy_files.ca)
        if self.is_simulated:
            environment.update(
                WEIR_SIMULATOR_URL=self.simulator_url,
                WEIR_PAGESERVER_HTTP=f"{self.simulator_url}/pageserver",
                WEIR_SAFEKEEPERS_HTTP=",".join(f"{self.simulator_url}/safekeepers/{n}" for n in self.safekeepers),
            )
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", self.otlp_endpoint)
        if endpoint:
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        return environment


def cache_dir() -> Path:
    return Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache" / "weir"))


def home_from_environment() -> Path:
    return Path(os.environ["WEIR_HOME"]).absolute() if os.environ.get("WEIR_HOME") else default_home()


def exists(home: Path) -> bool:
    return (home / "weir.toml").is_file()


def load(home: Path) -> Installation:
    """Read an installation; raises a CliError that names the file and the setting when it makes no sense."""
    path = home / "weir.toml"
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise CliError(f"There is no Weir in {home} yet. `weir up` creates it.") from None
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{path} is not valid TOML: {error}") from None
    count = port_section.safekeeper_count(path, document)
    ports = port_section.chosen(path, document, count)
    port_section.refuse_duplicates(path, ports)
    postgres = sections.section(path, document, "postgres")
    prometheus = sections.section(path, document, "prometheus")
    return Installation(
        home=home,
        ports=ports,
        compute_ports=os.environ.get(
            "WEIR_COMPUTE_PORTS",
            str(sections.section(path, document, "computes").get("ports", "{}-{}".format(*COMPUTE_PORTS))),
        ),
        pg_bin=Path(os.environ.get("WEIR_PG_BIN_DIR", str(postgres.get("bin_dir", "/usr/lib/postgresql/15/bin")))),
        pg_user=os.environ.get("WEIR_PG_USER", str(postgres.get("user", "postgres"))),
        retention=str(prometheus.get("retention", "15d")),
        scrape_interval_seconds=int(
            os.environ.get("WEIR_SCRAPE_INTERVAL_SECONDS", str(prometheus.get("scrape_interval_seconds", 1)))
        ),
        otlp_endpoint=str(sections.section(path, document, "telemetry").get("otlp_endpoint", "")),
        object_store_address=os.environ.get(
            "WEIR_OBJECT_STORE", str(sections.section(path, document, "storage").get("object_store", ""))
        ),
        encryption=sections.encryption(path, document),
        durability_forbid=sections.durability_forbid(path, document),
        safekeeper_count=count,
        offload=sections.offload(path, document),
        replace_after_minutes=sections.replace_after_minutes(path, document),
        safekeeper_limits=sections.safekeeper_limits(path, document),
        pageserver_limits=sections.pageserver_limits(path, document),
        compute_runtime=sections.runtime(path, document),
        compute_cache_mib=sections.cache_mib(path, document),
        compute_max_cu=sections.max_cu(path, document),
        compute_users=sections.users(path, document),
        compute_cgroup=sections.cgroup(path, document),
        own_users=service_users.known(home, sections.service_users(path, document)),
        has_tls=sections.tls(path, document),
        proxy=sections.proxy(path, document),
        api=api_section.variables(path, document) | identity_section.variables(path, document),
        simulated={name: float(value) for name, value in sections.section(path, document, "simulated").items()},
    )


def create(home: Path, port_base: int | None) -> Installation:
    """Write the directory, the settings and the services' secrets. What exists stays as it is."""
    shift = (port_base or FIRST_PORT) - FIRST_PORT
    try:
        # Computes and the metadata store run as other users below it: searchable, not listable.
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(folders.PASSAGE)
        for name, mode in folders.MADE.items():
            folders.make(home / name, mode)
    except PermissionError as error:
        raise CliError(f"Cannot write to {home}: {error.strerror}. Run as its owner, or set WEIR_HOME.") from None
    config = home / "weir.toml"
    if not config.exists():
        first, last = COMPUTE_PORTS
        text = TEMPLATE.format(
            ports="\n".join(
                f"{name} = {port + shift}  # {what}"
                for name, (port, what) in PORTS.items()
                if port_section.safekeeper_of(name) <= SAFEKEEPERS
            ),
            computes=f"{first + shift}-{last + shift}",
            cache_mib=sections.COMPUTE_CACHE_MIB,
            users=sections.COMPUTE_USERS,
            **service_users.IN_TEMPLATE,
            runtime=os.environ.get("WEIR_COMPUTE_RUNTIME", "local"),
            object_store=os.environ.get("WEIR_OBJECT_STORE", ""),
            pg_bin=os.environ.get("WEIR_PG_BIN_DIR", "/usr/lib/postgresql/15/bin"),
            safekeepers=os.environ.get("WEIR_SAFEKEEPERS_COUNT", SAFEKEEPERS),
            most_safekeepers=MOST_SAFEKEEPERS,
            **{name: default for name, (default, _) in sections.PAGESERVER_LIMITS.items()},
            **{name: default for name, (default, _) in sections.SAFEKEEPER_LIMITS.items()},
            **{name: default for name, (default, _) in sections.POOL_SETTINGS.items()},
        )
        write_whole(config, text, 0o644)
    elif port_base is not None:
        raise CliError(f"{config} exists already and holds the ports; --port-base is for the first `weir up`.")
    for name, octets in (("postgres_password", 24), ("proxy_token", 32), ("proxy_mock_secret", 48)):
        secret = home / "secrets" / name
        if not secret.exists():
            write_whole(secret, secrets.token_urlsafe(octets) + "\n", 0o600)
    return load(home)


def python() -> str:
    return sys.executable


def script(name: str) -> str:
    """A command that was installed beside this one."""
    return str(Path(sys.executable).parent / name)
