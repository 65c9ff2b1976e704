"""Promise: the scan's and the growth's figures are what their names say, from given measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
from weirbench import growth, scan


def scans(sums: tuple[int, int, int] = (7, 7, 7)) -> dict[str, list[dict[str, float]]]:
    times = {"page_by_page": (10.0, 12.0, 8.0), "kernel_only": (4.0, 4.0, 4.0), "read_ahead": (2.0, 2.0, 1.0)}
    return {
        name: [
            {"seconds": seconds, "sum": checked, "pages": 1280, "pages_read_ahead": 1278, "read_ahead_used": 1278}
            for seconds in of
        ]
        for (name, of), checked in zip(times.items(), sums, strict=True)
    }


def test_the_speedup_is_the_median_of_the_rounds() -> None:
    found = scan.through_volume(scans())
    assert found["speedup"] == {"median": 6.0, "min": 5.0, "max": 8.0}
    assert found["speedup_over_kernel"] == 2.0
    assert found["mib_s"]["read_ahead"] == {"median": 5, "min": 5, "max": 10}


def test_ways_that_read_other_bytes_are_no_comparison() -> None:
    with pytest.raises(ValueError, match="the same bytes"):
        scan.through_volume(scans((7, 7, 8)))


def test_growth_goes_in_pieces_that_end_where_the_steps_do() -> None:
    assert growth.pieces([100, 300, 2500]) == [(100, True), (300, True), (1300, False), (2300, False), (2500, True)]
    assert growth.pieces([1000]) == [(1000, True)]


def test_only_wal_that_was_taken_in_is_deleted(tmp_path: Path) -> None:
    names = [f"{1:08X}{0:08X}{number:08X}" for number in (0xFD, 0xFE, 0xFF)] + [f"{1:08X}{1:08X}{0:08X}"]
    others = ["00000002.history", "archive_status"]
    for name in [*names, *others]:
        (tmp_path / name).touch()

    def left() -> list[str]:
        return sorted(file.name for file in tmp_path.iterdir() if file.name not in others)

    growth.forget_wal(tmp_path, "0/FE000028")
    assert left() == names
    growth.forget_wal(tmp_path, "0/FF000028")
    assert left() == names[1:]
    growth.forget_wal(tmp_path, "1/28")
    assert left() == names[2:]
    assert all((tmp_path / name).exists() for name in others)
