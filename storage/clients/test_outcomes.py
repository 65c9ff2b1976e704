from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import FAILED, PASSED, SKIPPED, Known, Outcomes, compare, read_junit

RESULTS = """<testsuites><testsuite>
<testcase classname="a.B" name="works"/>
<testcase classname="a.B" name="fails[x]"><failure message="no"/></testcase>
<testcase classname="a.B" name="skips"><skipped/></testcase>
<testcase classname="a.B" name="ends badly"/>
<testcase classname="a.B" name="ends badly"><error message="at its end"/></testcase>
</testsuite></testsuites>"""
ENTRY = {"drivers": ["psycopg"], "way": "pooler", "tests": ["a.B::fails[x]"], "reason": "it sets a setting"}


def test_a_test_has_failed_when_any_part_of_it_has(tmp_path: Path) -> None:
    path = tmp_path / "results.xml"
    path.write_text(RESULTS)
    found = read_junit(path)
    assert found.of == {
        "a.B::works": PASSED,
        "a.B::fails[x]": FAILED,
        "a.B::skips": SKIPPED,
        "a.B::ends badly": FAILED,
    }
    assert found.summary() == "1 passed, 2 failed, 1 skipped"
    path.write_text("<testsuites/>")
    with pytest.raises(ValueError, match="has no tests"):
        read_junit(path)


def test_only_what_differs_without_a_reason_is_told() -> None:
    known = Known.of({"difference": [ENTRY]}).of_way("psycopg", "pooler")
    stock = Outcomes({"a.B::fails[x]": PASSED, "a.B::both": FAILED, "a.B::gone": PASSED})
    other = Outcomes({"a.B::fails[x]": FAILED, "a.B::both": FAILED})
    assert compare(stock, other, known, stale=True) == ["a.B::gone was not run, and passed at the stock server"]
    # Brackets are no pattern: another parameter is another test.
    other = Outcomes({"a.B::fails[x]": PASSED, "a.B::failsx": FAILED})
    lines = compare(stock, other, known, stale=False)
    assert "a.B::failsx failed, and was not run at the stock server" in lines


def test_a_reason_that_no_test_needs_is_told_of_a_whole_run() -> None:
    known = Known.of({"difference": [ENTRY | {"tests": ["a.B::*", "c.D::*"]}]}).of_way("psycopg", "pooler")
    stock, other = Outcomes({"a.B::one": PASSED}), Outcomes({"a.B::one": FAILED})
    assert compare(stock, other, known, stale=True) == ["the known difference c.D::* is none any more"]
    assert compare(stock, other, known, stale=False) == []


def test_known_differences_are_of_one_way_and_have_a_reason() -> None:
    known = Known.of({"difference": [ENTRY]})
    assert known.of_way("psycopg", "proxy") == known.of_way("asyncpg", "pooler") == []
    for wrong in ({"reason": " "}, {"tests": []}, {"more": 1}):
        with pytest.raises(ValueError, match="a known difference has"):
            Known.of({"difference": [ENTRY | wrong]})
