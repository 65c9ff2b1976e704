"""The page of bad days is what its list says, and every test that the list names exists."""

from pathlib import Path

import pytest
from devtools import bad_days

TABLE = """
[[group]]
title = "Disks"
[[group.case]]
what = "Full"
tenant = "An error."
neighbour = "Nothing."
heals = "By room."
show = ["test_full.py::test_it"]
"""


def test_the_page_is_what_the_list_says() -> None:
    listed = bad_days.cases(bad_days.LIST.read_text())
    hint = "python -m devtools.bad_days --write (in scripts/) renders it"
    assert bad_days.PAGE.read_text() == bad_days.page(listed), hint
    assert bad_days.unknown_tests(listed) == []


def test_a_case_without_a_test_is_refused() -> None:
    with pytest.raises(ValueError, match="Full: lacks a test"):
        bad_days.cases(TABLE.replace('"test_full.py::test_it"', ""))
    with pytest.raises(ValueError, match="Full: lacks heals"):
        bad_days.cases(TABLE.replace('heals = "By room."', ""))


def test_a_test_that_no_file_has_is_named(tmp_path: Path) -> None:
    listed = bad_days.cases(TABLE)
    assert bad_days.unknown_tests(listed, tmp_path) == ["test_full.py::test_it"]
    (tmp_path / "test_full.py").write_text("def test_it():\n    pass\n")
    assert bad_days.unknown_tests(listed, tmp_path) == []


def test_a_case_is_shown_when_every_run_of_its_tests_passed(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="test_a" name="test_x[1]"/>'
        '<testcase classname="storage.system.test_a" name="test_x[2]"><failure/></testcase>'
        '<testcase classname="test_a" name="test_y"/><testcase classname="test_b" name="test_z"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert bad_days.outcomes(report) == {
        "test_a.py::test_x": False,
        "test_a.py::test_y": True,
        "test_b.py::test_z": False,
    }
