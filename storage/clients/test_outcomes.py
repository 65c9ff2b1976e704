from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from outcomes import (
    BROKE_OFF,
    FAILED,
    PASSED,
    SKIPPED,
    Known,
    Outcomes,
    compare,
    differing,
    read_go,
    read_junit,
    table,
)
from places import WAYS
from suites import SUITES

RESULTS = """<testsuites><testsuite>
<testcase classname="a.B" name="works"/>
<testcase classname="a.B" name="fails[x]"><failure message="no"/></testcase>
<testcase classname="a.B" name="skips"><skipped/></testcase>
<testcase classname="a.B" name="ends badly"/>
<testcase classname="a.B" name="ends badly"><error message="at its end"/></testcase>
</testsuite></testsuites>"""
ENTRY = {"suites": ["sqlalchemy-psycopg"], "way": "pooler", "tests": ["a.B::fails[x]"], "reason": "it sets a setting"}


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


def test_a_test_of_go_that_has_no_end_broke_off(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    event = '{"Action":"%s","Package":"p","Test":"%s"}'
    lines = [
        event % pair
        for pair in (
            ("run", "A"),
            ("pass", "A"),
            ("pass", "D=/tmp/D17/001/a"),
            ("run", "B/x"),
            ("skip", "B/x"),
            ("run", "C"),
        )
    ]
    path.write_text("\n".join(["# a compiler's remark", '{"Action":"start","Package":"p"}', *lines]))
    assert read_go(path).of == {"p::A": PASSED, "p::D=/tmp/a": PASSED, "p::B/x": SKIPPED, "p::C": BROKE_OFF}
    assert read_go(path).summary() == "2 passed, 0 failed, 1 skipped, 1 broke off"
    path.write_text('{"Action":"fail","Package":"p"}')
    with pytest.raises(ValueError, match="has no tests"):
        read_go(path)


def test_only_what_differs_without_a_reason_is_told() -> None:
    known = Known.of({"difference": [ENTRY]}).of_way("sqlalchemy-psycopg", "pooler")
    stock = Outcomes({"a.B::fails[x]": PASSED, "a.B::both": FAILED, "a.B::gone": PASSED})
    other = Outcomes({"a.B::fails[x]": FAILED, "a.B::both": FAILED})
    assert compare(stock, other, known, stale=True) == ["a.B::gone was not run, and passed at the stock server"]
    # Brackets are no pattern: another parameter is another test.
    other = Outcomes({"a.B::fails[x]": PASSED, "a.B::failsx": FAILED})
    lines = compare(stock, other, known, stale=False)
    assert "a.B::failsx failed, and was not run at the stock server" in lines


def test_a_reason_that_no_test_needs_is_told_of_a_whole_run() -> None:
    known = Known.of({"difference": [ENTRY | {"tests": ["a.B::*", "c.D::*"]}]}).of_way("sqlalchemy-psycopg", "pooler")
    stock, other = Outcomes({"a.B::one": PASSED}), Outcomes({"a.B::one": FAILED})
    assert compare(stock, other, known, stale=True) == ["the known difference c.D::* is none any more"]
    assert compare(stock, other, known, stale=False) == []


def test_known_differences_are_of_one_way_and_have_a_reason() -> None:
    known = Known.of({"difference": [ENTRY]})
    assert known.of_way("sqlalchemy-psycopg", "direct") == known.of_way("sqlalchemy-asyncpg", "pooler") == []
    for wrong in ({"reason": " "}, {"tests": []}, {"suites": []}, {"more": 1}):
        with pytest.raises(ValueError, match="an entry has"):
            Known.of({"difference": [ENTRY | wrong]})


def test_what_is_left_out_is_of_a_suite_and_has_a_reason() -> None:
    entry = {"suites": ["pgx"], "tests": ["TestFiles"], "reason": "it reads the server's files"}
    known = Known.of({"left_out": [entry]})
    assert [one.tests for one in known.of_suite("pgx")] == [["TestFiles"]]
    assert known.of_suite("asyncpg") == []
    with pytest.raises(ValueError, match="an entry has"):
        Known.of({"left_out": [entry | {"way": "pooler"}]})
    with pytest.raises(ValueError, match="and not leftout"):
        Known.of({"leftout": [entry]})


def test_a_test_that_one_side_has_not_run_differs() -> None:
    assert differing(Outcomes({"a": PASSED, "b": PASSED}), Outcomes({"a": PASSED, "c": SKIPPED})) == ["b", "c"]


def test_the_table_has_a_row_for_each_suite_that_was_run() -> None:
    stock, other = (
        Outcomes({"a": PASSED, "b": PASSED, "c": FAILED}),
        Outcomes({"a": PASSED, "b": FAILED, "c": FAILED}),
    )
    rows = table({"pgx": {"stock": stock, "pooler": other}, "pq": {}}).splitlines()
    assert rows[2:] == ["| pgx | 2 |  | 1 | 1, 0 |  | 1 |"]


def test_the_list_that_is_committed_can_be_read_and_names_suites_and_ways_that_there_are() -> None:
    known = Known.of(tomllib.loads((Path(__file__).parent / "known.toml").read_text()))
    assert {suite for one in (*known.differences, *known.left_out) for suite in one.suites} <= set(SUITES)
    assert {one.way for one in known.differences} <= set(WAYS)
