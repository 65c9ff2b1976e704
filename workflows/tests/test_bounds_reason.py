"""What a verdict by hard bounds alone says of the gain."""

from weir_workflows.rollout.changes.image_pushdown import gain


def test_the_gain_is_said_with_its_unit_and_left_out_where_it_was_not_measured() -> None:
    assert gain({"wal_bytes_per_transaction": 61_440.0}, {"wal_bytes_per_transaction": 4_096.0}) == (
        "every bound holds; WAL a transaction went from 60.0 KiB to 4.0 KiB (-93%)"
    )
    assert gain({}, {"wal_bytes_per_transaction": 4_096.0}) == "every bound holds"
