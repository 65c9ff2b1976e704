"""`weir safekeepers` says in words what is wrong with a member, and since when."""

from typing import Any

import click

from weir.cli import safekeepers

_SINCE = "2026-01-02T03:04:05.678+00:00"


def _keeper(**fields: Any) -> dict[str, Any]:
    return {"branches": 3, "reason": None, "sick": []} | fields


def test_a_safekeepers_sick_members_are_said_by_kind() -> None:
    sick = [
        {"kind": "damaged", "branches": 2, "since": _SINCE, "reason": "its WAL from 0/16 to 0/17 is damaged"},
        {"kind": "lost", "branches": 1, "since": _SINCE, "reason": "it lacks the log"},
    ]
    said = safekeepers._health(_keeper(sick=sick, reason="lacks the WAL of 1 branch"))
    assert said == (
        "damaged in 2 since 2026-01-02T03:04:05: its WAL from 0/16 to 0/17 is damaged; "
        "lost in 1 since 2026-01-02T03:04:05; lacks the WAL of 1 branch"
    )
    assert safekeepers._health(_keeper()) == ""
    assert safekeepers._health(_keeper(branches=0)) == "a spare"


def test_a_branchs_sick_member_is_shown_with_its_reason_and_time() -> None:
    well = {"safekeeper_id": 1, "role": "voter", "state": "active", "flush_lsn": "0/16", "lag_bytes": 0,
            "since": None, "disk": None, "reason": None, "sick_since": None}  # fmt: skip
    sick = well | {"safekeeper_id": 2, "state": "diverged", "reason": "another history", "sick_since": _SINCE}
    found = {
        "members": [well, sick],
        "generation": 1,
        "available": [],
        "reason": None,
        "operation_id": None,
        "wanted": None,
    }
    _, first, second, *_ = click.unstyle(safekeepers._described(found)).splitlines()
    assert first.split() == ["1", "voter", "active", "0/16", "0", "-", "-"]
    assert second.split()[:3] == ["2", "voter", "diverged"]
    assert second.endswith("another history (since 2026-01-02T03:04:05)")
