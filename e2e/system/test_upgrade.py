"""`apt upgrade` brings another minor of Postgres while everything runs: nothing breaks, nothing moves by itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack, wait_for
from weirbench.postgres import query

from weir import postgres_versions

PG = Path("/usr/lib/postgresql/15")
INSTALLED = postgres_versions.of_programs(PG / "bin") or ""
NEXT = INSTALLED[:-2] + "99"
PLPGSQL = "DO $$ BEGIN PERFORM 1; END $$"


@pytest.fixture
def package() -> Generator[Path]:
    """A package of the test's own, which it may upgrade: the system's Postgres, copied."""
    folder = Path(tempfile.mkdtemp(prefix="weir-package-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(PG, folder / "usr/lib/postgresql/15", symlinks=True)
    shutil.copytree("/usr/share/postgresql/15", folder / "usr/share/postgresql/15", symlinks=True)
    yield folder / "usr/lib/postgresql/15"
    shutil.rmtree(folder)


def upgrade(package: Path, library: bytes) -> None:
    """As dpkg does: every file is replaced by a rename."""
    changed = {"bin/postgres": _next(package), "bin/initdb": _next(package, "initdb"), "lib/plpgsql.so": library}
    for name, content in changed.items():
        path = package / name
        new = path.with_name(path.name + ".dpkg-new")
        new.write_bytes(content)
        new.chmod(path.stat().st_mode)
        new.replace(path)


def _next(package: Path, name: str = "postgres") -> bytes:
    return (package / "bin" / name).read_bytes().replace(INSTALLED.encode(), NEXT.encode())


def minor(uri: str) -> str:
    return query(uri, "SHOW server_version").split()[0]


def test_an_upgrade_under_running_computes_is_safe_and_noticed(package: Path) -> None:
    with running_stack({"WEIR_PG_BIN_DIR": str(package / "bin")}) as stack:
        api = stack.api()
        old = api.create_database("old", {})
        assert minor(old.uri) == INSTALLED
        whole = (package / "lib/plpgsql.so").read_bytes()
        broken = whole.replace(b"\0SPI_connect\0", b"\0SPI_cannot_\0")
        assert broken != whole

        # Libraries that no server of before can load: computes and the metadata store do not see them.
        upgrade(package, broken)
        query(old.uri, PLPGSQL)
        stack.kill("postgres")
        upgrade(package, whole)

        def noticed() -> bool:
            compute = api.compute(old.compute_id)
            return (compute["postgres_version"], compute["installed_postgres_version"]) == (INSTALLED, NEXT)

        wait_for("the new minor to be noticed", noticed)
        wait_for("the new minor to be copied", (stack.home / "servers" / NEXT / "bin").is_symlink)
        _crashes_and_restarts_stay(stack, old.project_id, old.compute_id, old.uri)

        new = api.create_database("new", {})
        assert minor(new.uri) == NEXT
        query(new.uri, PLPGSQL)
        # The metadata store moves when it is started anew.
        assert (stack.home / "servers/metadata").readlink() == Path(INSTALLED)
        stack.down()
        stack.up()
        assert (stack.home / "servers/metadata").readlink() == Path(NEXT)
        wait_for("the old compute", lambda: stack.api().compute(old.compute_id)["state"] == "active")
        assert minor(old.uri) == INSTALLED


def _crashes_and_restarts_stay(stack: Stack, project_id: str, endpoint_id: str, uri: str) -> None:
    api = stack.api()
    api.wait_operations(api.request("POST", f"/projects/{project_id}/endpoints/{endpoint_id}/restart")["operations"])
    assert minor(uri) == INSTALLED
    before = stack.compute_pid(endpoint_id)
    os.kill(before, 9)

    def again() -> bool:
        compute = api.compute(endpoint_id)
        return compute["state"] == "active" and stack.compute_pid(endpoint_id) != before

    wait_for("the killed compute", again)
    assert minor(uri) == INSTALLED
    query(uri, PLPGSQL)
