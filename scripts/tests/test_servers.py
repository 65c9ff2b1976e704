"""The servers that set-up installs are those that the tests of redo look for."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import servers
from devtools.paths import STORAGE
from devtools.servers import Server

FACTS = {15: "v15/mod.rs", 17: "v17.rs", 18: "v18.rs"}


@pytest.mark.parametrize("major", sorted(FACTS))
def test_the_oldest_and_the_newest_minor_are_those_of_pg_types(major: int):
    source = (STORAGE / "crates/pg-types/src" / FACTS[major]).read_text()
    numbers = [re.search(rf"{name}_server_version: (\d+)_(\d+)", source) for name in ("min", "newest")]
    wanted = [f"{int(found[1]) // 10}.{int(found[2])}" for found in numbers if found]
    assert [server.version for server in servers.SERVERS if server.major == major] == wanted


def test_no_two_servers_share_a_place_and_the_newest_of_other_majors_keeps_its_old_one():
    homes = {server.version: server.home.name for server in servers.SERVERS}
    assert len(set(homes.values())) == len(homes)
    assert (homes["17.11"], homes["18.6"]) == ("postgres-17", "postgres-18")


def test_a_package_of_debian_is_named_as_its_registry_does():
    server = Server("15.20", "", debian="0+deb12u1")
    assert server.address.endswith("/postgresql-15/postgresql-15_15.20-0%2bdeb12u1_amd64.deb")


def test_a_server_that_cannot_be_had_is_named_and_the_others_are_still_installed(monkeypatch: pytest.MonkeyPatch):
    def unavailable_at_debian(server: Server) -> str:
        if server.debian:
            raise servers.UnavailableError("gone")
        return f"Postgres {server.version}"

    monkeypatch.setattr(servers, "install", unavailable_at_debian)
    said = servers.install_servers()
    assert "NOT installed: Postgres 15.20 (gone)" in said
    assert "Postgres 15.18, " in said
    assert said.endswith("Postgres 18.6")
