"""Promise: an image's bill of materials names what is in it, and two builds of it are held against each other."""

from __future__ import annotations

import json
from pathlib import Path

import bill
import differences
import pytest
from devtools.paths import REPO
from devtools.sbom import python

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
Description: GNU C Library
 with a second line

Package: gone
Status: deinstall ok config-files
Version: 1.0
"""


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def install(root: Path, name: str, version: str) -> None:
    folder = f"opt/weir/lib/python3.11/site-packages/{name}-{version}.dist-info"
    write(root, f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nA text.\n")


def test_debians_packages_are_those_that_are_installed(tmp_path: Path) -> None:
    assert bill.debian(tmp_path) == [], "an image without dpkg"
    write(tmp_path, "var/lib/dpkg/status", STATUS)
    assert [part.key for part in bill.debian(tmp_path)] == [("deb", "debian/libc6", "2.36-9+deb12u13")]


def test_pythons_packages_have_the_lock_files_hashes_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    locked = next(part for part in python.parts(REPO) if part.name == "sqlalchemy")
    install(tmp_path, "SQLAlchemy", locked.version)
    install(tmp_path, "weir", "0.1.0")
    assert bill.python_packages(tmp_path) == [locked]
    install(tmp_path, "left-pad", "9.9")
    with pytest.raises(ValueError, match=r"left-pad 9\.9 is installed in the image, and uv\.lock does not have it"):
        bill.python_packages(tmp_path)


def test_a_bill_fits_the_schema_and_is_the_same_each_time(tmp_path: Path) -> None:
    write(tmp_path, "root/var/lib/dpkg/status", STATUS)
    (tmp_path / "root/usr/local/bin").mkdir(parents=True)
    for name in ("one", "other"):
        assert bill.write(tmp_path / "root", "plain", tmp_path / name) == 1
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text()
    written = json.loads((tmp_path / "one").read_text())
    assert written["metadata"]["component"]["name"] == "weir/plain"
    assert [it["purl"] for it in written["components"]] == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u13"]


def test_builds_differ_by_content_mode_link_and_what_one_lacks(tmp_path: Path) -> None:
    for root in ("one", "other"):
        write(tmp_path / root, "etc/same", "x")
        write(tmp_path / root, "etc/mode", "x")
        write(tmp_path / root, "etc/content", root)
        (tmp_path / root / "link").symlink_to(root)
    (tmp_path / "other/etc/mode").chmod(0o600)
    write(tmp_path / "other", "usr/bin/more", "")
    found = differences.between(differences.files(tmp_path / "one"), differences.files(tmp_path / "other"))
    assert found == ["etc/content", "etc/mode", "link", "usr", "usr/bin", "usr/bin/more"]


def test_only_what_the_documentation_names_may_differ() -> None:
    expected = [
        "var/log/dpkg.log",
        "etc/shadow",
        "opt/weir/lib/python3.11/site-packages/a/__pycache__/b.cpython-311.pyc",
    ]
    assert differences.unexpected([*expected, "usr/local/bin/weir-proxy"]) == ["usr/local/bin/weir-proxy"]


def test_what_an_image_says_of_itself_is_compared() -> None:
    first = json.dumps({"OCIv1": {"config": {"User": "10001", "Env": ["A=1"]}}})
    second = json.dumps({"OCIv1": {"config": {"User": "0", "Env": ["A=1"]}}})
    assert differences.of_configurations(first, first) == []
    assert differences.of_configurations(first, second) == ["User"]
