"""Ten storms on real processes: nothing acknowledged is lost, nothing read is wrong, everything comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from weirtorture import apart, programs
from weirtorture.schedule import SHORT, SHORT_SECONDS


@pytest.mark.parametrize("seed", SHORT)
def test_a_storm_costs_nothing_that_was_acknowledged(seed: int, tmp_path: Path) -> None:
    programs.build()
    result = apart.run(apart.Machine.observe(), seed, SHORT_SECONDS, tmp_path / "kept")
    assert result.clean, f"{result.words()}\n" + "\n".join(
        [*result.lost, *result.wrong, *result.undecided, *result.stuck, f"artefacts: {tmp_path / 'kept'}"]
    )
    # Of some hundreds to thousands, so that a machine that does much else passes, and one that does nothing does not.
    assert result.acknowledged > 50
    assert result.history["operations"] > 50
