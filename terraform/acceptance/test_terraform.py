"""OpenTofu, the provider and a real Weir: the provider's own acceptance tests, and the example as its README has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack, wait_for

TERRAFORM = Path(__file__).resolve().parents[1]
GO = os.environ.get("WEIR_GO", "go")
TOFU = os.environ.get("WEIR_TOFU", "tofu")


@pytest.fixture(scope="module")
def stack() -> Generator[Stack]:
    with running_stack() as running:
        yield running


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    """Of OpenTofu and of Go's tests: the Weir that was started, and nothing of the user's own configuration."""
    quiet = tmp_path / "tofu.rc"
    quiet.write_text("")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TF_")},
        "WEIR_API_URL": f"http://127.0.0.1:{stack.port_base}",
        "WEIR_API_KEY": (stack.home / "secrets" / "api_key").read_text().strip(),
        "TF_CLI_CONFIG_FILE": str(quiet),
        "CHECKPOINT_DISABLE": "1",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
    }


def test_the_life_of_every_resource(environment: dict[str, str]) -> None:
    acceptance = {
        "TF_ACC": "1",
        "TF_ACC_TERRAFORM_PATH": shutil.which(TOFU) or TOFU,
        # Where OpenTofu looks for providers that are named without a host.
        "TF_ACC_PROVIDER_HOST": "registry.opentofu.org",
    }
    command = [GO, "test", "-count=1", "-v", "-timeout=18m", "-run", "^TestAcc", "./internal/provider"]
    ran = subprocess.run(
        command, cwd=TERRAFORM, env={**environment, **acceptance}, capture_output=True, text=True, check=False
    )
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output[-20000:]
    written = "".join(path.read_text() for path in (TERRAFORM / "internal" / "provider").glob("*_test.go"))
    tests = set(re.findall(r"^func (TestAcc\w+)\(", written, re.MULTILINE))
    assert tests and set(re.findall(r"^--- PASS: (\w+)", output, re.MULTILINE)) == tests, output[-20000:]


def test_examples_are_formatted(environment: dict[str, str]) -> None:
    command = [TOFU, "fmt", "-check", "-recursive", "-diff", TERRAFORM / "examples"]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


class Tofu:
    """OpenTofu in a folder, with the provider as it is built from this checkout."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        programs = folder / "programs"
        programs.mkdir()
        build = [GO, "build", "-o", programs / "terraform-provider-weir", "."]
        subprocess.run(build, cwd=TERRAFORM, env=environment, check=True, timeout=600)
        settings = folder / "example.rc"
        settings.write_text(
            f'provider_installation {{\n  dev_overrides {{ "weir/weir" = {json.dumps(str(programs))} }}\n}}\n'
        )
        self._environment = {**environment, "TF_CLI_CONFIG_FILE": str(settings), "TF_IN_AUTOMATION": "1"}
        self.folder = folder / "configuration"

    def run(self, *arguments: str, expect: int = 0) -> str:
        ran = subprocess.run(
            [TOFU, *arguments], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=900, check=False,
        )  # fmt: skip
        output = ran.stdout + ran.stderr
        assert ran.returncode == expect, output
        return output


def test_the_example_makes_what_it_says(stack: Stack, environment: dict[str, str], tmp_path: Path) -> None:
    tofu = Tofu(tmp_path, environment)
    shutil.copytree(TERRAFORM / "examples" / "shop", tofu.folder)
    tofu.run("apply", "-auto-approve", "-no-color")
    made = {name: output["value"] for name, output in json.loads(tofu.run("output", "-json")).items()}
    assert made["rollout"] == "completed" and made["switched"] == 3
    # An empty plan is exit code 0, a plan with changes 2.
    tofu.run("plan", "-detailed-exitcode", "-no-color")
    api = stack.api()
    branches = api.get(f"/projects/{made['project']}/branches")["branches"]
    assert {branch["name"] for branch in branches} == {"main", "staging", "review"}
    key = environment["WEIR_API_KEY"]
    assert not [path for path in tofu.folder.rglob("*") if path.is_file() and key in path.read_text(errors="replace")]
    tofu.run("destroy", "-auto-approve", "-no-color")
    wait_for(
        "the project to be gone",
        lambda: made["project"] not in {project["id"] for project in api.projects()},
        60,
    )
