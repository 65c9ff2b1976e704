"""The suites of a server run with clients of another release."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench.pgsuite import without


def test_a_schedule_loses_the_tests_named_and_nothing_else() -> None:
    schedule = (
        "# psql depends on create_am\ntest: rules psql psql_pipeline stats\n\ntest: psql_pipeline\ntest: last\n"
    )
    assert without(["psql_pipeline"], schedule) == (
        "# psql depends on create_am\ntest: rules psql stats\n\ntest: last\n"
    )
