"""A race is only found when the one failure in twenty is told by its test's name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import races
from devtools.races import Program


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(races, "FOLDER", tmp_path / "races")


def test_a_test_that_fails_in_one_round_is_counted_and_its_output_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    fails_once = (
        f"import pathlib, sys\nmark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if mark.exists(): sys.exit()\nmark.touch()\nprint('test racing::now ... FAILED')\nsys.exit(101)"
    )
    programs = [
        Program("steady", script("print('test all ... ok')"), tmp_path),
        Program("shaky", script(fails_once), tmp_path),
    ]
    monkeypatch.setattr(races, "build", lambda crates: programs)
    assert races.run(3, (), system=False) == 1
    said = capsys.readouterr().out
    assert "1 of 3 failed: shaky::racing::now" in said
    assert [path.name for path in races.FOLDER.iterdir()] == ["shaky-1.log"]


def test_a_program_that_dies_without_a_verdict_is_a_failure():
    assert races.failed_tests("crate", "thread panicked while panicking, aborting") == [
        "crate: did not end by itself"
    ]
    assert races.failed_tests("system", "FAILED test_a.py::test_b - AssertionError") == ["system::test_a.py::test_b"]


def test_the_load_ends_with_its_block():
    with races.load():
        loops = _loops()
        assert len(loops) >= races.LOOPS_A_PROCESSOR
    assert not _loops() & loops


def _loops() -> set[str]:
    found: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"while True: pass" in entry.read_bytes() and entry.read_bytes().startswith(sys.executable.encode()):
                found.add(entry.parent.name)
        except OSError:
            continue
    return found
