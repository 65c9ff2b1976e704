"""Checks and tests of the Terraform provider in terraform/, with the Go compiler that set-up found.

python -m devtools.terraform format       what gofmt would change
python -m devtools.terraform vet
python -m devtools.terraform test         unit tests: a made-up API, the plugin protocol, no OpenTofu
python -m devtools.terraform acceptance   OpenTofu against a real Weir; builds OpenTofu first (cold: about 4 min)
python -m devtools.terraform docs         the reference in terraform/docs, written again
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from . import builds
from .paths import BIN, TERRAFORM, VENV, tool_environment
from .run import say


def _go(*arguments: str) -> int:
    # Without -mod=mod: a go.sum that is not current is a failure, and nothing rewrites it.
    environment = dict(tool_environment(), GOFLAGS="-mod=readonly -buildvcs=false")
    return subprocess.run([builds.go(), *arguments], cwd=TERRAFORM, env=environment, check=False).returncode


def check_format() -> int:
    gofmt = builds.go().parent / "gofmt"
    command = [gofmt if gofmt.is_file() else "gofmt", "-l", "."]
    found = subprocess.run(command, cwd=TERRAFORM, capture_output=True, text=True, check=False)
    for name in found.stdout.splitlines():
        say(f"terraform/{name} is not formatted: gofmt -w terraform/{name}")
    sys.stderr.write(found.stderr)
    return 1 if found.stdout.strip() else found.returncode


def vet() -> int:
    return _go("vet", "./...")


def test() -> int:
    return _go("test", "-v", "./...")


def docs() -> int:
    return _go("run", "./internal/docs")


def acceptance() -> int:
    say(builds.build_tofu())
    environment = dict(tool_environment(), WEIR_GO=str(builds.go()), WEIR_TOFU=str(BIN / "tofu"))
    # Postgres and the engine are those of the tests of the whole stack.
    command = [VENV / "bin" / "pytest", "-q", "-rA", "acceptance"]
    return subprocess.run(command, cwd=TERRAFORM, env=environment, check=False).returncode


COMMANDS: dict[str, Callable[[], int]] = {
    "format": check_format,
    "vet": vet,
    "test": test,
    "acceptance": acceptance,
    "docs": docs,
}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        say(f"usage: python -m devtools.terraform {'|'.join(COMMANDS)}")
        return 2
    os.environ.pop("TF_ACC", None)
    return COMMANDS[arguments[0]]()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
