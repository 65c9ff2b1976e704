"""Three storms on real processes: nothing acknowledged is lost, nothing read is wrong, everything comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from weirtorture import programs
from weirtorture.cluster import can_mount
from weirtorture.schedule import SHORT, draw
from weirtorture.trial import Trial


@pytest.mark.parametrize("seed", SHORT)
def test_a_storm_costs_nothing_that_was_acknowledged(seed: int, tmp_path: Path) -> None:
    programs.build()
    result = Trial(draw(seed, 20, mounting=can_mount()), tmp_path / "kept").run()
    assert result.clean, f"{result.words()}\n" + "\n".join(
        [*result.lost, *result.wrong, *result.undecided, *result.stuck, f"artefacts: {tmp_path / 'kept'}"]
    )
    assert result.acknowledged > 500
    assert result.history["operations"] > 500
