"""Settings of the control plane, read once from the environment (names in docs/interfaces.md)."""

import os
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from weir.durability.levels import WEAK, Durability
from weir.front import settings as front
from weir.front.rates import Rate
from weir.kit.http import is_loopback
from weir.quotas.names import parse_defaults

# A year: as much as never.
MOST_MINUTES = 525_600
MOST_API_PROCESSES = 32
# Of `max_body_bytes`.
LEAST_BODY_BYTES, MOST_BODY_BYTES = 1024, 1 << 30
# Units that a compute may have at most, whatever the installation says.
MOST_CU = 64
# Where the other parts are. Their defaults are those of one machine; `deployment` says whether they count.
ADDRESSES = (
    "database_url",
    "temporal_address",
    "prometheus_url",
    "api_url",
    "pageserver_http",
    "pageserver_pages",
    "safekeepers_http",
    "safekeepers_wal",
    "compute_host",
    "worker_metrics_host",
)


def default_home() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/weir")
    return Path("~/.local/state/weir").expanduser()


def _default_console_dir() -> Path:
    return Path(__file__).resolve().parents[2] / "frontend" / "dist"


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WEIR_", extra="ignore", hide_input_in_errors=True)

    # `machine`: all parts share one machine, and an address that is not given is a port of loopback. `services`: each
    # part has a machine or a container of its own, and a program refuses to start without the others' addresses.
    deployment: Literal["machine", "services"] = "machine"
    # Networks, comma-separated, from which Prometheus and the proxy may ask what is not for clients; loopback always.
    internal_networks: str = ""

    home: Path = Field(default_factory=default_home)
    # The folder of the keys for tokens, where it is not `home`: another process keeps it (`weir.tokens.keeper`).
    credentials_dir: Path | None = None
    # By what this program proves itself to storage and computes, where the parts of the installation speak TLS with
    # each other (`weir.tls`); None: they speak plain TCP.
    tls_file: Path | None = None
    database_url: str = "postgresql+psycopg://weir@127.0.0.1:7410/weir"
    # A file with the password for `database_url`, so that no environment holds it.
    database_password_file: Path | None = None
    database_pool_size: int = 10

    temporal_address: str = "127.0.0.1:7420"
    temporal_namespace: str = "default"
    task_queue: str = "weir"

    prometheus_url: str = "http://127.0.0.1:7430"
    api_url: str = "http://127.0.0.1:7400"
    pageserver_http: str = "http://127.0.0.1:7601"
    pageserver_pages: str = "127.0.0.1:7600"
    safekeepers_http: str = "http://127.0.0.1:7511,http://127.0.0.1:7512,http://127.0.0.1:7513"
    safekeepers_wal: str = "127.0.0.1:7501,127.0.0.1:7502,127.0.0.1:7503"

    bin_dir: Path = Path("/usr/local/bin")
    pg_bin_dir: Path = Path("/usr/lib/postgresql/15/bin")
    pg_user: str = "postgres"
    compute_ports: str = "7700-7899"
    # Numbers of users of the operating system, one for each compute that runs: A-B; empty: computes share `pg_user`.
    compute_users: str = ""
    # The control group below which each compute gets one, as a path from where groups are mounted; empty: none.
    compute_cgroup: str = ""
    compute_host: str = "127.0.0.1"
    # The largest size that computes may have, in units; 1: none has another one.
    compute_max_cu: float = Field(default=1, ge=1, le=MOST_CU)
    # `simulated`: computes and storage are a model behind one HTTP server, for scale tests (docs/operating.md).
    compute_runtime: Literal["local", "simulated"] = "local"
    simulator_url: str = "http://127.0.0.1:7650"
    # How often Prometheus scrapes computes; rates need windows of several scrapes.
    scrape_interval_seconds: int = 1

    # Levels of durability that no branch or endpoint may have, comma-separated; of the weak ones alone.
    durability_forbid: str = ""

    # For how long a member of a log has to be sick until the reconciler has it replaced; 0: never.
    safekeepers_replace_after_minutes: int = Field(default=0, ge=0, le=MOST_MINUTES)

    # What clients are told of the proxy. Port 0: there is none, and computes are reached at their own ports.
    proxy_host: str = "localhost"
    proxy_port: int = Field(default=0, ge=0, le=65535)
    proxy_domain: str = ""
    # Its metrics; empty: there is none.
    proxy_http: str = ""
    # The certificate of the CA that signs the proxy's, for clients. None: the operator's own CA does.
    proxy_ca: Path | None = None

    # Where the worker answers, and where Prometheus finds it.
    worker_metrics_host: str = "127.0.0.1"
    worker_metrics_port: int = 7402
    console_dir: Path = Field(default_factory=_default_console_dir)
    # Of a session in the console: from signing in to its end, and without a request.
    session_hours: int = Field(default=12, ge=1, le=8_760)
    session_idle_minutes: int = Field(default=120, ge=1, le=MOST_MINUTES)
    region_id: str = "local"

    # Processes that answer the API's requests (weir.serve).
    api_processes: int = Field(default=1, ge=1, le=MOST_API_PROCESSES)
    # Hosts by which browsers and clients reach the API, comma-separated, beside loopback's and `api_url`'s.
    allowed_hosts: str = ""
    # Whether clients reach the API by TLS alone, which something before it ends: browsers are told to keep to it.
    behind_tls: bool = False
    max_body_bytes: int = Field(default=1 << 20, ge=LEAST_BODY_BYTES, le=MOST_BODY_BYTES)
    # Requests of one key, and of one address without a key: a minute/at once, or `off` (weir.front.rates).
    rate_reads: str = "6000/2000"
    rate_changes: str = "1200/600"
    rate_reveals: str = "300/300"
    rate_sql: str = "600/300"
    rate_strangers: str = "600/600"
    # Of accounts that have none of their own: NAME=NUMBER or NAME=none, comma-separated (weir.quotas.names).
    quotas: str = ""

    dispatch_interval_seconds: float = 2.0
    reconcile_interval_seconds: float = 3.0

    @field_validator("durability_forbid")
    @classmethod
    def _known_levels(cls, value: str) -> str:
        unknown = [level for level in _split(value) if level not in WEAK]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no level that can be forbidden; those are {', '.join(WEAK)}")
        return value

    @field_validator("rate_reads", "rate_changes", "rate_reveals", "rate_sql", "rate_strangers")
    @classmethod
    def _rates(cls, value: str) -> str:
        Rate.parse(value)
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        front.host_names(value)
        return value

    @field_validator("quotas")
    @classmethod
    def _quotas(cls, value: str) -> str:
        parse_defaults(value)
        return value

    @field_validator("internal_networks")
    @classmethod
    def _networks(cls, value: str) -> str:
        for network in _split(value):
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"WEIR_INTERNAL_NETWORKS: {error} (such as 10.0.0.0/24)") from None
        return value

    @model_validator(mode="after")
    def _refuse_addresses_of_one_machine(self) -> Self:
        missing = [f"WEIR_{name.upper()}" for name in ADDRESSES if name not in self.model_fields_set]
        if self.deployment == "services" and missing:
            raise ValueError(
                f"WEIR_DEPLOYMENT is `services`, so addresses of the other parts have to be given: set "
                f"{', '.join(missing)} (docker/README.md says what each one is)"
            )
        return self

    @model_validator(mode="after")
    def _password_from_file(self) -> Self:
        path = self.database_password_file
        if path is None:
            return self
        try:
            password = path.read_text().strip()
        except OSError as error:
            raise ValueError(f"WEIR_DATABASE_PASSWORD_FILE: {path} can't be read: {error.strerror}") from None
        if not password:
            raise ValueError(f"WEIR_DATABASE_PASSWORD_FILE: {path} is empty")
        try:
            url = make_url(self.database_url)
        except ArgumentError:
            raise ValueError("WEIR_DATABASE_URL is no URL such as postgresql+psycopg://weir@HOST:5432/weir") from None
        self.database_url = url.set(password=password).render_as_string(hide_password=False)
        return self

    def is_internal(self, address: str) -> bool:
        """Whether a request from this address may ask what only the installation's own parts may: an address of this
        machine, or of a network in `internal_networks`. Text that is no address is not internal."""
        if is_loopback(address):
            return True
        networks: list[IPv4Network | IPv6Network] = [ip_network(text) for text in _split(self.internal_networks)]
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in networks)

    @property
    def host_names(self) -> frozenset[str]:
        """By which the API is asked beside loopback's: those given, and the one that other parts have."""
        own = urlsplit(with_scheme(self.api_url)).hostname
        return front.host_names(self.allowed_hosts) | ({front.normal_host(own)} if own else frozenset[str]())

    @property
    def forbidden_durability(self) -> frozenset[Durability]:
        return frozenset(Durability(level) for level in _split(self.durability_forbid))

    @property
    def safekeeper_http_urls(self) -> list[str]:
        return [with_scheme(address) for address in _split(self.safekeepers_http)]

    @property
    def safekeeper_wal_addresses(self) -> list[str]:
        return _split(self.safekeepers_wal)

    def wal_addresses(self, numbers: Iterable[int]) -> list[str]:
        """Of these safekeepers, by their numbers from 1; one that the installation does not have is left out."""
        addresses = self.safekeeper_wal_addresses
        return [addresses[number - 1] for number in numbers if 1 <= number <= len(addresses)]

    @property
    def has_proxy(self) -> bool:
        return self.proxy_port > 0

    @property
    def public_host(self) -> str:
        """The host, or the domain of the hosts, at which clients find databases."""
        return (self.proxy_domain or self.proxy_host) if self.has_proxy else self.compute_host

    @property
    def parts_scheme(self) -> Literal["http", "https"]:
        """Of the HTTP APIs of storage and computes."""
        return "http" if self.tls_file is None else "https"

    @property
    def prometheus_part(self) -> str | None:
        """The name that Prometheus proves where parts speak TLS. None: it is asked as any server is."""
        return None if self.tls_file is None else "prometheus"

    @property
    def pageserver_http_url(self) -> str:
        return with_scheme(self.pageserver_http)

    @property
    def secrets_dir(self) -> Path:
        return self.home / "secrets"

    @property
    def keys_home(self) -> Path:
        """Below it are the key that signs tokens, and the public keys."""
        return self.credentials_dir or self.home

    @property
    def computes_dir(self) -> Path:
        return self.home / "computes"

    @property
    def servers_dir(self) -> Path:
        """Copies of Postgres's files that computes run from, one a minor."""
        return self.home / "servers"

    @property
    def compute_user_range(self) -> range | None:
        """None: computes share a user."""
        if not self.compute_users:
            return None
        low, high = (int(part) for part in self.compute_users.split("-", 1))
        return range(low, high + 1)

    @property
    def compute_port_range(self) -> range:
        """Postgres ports of computes: even ones; the agent's HTTP port is the odd one above."""
        low, high = (int(part) for part in self.compute_ports.split("-", 1))
        return range(low + low % 2, high, 2)


def with_scheme(address: str) -> str:
    """`host:port` and full URLs are both accepted where an HTTP address is configured."""
    return address.rstrip("/") if "://" in address else f"http://{address}"


@lru_cache
def get_settings() -> Settings:
    return Settings()
