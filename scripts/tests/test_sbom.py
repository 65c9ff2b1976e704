"""The bill of materials: every registry's lock file is read as it is, and licences are judged."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools.paths import E2E, FRONTEND, REPO
from devtools.sbom import crates, licences, npm, programs, python
from devtools.sbom.document import document
from devtools.sbom.part import Part, Use, merged

SUM = "ab" * 32


def part(licence: str, use: Use = Use.RUN, name: str = "thing") -> Part:
    return Part("pypi", name, "1.0", use=use, licence=licence)


@pytest.mark.parametrize(
    "licence",
    ["MIT", "MIT OR GPL-3.0-only", "(Apache-2.0 OR GPL-2.0-only) AND BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"],
)
def test_a_licence_is_allowed_where_one_alternative_is(licence: str):
    assert licences.problem(part(licence)) is None


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "", "Do what you like", "LGPL-3.0-only"]
)
def test_a_licence_that_is_not_allowed_is_a_problem_only_of_what_runs(licence: str):
    assert licences.problem(part(licence)) is not None
    assert licences.problem(part(licence, Use.BUILD)) is None


def test_an_exception_names_one_package_of_one_registry():
    assert licences.problem(part("LGPL-3.0-only", name="psycopg")) is None
    assert licences.problem(Part("npm", "psycopg", "1.0", Use.RUN, "LGPL-3.0-only")) is not None


def test_crates_that_only_tests_reach_do_not_run():
    def node(name: str, *deps: tuple[str, str | None]) -> dict[str, object]:
        edges = [{"pkg": to, "dep_kinds": [{"kind": kind, "target": None}]} for to, kind in deps]
        return {"id": name, "deps": edges}

    names = ["own", "sim", "runs", "tests", "builds", "below"]
    metadata = {
        "workspace_members": ["own", "sim"],
        "packages": [{"id": it, "name": it, "version": "1.0", "license": "MIT/Apache-2.0"} for it in names],
        "resolve": {
            "nodes": [
                node("own", ("runs", None), ("tests", "dev"), ("builds", "build")),
                node("sim", ("tests", None)),
                node("runs", ("below", None)),
                *(node(it) for it in ("tests", "builds", "below")),
            ]
        },
    }
    lock = {"package": [{"name": "runs", "version": "1.0", "checksum": SUM}, {"name": "own", "version": "1.0"}]}
    found = {it.name: it for it in crates.read(metadata, lock)}
    assert {name for name, it in found.items() if it.use is Use.RUN} == {"runs", "below"}
    assert {name for name, it in found.items() if it.use is Use.BUILD} == {"tests", "builds"}
    assert found["runs"].hashes == {SUM}
    assert found["runs"].licence == "MIT OR Apache-2.0"


def test_python_packages_run_if_a_member_needs_them_outside_its_groups():
    lock = {
        "manifest": {"members": ["weir"]},
        "package": [
            {
                "name": "weir",
                "version": "0",
                "dependencies": [{"name": "a", "extra": ["x"]}],
                "dev-dependencies": {"dev": [{"name": "c"}]},
            },
            {"name": "a", "version": "1", "optional-dependencies": {"x": [{"name": "b"}]}},
            {"name": "b", "version": "1", "wheels": [{"hash": f"sha256:{SUM}"}]},
            {"name": "c", "version": "1"},
        ],
    }
    found = {it.name: it for it in python.read(lock, lambda _name: "MIT")}
    assert {name: it.use for name, it in found.items()} == {"a": Use.RUN, "b": Use.RUN, "c": Use.BUILD}
    assert found["b"].hashes == {SUM}


def test_go_modules_are_what_the_program_says():
    said = (
        "/bin/x: go1.25\n\tpath\texample.org/x\n\tmod\texample.org/x\tv1.2.3\th1:a=\n"
        "\tdep\texample.org/y\tv0.1.0\th1:b=\n\tbuild\tCGO_ENABLED=0\n\tmod\texample.org/z\t(devel)\t\n"
    )
    found = programs.go_modules(Path("bin"), lambda program: said if program.name == "temporal" else "")
    assert [(it.name, it.version, it.use) for it in found] == [
        ("example.org/x", "v1.2.3", Use.RUN),
        ("example.org/y", "v0.1.0", Use.RUN),
    ]


def test_what_runs_anywhere_counts_as_what_runs():
    one, other = part("", Use.BUILD), Part("pypi", "thing", "1.0", Use.RUN, "MIT", used_by=frozenset({"x"}))
    (both,) = merged([one, other])
    assert (both.use, both.licence, both.used_by) == (Use.RUN, "MIT", {"x"})


@pytest.mark.parametrize(("folder", "ships"), [(FRONTEND, True), (E2E, False)])
def test_the_lock_files_of_npm_are_read_whole(folder: Path, ships: bool):
    lock = json.loads((folder / "package-lock.json").read_text())
    found = npm.parts(folder, "x", ships=ships)
    assert len(found) == sum(1 for place in lock["packages"] if place)
    bundled = {place.rpartition("node_modules/")[2] for place, it in lock["packages"].items() if it.get("inBundle")}
    assert all(it.hashes or it.name in bundled for it in found)
    assert any(it.use is Use.RUN for it in found) == ships


def test_what_the_control_plane_and_the_console_run_is_under_allowed_licences():
    parts = [*python.parts(REPO), *npm.parts(FRONTEND, "console", ships=True)]
    assert [reason for it in parts if (reason := licences.problem(it))] == []


def test_the_document_fits_the_schema_and_is_the_same_for_one_commit():
    parts = [
        Part("npm", "@scope/name", "1.0", Use.RUN, "MIT", frozenset({"cd" * 64}), frozenset({"console"})),
        Part("generic", "postgresql", "15.18", Use.BUILD, "PostgreSQL", frozenset({SUM})),
    ]
    made = datetime(2026, 1, 1, tzinfo=UTC)
    text = document(parts, "c0ffee", made)
    assert text == document(parts, "c0ffee", made)
    by_name = {it["name"]: it for it in json.loads(text)["components"]}
    assert by_name["@scope/name"]["purl"] == "pkg:npm/%40scope/name@1.0"
    assert by_name["@scope/name"]["scope"] == "required"
    assert by_name["postgresql"]["scope"] == "excluded"
