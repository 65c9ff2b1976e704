"""The figures of what encryption costs."""

from pathlib import Path
from typing import Any

import pytest
from weirbench import encrypted, targets


def test_rounds_are_compared_with_each_other_and_change_places(tmp_path: Path) -> None:
    order: list[bool] = []

    def ingest(workload: str, options: list[str]) -> dict[str, Any]:
        assert workload == "copy"
        is_on = options[:1] == ["--key-file"]
        order.append(is_on)
        # The machine gets slower from round to round; each pair is of one round.
        pace = 1 + (len(order) - 1) // 2
        return {"wal_bytes": 3 << 20, "cpu_seconds": pace * (1.05 if is_on else 1.0)}

    found = encrypted.measure(tmp_path, ["copy"], 3, ingest)
    assert order == [False, True, True, False, False, True]
    assert found["encryption"]["copy"]["wal_mib"] == 3.0
    assert found["encryption"]["copy"]["cost"]["median"] == pytest.approx(0.05)
    assert found["encryption"]["copy"]["cost"]["max"] == pytest.approx(0.05)
    assert targets.held(found)["encryption"]["held"]


def test_a_cost_above_a_tenth_is_no_success() -> None:
    dear = {"encryption": {"copy": encrypted.compared({"on": [1.2], "off": [1.0]}, 1)}}
    assert not targets.held(dear)["encryption"]["held"]


def test_the_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    assert encrypted.key_file(tmp_path).stat().st_mode & 0o077 == 0
