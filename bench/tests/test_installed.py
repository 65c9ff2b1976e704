"""Which server the oracle runs on is said by its version; a major alone means each of its minors."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench.servers import Installed, NoServerError, chosen, installed


def server(version: str) -> Installed:
    return Installed(version, Path("/nowhere") / version, packaged=False)


THERE = [server("15.18"), server("15.20"), server("17.11")]


def test_a_minor_is_that_server_and_a_major_are_all_of_its():
    assert [found.version for found in chosen("15.18", THERE)] == ["15.18"]
    assert [found.version for found in chosen("15", THERE)] == ["15.18", "15.20"]
    assert [found.version for found in chosen("17", THERE)] == ["17.11"]


@pytest.mark.parametrize("version", ["15.1", "16", "18"])
def test_what_is_not_here_is_refused_and_what_is_here_is_named(version: str):
    with pytest.raises(NoServerError, match=rf"no Postgres {version} here \(there is: 15.18, 15.20, 17.11\)"):
        chosen(version, THERE)


def test_servers_are_found_by_what_they_say_and_not_by_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def program(home: str, said: str) -> None:
        path = tmp_path / home / "bin/postgres"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho '{said}'\n")
        path.chmod(0o755)

    program("postgres-17", "postgres (PostgreSQL) 17.11")
    program("postgres-17.10", "postgres (PostgreSQL) 17.10")
    program("postgres-15.20", "postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)")
    program("postgres-16", "postgres (PostgreSQL) 16.14")
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))
    monkeypatch.setattr("weirbench.servers.PG_BIN", tmp_path / "none")
    found = installed()
    assert [(one.version, one.packaged) for one in found] == [("15.20", True), ("17.10", False), ("17.11", False)]
