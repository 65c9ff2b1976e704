"""Settings of a control plane whose parts have machines or containers of their own."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy.engine import make_url

from weir.config import ADDRESSES, Settings
from weir.endpoints import repository
from weir.kit import crypto

PASSWORD = "p@ss/w:rd"
SERVICES: dict[str, Any] = {
    "deployment": "services",
    "database_url": "postgresql+psycopg://weir@postgres:5432/weir",
    "temporal_address": "temporal:7233",
    "prometheus_url": "http://prometheus:9090",
    "api_url": "http://api:7400",
    "pageserver_http": "http://pageserver:7601",
    "pageserver_pages": "pageserver:7600",
    "safekeepers_http": "http://safekeeper-1:7511",
    "safekeepers_wal": "safekeeper-1:7501",
    "compute_host": "worker",
    "worker_metrics_host": "worker",
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)


def test_services_of_their_own_take_no_address_of_one_machine() -> None:
    assert Settings(**SERVICES).pageserver_http == "http://pageserver:7601"
    for name in ADDRESSES:
        given = {key: value for key, value in SERVICES.items() if key != name}
        with pytest.raises(ValidationError, match=rf"set WEIR_{name.upper()} \(docker/README"):
            Settings(**given)
    with pytest.raises(ValidationError, match="WEIR_DATABASE_URL, WEIR_TEMPORAL_ADDRESS, "):
        Settings(deployment="services")


def test_every_default_that_is_an_address_of_loopback_is_of_another_part() -> None:
    """A new setting with such a default belongs to ADDRESSES, unless a deployment of services never uses it."""
    fields = Settings.model_fields
    loopback = {name for name, field in fields.items() if "127.0.0.1" in str(field.default)}
    assert loopback == {*ADDRESSES, "simulator_url"}


def test_the_databases_password_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    settings = Settings(**SERVICES, database_password_file=path)
    url = make_url(settings.database_url)
    assert (url.password, url.host, url.username) == (PASSWORD, "postgres", "weir")


@pytest.mark.parametrize(("content", "said"), [(None, "can't be read: No such file"), ("\n", "is empty")])
def test_a_password_file_that_is_not_one_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValidationError, match=f"WEIR_DATABASE_PASSWORD_FILE: {path} {said}"):
        Settings(database_password_file=path)


def test_a_refusal_says_nothing_of_what_was_given() -> None:
    """Containers' logs are read by more people than their secrets."""
    with pytest.raises(ValidationError) as refused:
        Settings(deployment="services", database_url=f"postgresql+psycopg://weir:{PASSWORD}@postgres/weir")
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("172.30.80.7", True),
        ("172.30.81.7", False),
        ("::ffff:172.30.80.7", False),
        ("fd00::7", True),
        ("api", False),
        ("", False),
        ("172.30.80.7, 10.0.0.1", False),
    ],
)
def test_internal_is_loopback_and_the_named_networks(address: str, *, expected: bool) -> None:
    settings = Settings(internal_networks="172.30.80.0/24, fd00::/64")
    assert settings.is_internal(address) is expected


def test_without_networks_only_loopback_is_internal() -> None:
    assert not Settings().is_internal("172.30.80.7")
    with pytest.raises(ValidationError, match=r"WEIR_INTERNAL_NETWORKS: .*has host bits set"):
        Settings(internal_networks="172.30.80.7/24")


def test_a_secret_that_is_mounted_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only root also refuses who is root."""
    path = tmp_path / "api_key"
    path.write_bytes(b"weir_given\n")

    def refused(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(crypto.os, "open", refused)
    assert crypto.write_secret_once(path, b"weir_other") == b"weir_given"
    with pytest.raises(OSError, match="Read-only"):
        crypto.write_secret_once(tmp_path / "encryption_key", b"new")


def test_a_port_of_another_machine_is_taken_only_if_an_endpoint_has_it() -> None:
    """The address is one for documentation, which no machine has, and the name is one that leads nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not repository._free("127.0.0.1", port)
        assert repository._free("192.0.2.1", port)
        assert repository._free("worker.invalid", port)
    assert repository._free("127.0.0.1", port)
