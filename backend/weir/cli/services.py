"""The services of an installation, and the supervisor's configuration made of them.

Order: the metadata store, then the schema, then the API; safekeepers before the pageserver; the worker last, since
it drives all of them. Every service is restarted when it dies or stops answering, and logs to its own file.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weir.cli import launching, ownership, precedence, prometheus_files
from weir.cli.errors import CliError
from weir.cli.installation import Installation, python, script
from weir.cli.launching import Own
from weir.cli.sections import Proxy
from weir.cli.service_users import STORAGE
from weir.cli.system import DATABASE_VARIABLE, SERVICE_VARIABLE
from weir.kit.addresses import plain_range
from weir.kit.http import bracketed
from weir.tls import parts

HEALTHY = "process_healthy"
COMPLETED = "process_completed_successfully"
# How long transactions through the proxy may go on when it is stopped.
_DRAIN_SECONDS = 10
# A service writes its log itself: were the supervisor between them, its death would take the services along, at
# their next word. "$0" is the file, "$@" the program.
_TO_ITS_LOG = ("/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1')


@dataclass(frozen=True)
class Service:
    name: str
    what: str
    command: Sequence[str]
    ports: Sequence[str] = ()
    health: str | Sequence[str] = ""
    after: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_signal: int = 15
    stop_seconds: int = 15
    once: bool = False
    every: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    # Words before the program that root has to begin with, such as those that read a secret into the environment.
    before: Sequence[str] = ()
    # How it runs as a user of its own; None: it runs as who runs Weir.
    own: Own | None = None
    # Whether it is told how to reach the metadata database, with the password.
    has_database: bool = False

    def probe(self) -> dict[str, Any] | None:
        """Asked every two seconds; after a minute and a half of silence the supervisor restarts the service."""
        timing = {"period_seconds": 2, "timeout_seconds": 5, "failure_threshold": 45}
        if not self.health:
            return None
        if isinstance(self.health, str):
            host, _, rest = self.health.partition(":")
            port, _, path = rest.partition("/")
            return {"http_get": {"scheme": "http", "host": host, "port": port, "path": f"/{path}"}, **timing}
        return {"exec": {"command": " ".join(self.health)}, **timing}


def as_postgres_user(installation: Installation) -> list[str]:
    """The words that start a program of Postgres which asks for the user's name; none when Weir is not root."""
    if os.geteuid() != 0:
        return []
    user = installation.pg_user
    return [launching.setpriv(), f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]


def services(installation: Installation) -> list[Service]:
    return [
        _postgres(installation),
        _temporal(installation),
        *_storage(installation),
        Service(
            "migrate",
            "brings the metadata schema up to date",
            [script("weir-admin"), "migrate"],
            after={"postgres": HEALTHY},
            once=True,
            has_database=True,
        ),
        _api(installation),
        _prometheus(installation),
        _worker(installation),
        *([_proxy(installation)] if installation.has_proxy else []),
        Service("logs", "keeps logs from growing for ever", [script("weir"), "rotate-logs"], every="5m"),
    ]


def _postgres(installation: Installation) -> Service:
    port = installation.ports["postgres"]
    return Service(
        "postgres",
        "metadata",
        [
            str(installation.metadata_pg_bin / "postgres"),
            "-D",
            str(installation.postgres_data),
            "-c",
            f"port={port}",
        ],
        ports=("postgres",),
        health=[
            str(installation.metadata_pg_bin / "pg_isready"),
            *("-q", "-h", "127.0.0.1", "-p", str(port), "-d", "weir"),
        ],
        stop_signal=2,  # fast shutdown: sessions are ended, nothing needs recovery
        stop_seconds=30,
        own=Own("postgres", installation.postgres_data, otherwise=installation.pg_user),
    )


def _temporal(installation: Installation) -> Service:
    ports = installation.ports
    return Service(
        "temporal",
        "workflows",
        [
            str(installation.tool("temporal")),
            *("server", "start-dev", "--ip", "127.0.0.1", "--ui-ip", "127.0.0.1"),
            *("--port", str(ports["temporal"]), "--ui-port", str(ports["temporal_ui"])),
            *("--http-port", str(ports["temporal_http"]), "--metrics-port", str(ports["temporal_metrics"])),
            *("--db-filename", str(installation.home / "temporal" / "temporal.db")),
            *("--log-level", "warn", "--log-format", "json"),
            # The worker gets the first step of a workflow with the answer to its plan, and need not ask for it.
            *("--dynamic-config-value", "system.enableActivityEagerExecution=true"),
        ],
        ports=("temporal", "temporal_ui", "temporal_http", "temporal_metrics"),
        health=f"{installation.address('temporal_http')}/api/v1/namespaces/default",
        # It does not start without its user's name, which it puts into traces.
        own=Own("temporal", installation.home / "temporal", has_account=True),
    )


def _storage(installation: Installation) -> list[Service]:
    if installation.is_simulated:
        return [_simulator(installation)]
    return [*(_safekeeper(installation, n) for n in installation.safekeepers), _pageserver(installation)]


def _simulator(installation: Installation) -> Service:
    return Service(
        "simulator",
        "computes and storage: a model, no database",
        [
            python(),
            *("-m", "weir_workflows.simulated.server", "--listen", installation.address("simulator")),
            *(f"--{name.replace('_', '-')}={value:g}" for name, value in installation.simulated.items()),
        ],
        ports=("simulator",),
        health=f"{installation.address('simulator')}/healthz",
        own=Own("simulator", sees=launching.python_paths()),
    )


def _safekeeper(installation: Installation, number: int) -> Service:
    wal, http = f"safekeeper_{number}_wal", f"safekeeper_{number}_http"
    name = f"safekeeper-{number}"
    return Service(
        name,
        f"WAL, one of {installation.safekeeper_count}",
        [
            str(installation.bin_dir / "weir-safekeeper"),
            *("--id", str(number)),
            *("--listen-wal", installation.address(wal), "--listen-http", installation.address(http)),
            *("--data-dir", str(installation.home / name)),
            *("--peers", ",".join(installation.address(f"safekeeper_{n}_wal") for n in installation.safekeepers)),
            *_options(installation.safekeeper_limits),
            *_tokens(installation, name),
            *_tls(installation, name),
            *(("--object-store", installation.object_store) if installation.offload else ()),
            *_encryption(installation),
        ],
        ports=(wal, http),
        health=_health(installation, name, http),
        before=with_object_store_variables(installation) if installation.offload else (),
        own=_of_storage(installation, name) if installation.offload else Own(name, installation.home / name),
    )


def _pageserver(installation: Installation) -> Service:
    return Service(
        "pageserver",
        "pages",
        [
            str(installation.bin_dir / "weir-pageserver"),
            *("--listen-pages", installation.address("pageserver_pages")),
            *("--listen-http", installation.address("pageserver_http")),
            *("--data-dir", str(installation.home / "pageserver")),
            *("--object-store", installation.object_store),
            *("--pg-bin-dir", str(installation.pg_bin), "--pg-user", installation.pg_user),
            *_options(installation.pageserver_limits),
            *_encryption(installation),
            *_tokens(installation, "pageserver"),
            *_tls(installation, "pageserver"),
        ],
        ports=("pageserver_pages", "pageserver_http"),
        health=_health(installation, "pageserver", "pageserver_http"),
        after={f"safekeeper-{n}": HEALTHY for n in installation.safekeepers},
        stop_seconds=30,
        before=with_object_store_variables(installation),
        # It has `initdb` make what new databases begin with.
        own=replace(
            _of_storage(installation, "pageserver", installation.pg_bin.parent),
            has_account=True,
        ),
    )


def _of_storage(installation: Installation, name: str, *sees: Path) -> Own:
    """A program of storage, with the object store: a folder is shared, a bucket's key is in the environment."""
    store = launching.object_store_folder(installation)
    return Own(name, installation.home / name, (STORAGE,), sees, shared=store)


def _options(limits: Mapping[str, int]) -> list[str]:
    """Limits as a program's options: `block_cache_mib` is `--block-cache-mib=`."""
    return [f"--{name.replace('_', '-')}={mib}" for name, mib in limits.items()]


def _tokens(installation: Installation, part: str) -> list[str]:
    """Whom a part lets in, and what it shows to others: files, which it reads again when they change."""
    return ["--token-keys", str(installation.token_keys_file), "--token", str(installation.token_file(part))]


def _encryption(installation: Installation) -> list[str]:
    """Keys for what is encrypted, which may be older than the setting, and whether everything is from now on."""
    keys = ["--key-file", str(installation.storage_keys)]
    if installation.encryption:
        return [*keys, "--encrypt"]
    return keys if installation.storage_keys.exists() else []


def _tls(installation: Installation, part: str) -> list[str]:
    """By what a part proves itself to others, and whom it believes."""
    return ["--tls", str(parts.service_file(installation.home, part))] if installation.has_tls else []


def _health(installation: Installation, part: str, port: str, path: str = "/healthz") -> str | list[str]:
    """The supervisor can't prove itself to a part: a program, which knows the path, does it for it, as the part."""
    if not installation.has_tls:
        return f"{installation.address(port)}{path}"
    kind = part.partition("-")[0]
    return [str(installation.bin_dir / "weir-probe"), kind, installation.address(port), *_tls(installation, part)]


def with_object_store_variables(installation: Installation) -> list[str]:
    """The words that give a program what secrets/object_store.env says, and no other process or file."""
    if not installation.object_store.startswith("s3://"):
        return []
    path = installation.object_store_variables
    if not path.is_file():
        raise CliError(
            f"{installation.object_store} needs {path} (mode 0600): a line AWS_ACCESS_KEY_ID=..., one "
            "AWS_SECRET_ACCESS_KEY=..., and where it is not Amazon's or not in us-east-1 AWS_ENDPOINT_URL=... and "
            "AWS_REGION=... (docs/operating.md)."
        )
    if path.stat().st_mode & 0o077:
        raise CliError(f"{path} holds secrets and can be read by others: chmod 600 {path}")
    return ["/bin/sh", "-c", 'set -a; . "$0"; set +a; exec "$@"', str(path)]


def _api(installation: Installation) -> Service:
    return Service(
        "api",
        "API and console",
        [python(), "-m", "weir.serve", "--port", str(installation.ports["api"])],
        ports=("api",),
        health=f"{installation.address('api')}/healthz",
        after={"postgres": HEALTHY, "migrate": COMPLETED},
        # It runs `pg_dump` of the programs of Postgres.
        own=Own("api", sees=[*launching.python_paths(), installation.pg_bin.parent]),
        has_database=True,
    )


def _prometheus(installation: Installation) -> Service:
    return Service(
        "prometheus",
        "metrics",
        [
            str(installation.tool("prometheus")),
            f"--config.file={installation.run_dir / 'prometheus.yml'}",
            f"--storage.tsdb.path={installation.home / 'prometheus' / 'data'}",
            f"--storage.tsdb.retention.time={installation.retention}",
            f"--web.listen-address={installation.address('prometheus')}",
            *((f"--web.config.file={prometheus_files.web_file(installation)}",) if installation.has_tls else ()),
            "--log.level=warn",
        ],
        ports=("prometheus",),
        health=_health(installation, "prometheus", "prometheus", "/-/ready"),
        own=Own("prometheus", installation.home / "prometheus"),
    )


def _worker(installation: Installation) -> Service:
    return Service(
        "worker",
        "runs workflows, starts computes",
        [python(), "-m", "weir_workflows.worker"],
        ports=("worker",),
        health=f"{installation.address('worker')}/healthz",
        after={
            "postgres": HEALTHY,
            "migrate": COMPLETED,
            "temporal": HEALTHY,
            **{service.name: HEALTHY for service in _storage(installation)},
        },
        # Verdicts multiply many small matrices: threads of the linear algebra library would only wait for each other.
        environment={"OPENBLAS_NUM_THREADS": "1"},
        has_database=True,
    )


def _proxy(installation: Installation) -> Service:
    files, settings = installation.proxy_files, installation.proxy
    return Service(
        "proxy",
        "one address for all databases",
        [
            str(installation.bin_dir / "weir-proxy"),
            *("--listen", f"{bracketed(settings.listen)}:{installation.ports['proxy']}"),
            *("--listen-http", installation.address("proxy_http")),
            *("--certificate", str(files.certificate), "--private-key", str(files.key)),
            *(("--domain", settings.domain) if settings.domain else ()),
            *("--control-plane", installation.api_url),
            *("--control-plane-token", str(ownership.control_plane_token(installation.home))),
            *("--mock-secret", str(installation.proxy_mock_secret_file)),
            *("--drain-seconds", str(_DRAIN_SECONDS)),
            *(word for name, value in settings.pool.items() for word in (f"--{name.replace('_', '-')}", str(value))),
            *(("--pool-discard",) if settings.pool_discard else ()),
            *_behind(settings),
        ],
        ports=("proxy", "proxy_http"),
        health=f"{installation.address('proxy_http')}/healthz",
        after={"api": HEALTHY},
        stop_seconds=_DRAIN_SECONDS + 5,
        own=Own("proxy", given=settings.given or ()),
    )


def _behind(settings: Proxy) -> tuple[str, ...]:
    if settings.behind is None:
        return ()
    port, senders = settings.behind
    listen = f"{bracketed(settings.listen)}:{port}"
    return "--listen-behind", listen, "--trusted-senders", ",".join(plain_range(sender) for sender in senders)


def supervisor_config(installation: Installation, chosen: Sequence[Service]) -> str:
    """process-compose reads YAML, of which JSON is a part."""
    environment = installation.environment()
    document = {
        "version": "0.5",
        "is_strict": True,
        "disable_env_expansion": True,
        "log_level": "info",
        "ordered_shutdown": True,
        "processes": {service.name: _entry(installation, service, environment) for service in chosen},
    }
    return json.dumps(document, indent=2)


def _entry(installation: Installation, service: Service, environment: Mapping[str, str]) -> dict[str, Any]:
    marked = {**environment, **service.environment, SERVICE_VARIABLE: service.name}
    if not service.has_database:
        marked.pop(DATABASE_VARIABLE, None)
    words, log = [*service.before, *service.command], installation.log_file(service.name)
    if service.own is not None:
        as_user = launching.words(installation, service.own, service.command[0], service.ports)
        words = [*service.before, *as_user, *service.command]
        # What root has at home is not the service's.
        marked |= {"HOME": str(service.own.folder or "/")} if as_user else {}
    entry: dict[str, Any] = {
        "description": service.what,
        "entrypoint": [*_TO_ITS_LOG, str(log), *precedence.words(installation, service.name), *words],
        "working_dir": str(installation.home),
        "environment": [f"{name}={value}" for name, value in marked.items()],
        "availability": _availability(service),
        "depends_on": {name: {"condition": condition} for name, condition in service.after.items()},
        # Only the service itself: Postgres and the worker look after their own children.
        "shutdown": {
            "signal": service.stop_signal,
            "timeout_seconds": service.stop_seconds,
            "parent_only": True,
        },
    }
    probe = service.probe()
    if probe is not None:
        entry["readiness_probe"] = probe
    if service.every:
        entry["schedule"] = {"interval": service.every}
    return entry


def _availability(service: Service) -> dict[str, Any]:
    if service.every:
        return {"restart": "no"}
    if service.once:
        return {"restart": "on_failure", "backoff_seconds": 2, "max_restarts": 10}
    return {"restart": "always", "backoff_seconds": 1}
