"""The plan of a rollout of a Postgres minor: who runs it already, who cannot be moved, and from what onto what."""

from pathlib import Path
from typing import Any

import pytest
from test_planner import candidate

from weir import postgres_versions
from weir.config import Settings
from weir.endpoints.models import EndpointState
from weir.errors import BadRequestError
from weir.kit.clock import now
from weir.rollouts.features import feature_of
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberMode
from weir.rollouts.plan.planner import Planned, held_out, make_plan


@pytest.fixture(autouse=True)
def _available(monkeypatch: pytest.MonkeyPatch) -> None:
    def available(settings: Settings) -> list[str]:
        del settings
        return ["15.18", "15.20"]

    monkeypatch.setattr(postgres_versions, "available", available)


def runs(number: int, version: str | None, **fields: Any) -> Any:
    fields = {"postgres_version": version, "running_postgres_version": version} | fields
    return candidate(number, 1000.0, **fields)


def plan(candidates: list[Any], **strategy: Any) -> Planned:
    settled = feature_of("postgres_minor").resolved(Strategy.model_validate(strategy))
    return make_plan(candidates, settled, now(), None, "postgres_minor")


def test_each_compute_has_what_it_runs_and_what_it_is_to_run() -> None:
    made = plan([runs(1, "15.18"), runs(2, "15.18", desired_state=EndpointState.IDLE)])
    assert made.summary().target_version == "15.20"
    assert {(item.previous_version, item.target_version) for item in made.computes} == {("15.18", "15.20")}
    assert [item.mode for item in made.computes] == [MemberMode.RUNNING, MemberMode.AT_NEXT_START]
    # A minor saves no WAL that anybody could foretell.
    assert made.summary().expected_wal_saved_bytes_per_second is None


def test_who_is_left_out_is_told_why() -> None:
    made = plan(
        [
            runs(1, "15.20"),
            runs(2, None),
            runs(3, "15.17"),
            runs(4, "17.10", project={"pg_version": 17}),
            # Wanted there, and not there yet: a restart was cut off, and somebody has to bring it there.
            runs(5, "15.20", running_postgres_version="15.18"),
            # Images are no matter here.
            runs(6, "15.18", full_page_writes=False),
        ]
    )
    assert {item.compute_id: item.code for item in made.excluded} == {
        "ep-00001": "already_on",
        "ep-00002": "never_started",
        "ep-00003": "no_way_back",
        "ep-00004": "other_major",
    }
    assert {item.compute_id for item in made.computes} == {"ep-00005", "ep-00006"}


def test_the_target_is_fixed_when_planned_and_may_be_an_older_one() -> None:
    feature = feature_of("postgres_minor")
    assert feature.resolved(Strategy()).target_version == "15.20"
    assert feature.resolved(Strategy(target_version="15.18")).target_version == "15.18"
    with pytest.raises(BadRequestError, match=r"15\.99 is not installed here; there is 15\.18, 15\.20"):
        feature.resolved(Strategy(target_version="15.99"))
    with pytest.raises(BadRequestError, match="postgres_minor"):
        feature_of("image_pushdown").resolved(Strategy(target_version="15.20"))


def test_a_cold_start_has_time_to_settle_unless_somebody_says_otherwise() -> None:
    feature = feature_of("postgres_minor")
    assert feature.resolved(Strategy()).settle_seconds == 30
    assert feature.resolved(Strategy(settle_seconds=5)).settle_seconds == 5
    assert feature_of("image_pushdown").resolved(Strategy()).settle_seconds == 5


def test_each_feature_holds_out_computes_of_its_own() -> None:
    ids = [f"ep-{number:05}" for number in range(1000)]
    images = {ident for ident in ids if held_out("image_pushdown", ident, 10)}
    minors = {ident for ident in ids if held_out("postgres_minor", ident, 10)}
    assert images
    assert minors
    assert images != minors


def test_copies_are_found_by_their_folders(tmp_path: Path) -> None:
    for name in ("15.9", "15.20", ".15.21.x", "metadata"):
        (tmp_path / name).mkdir()
    assert postgres_versions.copied(tmp_path) == ["15.9", "15.20"]
    assert postgres_versions.copied(tmp_path / "none") == []
