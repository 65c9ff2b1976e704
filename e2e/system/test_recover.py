"""The metadata database is lost: `weir recover` makes projects and branches again from the bucket."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack, wait_for

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "system"))

from s3 import S3Server, s3_server
from weirbench.postgres import SqlError, query


@pytest.fixture
def s3() -> Generator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def on_s3(s3: S3Server) -> Generator[Stack]:
    """An installation whose object store is a bucket, set up as docs/operating.md says."""

    def credentials(home: Path) -> None:
        secrets = home / "secrets"
        secrets.mkdir(parents=True, mode=0o700)
        file = secrets / "object_store.env"
        file.write_text("".join(f"{name}={value}\n" for name, value in s3.environment.items()))
        file.chmod(0o600)

    with running_stack({"WEIR_OBJECT_STORE": s3.address("weir")}, prepare=credentials) as stack:
        yield stack


def test_projects_come_back_from_the_bucket_and_old_connection_strings_work(on_s3: Stack, s3: S3Server) -> None:
    api = on_s3.api()
    shop = api.create_database("shop", {"work_mem": "8MB"})
    query(shop.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    path = f"/projects/{shop.project_id}"
    made = api.request("POST", f"{path}/branches", {"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]})
    api.wait_operations(made["operations"])
    # At their computes: the proxy has to know a role's verifier, which a recovery does not bring back.
    dev = api.direct_uri(made)
    query(dev, "INSERT INTO kept VALUES (1)")
    query(shop.uri, "CREATE DATABASE of_its_own")
    database = {"database": {"name": "second", "owner_name": "app_owner"}}
    api.wait_operations(api.request("POST", f"{path}/branches/{shop.branch_id}/databases", database)["operations"])
    second = shop.uri.rpartition("/")[0] + "/second"
    query(second, "CREATE TABLE here AS SELECT 42 AS answer")

    on_s3.down()
    shutil.rmtree(on_s3.home / "postgres")
    shutil.rmtree(on_s3.home / "pageserver")
    on_s3.up()
    api = on_s3.api()
    assert api.projects() == []
    shown = on_s3.weir("recover", "--dry-run")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "dev" in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert api.projects() == []
    done = on_s3.weir("recover", "--from", s3.address("weir"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 project(s) made again" in done.stdout
    assert "nothing to do" in on_s3.weir("recover").stdout

    assert [project["name"] for project in api.projects()] == ["shop"]
    branches = api.get(f"{path}/branches")["branches"]
    assert {branch["name"]: branch["default"] for branch in branches} == {"main": True, "dev": False}
    for endpoint in api.get(f"{path}/endpoints")["endpoints"]:
        assert endpoint["current_state"] == "idle"
        api.wait_operations(api.request("POST", f"{path}/endpoints/{endpoint['id']}/start")["operations"])
    # The addresses and passwords of before, which nobody here knows any more.
    assert query(shop.uri, "SELECT count(*) FROM kept") == "1000"
    assert query(dev, "SELECT count(*) FROM kept") == "1001"
    assert query(second, "SELECT answer FROM here") == "42"
    assert query(shop.uri, "SELECT count(*) FROM pg_database WHERE datname = 'of_its_own'") == "1"
    assert query(shop.uri, "SHOW work_mem") == "8MB"
    role = f"{path}/branches/{shop.branch_id}/roles/app_owner"
    reset = api.request("POST", f"{role}/reset_password")
    api.wait_operations(reset["operations"])

    def refused() -> bool:
        try:
            query(shop.uri, "SELECT 1", timeout=10)
        except SqlError:
            return True
        return False

    wait_for("the old password to be refused once it is reset", refused, 30)
    said = "".join(log.read_text(errors="replace") for log in (on_s3.home / "log").glob("*.log"))
    configured = (on_s3.home / "run" / "services.json").read_text()
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in said + configured
