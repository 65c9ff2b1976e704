"""The list of settings a customer may choose: what the API says by it. The agent is tested with the same cases."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.endpoints import setting_values as values
from weir.endpoints.settings_list import DATA, RefusedSettingError, settings_list

SETTINGS = Path(__file__).resolve().parents[2] / "storage/crates/compute/settings"
CASES: list[dict[str, Any]] = json.loads((SETTINGS / "cases.json").read_text())


def said_of(case: dict[str, Any]) -> str | None:
    try:
        settings_list().check(case["name"], case["value"], case.get("major", 15), case.get("units", 1.0))
    except RefusedSettingError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name'][:30]!r}={str(case['value'])[:30]!r}")
def test_the_agents_cases_have_the_same_answers_here(case: dict[str, Any]):
    said, expected = said_of(case), case.get("refused")
    assert (said is None) == (expected is None), said
    assert expected is None or expected in (said or "")


def test_the_api_and_the_agent_read_one_file():
    assert os.path.realpath(DATA) == str(SETTINGS / "list.json")


@pytest.mark.parametrize("value", [None, [], {}, [1], float("inf"), float("nan"), "\ud800"])
def test_what_json_can_hold_beside_text_numbers_and_booleans_is_refused(value: object):
    with pytest.raises(RefusedSettingError, match="work_mem"):
        settings_list().check("work_mem", value, 15, 1.0)


@given(st.text(max_size=40), st.sampled_from([None, "kB", "8kB", "ms", "min"]))
def test_any_text_is_a_number_or_none_and_never_an_exception(text: str, unit: str | None):
    for parse in (values.integer, values.real):
        number = parse(text, unit)
        assert number is None or not math.isnan(number)


@given(st.integers(-(2**31), 2**31 - 1), st.sampled_from([None, "B", "kB", "8kB", "MB", "ms", "s", "min"]))
def test_a_bound_that_is_shown_is_read_back_as_itself(number: int, unit: str | None):
    assert values.integer(values.written(number, unit), unit) == number
