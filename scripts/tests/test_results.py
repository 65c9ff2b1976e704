"""The final `N passed, N failed` is only as good as how it is counted."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import results
from devtools.results import Count


def test_cargo_sums_every_test_binary():
    text = (
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n"
        "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n"
    )
    assert results.cargo(text, 101) == Count(15, 2)


def test_go_counts_tests_that_ran():
    text = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/part (0.00s)\n--- SKIP: TestB (0.00s)\n"
    assert results.go(text, 0) == Count(2, 0)
    assert results.go(text + "    a_test.go:7: got 1\n--- FAIL: TestC (0.10s)\nFAIL\n", 1) == Count(2, 1)
    # What does not compile has no tests, and is a failure all the same; so is a run in which all is skipped.
    assert results.go("./a.go:1:1: undefined: b\nFAIL\n", 1) == Count(0, 1)
    assert results.go("--- SKIP: TestB (0.00s)\n", 0) == Count(0, 1)
    assert results.failures("    a_test.go:7: got 1\n--- FAIL: TestC (0.10s)\n") == [
        "a_test.go:7: got 1",
        "--- FAIL: TestC (0.10s)",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("41 passed in 3.21s", Count(41, 0)),
        ("==== 1 failed, 41 passed, 2 skipped, 2 errors in 75.00s (0:01:15) ====", Count(41, 3)),
        ("1 error in 0.10s", Count(0, 1)),
    ],
)
def test_pytest_counts_errors_as_failures(line: str, expected: Count):
    assert results.pytest(f"..F.\n{line}\n", int(expected.failed > 0)) == expected


def test_vitest_reads_the_tests_line_and_not_the_files_line():
    text = " Test Files  1 failed | 5 passed (6)\n      Tests  2 failed | 30 passed (32)\n"
    assert results.vitest(text, 1) == Count(30, 2)
    assert results.vitest("\x1b[2m      Tests \x1b[22m \x1b[1m\x1b[32m4 passed\x1b[39m (4)\n", 0) == Count(4, 0)


def test_playwright_counts_flaky_and_unrun_as_failed():
    assert results.playwright("  1 failed\n  1 flaky\n  2 did not run\n  7 passed (1.2m)\n", 1) == Count(7, 4)


@pytest.mark.parametrize("count", [results.cargo, results.pytest, results.vitest, results.playwright])
def test_a_crash_without_a_count_is_a_failure_and_so_is_a_run_of_nothing(count: Callable[[str, int], Count]):
    assert count("Segmentation fault", 139) == Count(0, 1)
    assert count("", 0) == Count(0, 1)


def test_what_failed_and_why_is_found_in_the_output_of_each_tool():
    outputs = {
        "E       assert 'held' == 'passed'": "....F\n>  x\nE       assert 'held' == 'passed'\nlog of E  x\n",
        "FAILED tests/test_a.py::test_b - assert 1": "1 F\nFAILED tests/test_a.py::test_b - assert 1\n",
        "| ResourceWarning: unclosed <socket 7>": "  +-+- 1 -\n    | ResourceWarning: unclosed <socket 7>\n",
        "test reads::a_page ... FAILED": "test reads::b ... ok\ntest reads::a_page ... FAILED\n",
        "error[E0308]: mismatched types": "warning: x\n\x1b[31merror[E0308]\x1b[0m: mismatched types\n",
        "1) [chromium] > demo.spec.ts:4:5 > demo": "  1 passed\n  1) [chromium] > demo.spec.ts:4:5 > demo\n",
    }
    for line, text in outputs.items():
        assert results.failures(text) == [line], text
