"""Minors of Postgres: their order, and what `weir doctor` says of the one that is installed."""

from pathlib import Path

from weir import postgres_versions
from weir.cli import doctor


def test_minors_are_ordered_by_their_numbers() -> None:
    assert postgres_versions.newest(["15.9", "15.20", "15.18"]) == "15.20"
    assert postgres_versions.major_of("15.20") == 15


def test_the_tested_minors_are_listed_oldest_first() -> None:
    for major, minors in postgres_versions.TESTED.items():
        assert list(minors) == sorted(minors, key=postgres_versions.order)
        assert {postgres_versions.major_of(minor) for minor in minors} == {major}


def test_a_program_is_asked_again_once_it_was_replaced(tmp_path: Path) -> None:
    program = tmp_path / "postgres"
    assert postgres_versions.installed(tmp_path) is None
    for version in ("15.18", "15.20"):
        new = tmp_path / "new"
        new.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version} (Debian {version}-0+deb12u1)'\n")
        new.chmod(0o755)
        new.replace(program)
        assert postgres_versions.installed(tmp_path) == version


def test_doctor_warns_of_a_minor_that_is_older_or_newer_than_the_newest_tested() -> None:
    newest = postgres_versions.TESTED[15][-1]
    assert doctor.tested(newest)[0] is True
    good, what, remedy = doctor.tested("15.99")
    assert (good, "newer than" in what, "rollout" in remedy) == (None, True, True)
    good, what, remedy = doctor.tested("15.18")
    assert (good, "older than" in what, "--only-upgrade" in remedy) == (None, True, True)
