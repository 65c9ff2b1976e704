"""What the machine itself must have: tools, Debian packages, FUSE, accounts."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .paths import LOGS, PG_BIN
from .run import StepError, capture, run_logged, say

PACKAGES = {
    "postgresql-15": "the compute, and the metadata store",
    "postgresql-client-15": "psql and pgbench",
    "fuse3": "the computes' volumes",
    "prometheus": "metrics",
    "chromium": "the browser journeys",
    "openjdk-17-jdk-headless": "a client of the proxy by JDBC",
    "maven": "the JDBC driver",
    "fonts-liberation": "text in the journeys' screenshots",
}
POSTGRES_PACKAGES = ("postgresql-15", "postgresql-client-15")
POLICY = Path("/usr/sbin/policy-rc.d")
# The postgres a compute runs must write multixact offsets the way the storage engine reads them.
OLDEST_POSTGRES_MINOR = 18


@dataclass(frozen=True)
class Tool:
    name: str
    command: tuple[str, ...]
    oldest: tuple[int, int]
    remedy: str


TOOLS = (
    Tool("gcc", ("gcc", "-dumpfullversion"), (10, 0), "apt-get install gcc"),
    Tool("make", ("make", "--version"), (4, 0), "apt-get install make"),
    Tool("cargo", ("cargo", "--version"), (1, 95), "install Rust 1.95 or newer with rustup (https://rustup.rs)"),
    Tool("node", ("node", "--version"), (20, 0), "install Node.js 20 or newer (https://nodejs.org/en/download)"),
    Tool("npm", ("npm", "--version"), (9, 0), "npm comes with Node.js"),
)


def version_of(text: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def check_tools() -> str:
    """Every missing or outdated tool is named at once, so that nobody mends them one run at a time."""
    problems: list[str] = []
    found = [f"python {sys.version_info.major}.{sys.version_info.minor}"]
    for tool in TOOLS:
        output = capture(tool.command)
        version = version_of(output) if output else None
        wanted = ".".join(map(str, tool.oldest))
        if version is None:
            problems.append(f"  {tool.name} is missing (needed: {wanted} or newer). {tool.remedy}")
        elif version < tool.oldest:
            have = ".".join(map(str, version))
            problems.append(f"  {tool.name} is {have}, needed is {wanted} or newer. {tool.remedy}")
        else:
            found.append(f"{tool.name} {version[0]}.{version[1]}")
    if problems:
        raise StepError("These tools are needed to build Weir:\n" + "\n".join(problems))
    return ", ".join(found)


def installed(package: str) -> bool:
    status = capture(("dpkg-query", "-W", "-f", "${db:Status-Status}", package))
    return status == "installed"


def install_packages() -> str:
    """Install what is missing and bring Postgres to the newest minor that the distribution offers."""
    if shutil.which("dpkg-query") is None:
        raise StepError("Weir is set up with Debian's packages, and this system has no dpkg. Debian 12 is supported.")
    missing = [package for package in PACKAGES if not installed(package)]
    for package in missing:
        say(f"      missing: {package} ({PACKAGES[package]})")
    if os.geteuid() != 0:
        return _as_another_user(missing)
    remark = _refresh_lists(needed=bool(missing))
    outdated = [package for package in POSTGRES_PACKAGES if package not in missing and _newer(package)]
    if missing or outdated:
        _apt("apt-install", ["install", "-y", "--no-install-recommends", *missing, *outdated])
    said = f"Postgres {postgres_minor() or 'unknown'}, the newest of the distribution"
    if remark:
        said = f"Postgres {postgres_minor() or 'unknown'}; {remark}"
    if missing:
        return f"installed {', '.join(missing)}; {said}"
    return f"upgraded {', '.join(outdated)}; {said}" if outdated else f"all {len(PACKAGES)} are installed; {said}"


def _as_another_user(missing: list[str]) -> str:
    """What a user without root's rights is told: set-up stops for a missing package, not for an old minor."""
    install = "sudo apt-get update && sudo apt-get install -y --no-install-recommends"
    if missing:
        raise StepError(
            "System packages can only be installed by root. Run this, then set-up again:\n"
            f"  {install} {' '.join(missing)}"
        )
    newer = next((version for package in POSTGRES_PACKAGES if (version := _newer(package))), None)
    said = f"all {len(PACKAGES)} are installed; Postgres {postgres_minor() or 'unknown'}"
    if newer is None:
        return said
    return f"{said}; the distribution has {newer}: {install} {' '.join(POSTGRES_PACKAGES)}"


def _refresh_lists(needed: bool) -> str:
    """Ask the distribution what is newest. Without an answer set-up goes on with what is installed, and says so."""
    try:
        _apt("apt-update", ["update"])
    except StepError:
        if needed:
            raise
        return f"the distribution could not be asked for a newer minor (see {LOGS / 'apt-update.log'})"
    return ""


def _apt(name: str, words: list[str]) -> None:
    command = ["apt-get", *words]
    with _services_stay_down():
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        result = run_logged(command, LOGS / f"{name}.log", environment=environment)
    if result.status != 0:
        raise StepError(f"`{' '.join(command)}` failed:\n{result.tail(20)}\nWhole output: {result.log}")


def _newer(package: str) -> str | None:
    """The version that apt would install in place of the installed one, if there is another. A package that an
    operator holds back (`apt-mark hold`) stays what it is."""
    if package in (capture(("apt-mark", "showhold")) or "").split():
        return None
    return newer_candidate(capture(("apt-cache", "policy", package), dict(os.environ, LC_ALL="C")) or "")


def newer_candidate(policy: str) -> str | None:
    """Of what `apt-cache policy PACKAGE` says in English: the candidate, when it is not what is installed."""
    found = dict(re.findall(r"^\s+(Installed|Candidate): (\S+)$", policy, re.MULTILINE))
    candidate = found.get("Candidate")
    return candidate if candidate not in (None, "(none)", found.get("Installed")) else None


def postgres_minor() -> str | None:
    """The minor of the server in `PG_BIN`, such as `15.20`."""
    version = version_of(capture((PG_BIN / "postgres", "--version")) or "")
    return f"{version[0]}.{version[1]}" if version else None


@contextmanager
def _services_stay_down() -> Generator[None]:
    """Debian starts a service when its package is installed. Weir runs its own Postgres and Prometheus."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(
        "#!/bin/sh\n# Written by Weir's set-up while it installs packages; removed right after.\nexit 101\n"
    )
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def check_host() -> str:
    problems: list[str] = []
    if not Path("/dev/fuse").exists():
        problems.append(
            "  /dev/fuse is missing: load the module (`modprobe fuse`), or give the container the device."
        )
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            problems.append(
                "  The account `postgres` is missing. Postgres refuses to run as root; Debian's package makes it."
            )
    if shutil.which("setpriv") is None:
        problems.append("  setpriv is missing (package util-linux).")
    output = capture((PG_BIN / "postgres", "--version"))
    version = version_of(output) if output else None
    if version is None:
        problems.append(f"  No Postgres server in {PG_BIN}; set WEIR_PG_BIN_DIR to where 15's programs are.")
    elif version[0] != 15 or version[1] < OLDEST_POSTGRES_MINOR:
        problems.append(
            f"  {PG_BIN} holds Postgres {version[0]}.{version[1]}; 15.{OLDEST_POSTGRES_MINOR} or newer is needed."
        )
    if problems:
        raise StepError("This machine cannot run Weir yet:\n" + "\n".join(problems))
    return f"FUSE, Postgres {version[0]}.{version[1]}" if version else ""
