"""The verdict on noisy neighbours can fail, for each reason there is; and a storm counts what it did and was
refused."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import charts, groups, neighbours, quiet, storms
from weirbench.neighbours import ALL, ALONE, NAMES, STORMS, Window


def window(
    number: int, name: str, p99: float, failed: int = 0, did: dict[str, dict[str, Any]] | None = None
) -> Window:
    achieved = {storm: {"done": 10.0} for storm in neighbours.storms_of(name)} if name != ALONE else {}
    return Window(number, name, 1000, failed, p99 / 2, p99, p99 * 3, 0.5, achieved if did is None else did)


def test_a_round_has_each_storm_once_and_the_neighbour_alone_twice() -> None:
    rounds = [neighbours.order(number, NAMES) for number in range(len(NAMES))]
    for plan in rounds:
        assert Counter(plan) == {ALONE: 2, **dict.fromkeys(NAMES, 1)}
        assert plan[0] == ALONE
    for name in NAMES:
        assert len({plan.index(name) for plan in rounds}) > 3, f"{name} is not always at the same place"
    assert neighbours.order(0, ["wal"]) == [ALONE, "wal"]
    assert neighbours.order(5, ["wal", "api"]) == [ALONE, "api", ALONE, "wal"]
    assert neighbours.order(0, []) == [ALONE]


def test_a_storm_is_compared_with_the_same_round() -> None:
    """A machine that was slower in one round was so alone, too."""
    windows = [window(0, ALONE, 10), window(0, "wal", 15), window(1, ALONE, 90), window(1, ALONE, 110)]
    windows.append(window(1, "wal", 170))
    assert neighbours.ratios(windows, "wal") == [1.5, 1.7]
    found = neighbours.report(windows)
    assert found["kept"]
    assert found["storms"]["wal"]["ratio"] == {"median": 1.6, "min": 1.5, "max": 1.7}
    assert found["alone"]["commits"] == 3000
    with pytest.raises(ValueError, match="round 2 has no window of the neighbour alone"):
        neighbours.ratios([window(0, ALONE, 10), window(1, "wal", 10)], "wal")


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (window(0, "wal", 20.1), "p99 is 2.01 times"),
        (window(0, "wal", 10, failed=1), "1 of 1000 commits failed"),
        (window(0, "wal", 10, did={}), "the storm wal did nothing"),
        (window(0, "wal", 10, did={"wal": {"done": 0.0, "refused: 53300": 9.0}}), "the storm wal did nothing"),
        (window(0, ALL, 10, did={name: {"done": 1.0} for name in STORMS if name != "sort"}), "the storm sort"),
    ],
)
def test_what_breaks_the_promise_is_said(spoilt: Window, reason: str) -> None:
    kept = neighbours.report([window(0, ALONE, 10), window(0, "wal", 20)])
    assert kept["kept"]
    assert kept["missed"] == []
    found = neighbours.report([window(0, ALONE, 10), spoilt])
    assert not found["kept"]
    assert not found["storms"][spoilt.name]["kept"]
    assert any(reason in missed and missed.startswith(f"{spoilt.name}: ") for missed in found["missed"])


def test_what_a_storm_did_is_spread_over_the_rounds() -> None:
    did = [{"connect": {"done": 100.0, "refused: 53300": 3.0}}, {"connect": {"done": 80.0}}]
    windows = [window(number, "connect", 10, did=of) for number, of in enumerate(did)]
    assert neighbours.rates(windows, "connect") == {
        "connect": {
            "done": {"median": 90.0, "min": 80.0, "max": 100.0},
            "refused: 53300": {"median": 1.5, "min": 0.0, "max": 3.0},
        }
    }


def test_the_chart_is_drawn(tmp_path: Path) -> None:
    result = neighbours.report([window(0, ALONE, 10), *(window(0, name, 15) for name in NAMES)])
    charts.neighbours({**result, "most_ratio": 2.0}, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_commits_are_due_by_the_clock() -> None:
    planned = quiet.plan(50, 20, random.Random(7))  # noqa: S311  the same load in every run
    assert len(planned) == pytest.approx(1000, rel=0.15)
    assert [at for at, _ in planned] == sorted(at for at, _ in planned)
    rows = {int(request.path) for _, request in planned}
    assert min(rows) >= 1
    assert max(rows) <= quiet.ROWS
    assert len(rows) > 500


def test_what_holds_a_compute_is_seen_by_its_processes(tmp_path: Path) -> None:
    lines = {
        "1": "9:name=systemd:/\n1:cpu:/\n0::/\n",
        "20": "8:pids:/weir/ep-noisy\n2:cpu,cpuacct:/weir/ep-noisy\n4:memory:/elsewhere\n0::/\n",
        "21": "1:cpu:/weir/services\n0::/weir/ep-other\n",
        "self-not": "1:cpu:/weir/nobody\n",
    }
    for pid, text in lines.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert groups.controllers_of("ep-noisy", tmp_path) == ["cpu", "cpuacct", "pids"]
    assert groups.controllers_of("services", tmp_path) == ["cpu"]
    assert groups.controllers_of("ep-other", tmp_path) == [groups.SECOND_KIND]
    assert groups.controllers_of("nobody", tmp_path) == []
    assert groups.controllers_of("weir", tmp_path) == []


class _Limited(BaseHTTPRequestHandler):
    """An API that takes three requests and then has its caller wait."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked[f"{self.command} {self.headers['Authorization']}"] += 1
        self.send_response(200 if self.asked.total() <= 3 else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PATCH = _answer  # noqa: N815  the names that http.server asks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


def until(condition: Callable[[], bool]) -> Callable[[], None]:
    def wait() -> None:
        deadline = threading.Event()
        for _ in range(400):
            if condition():
                return
            deadline.wait(0.025)
        raise TimeoutError("the storm has done nothing in ten seconds")

    return wait


def test_a_storm_on_the_api_does_not_wait_and_counts_what_was_refused() -> None:
    _Limited.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Limited) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        at = storms.Target("", f"http://127.0.0.1:{server.server_address[1]}", "napi_noisy", "pr-noisy")
        found = storms.storm("api", at, until(lambda: _Limited.asked.total() >= 200))
        server.shutdown()
        thread.join(10)
    assert found["done"] > found["refused: 429"] > 0
    assert {words.split()[0] for words in _Limited.asked} == {"GET", "PATCH"}
    assert all(words.endswith("Bearer napi_noisy") for words in _Limited.asked)


def test_a_database_that_is_not_there_is_a_refusal_and_not_the_end() -> None:
    at = storms.Target("postgresql://app@127.0.0.1:9/appdb?connect_timeout=2", "", "", "")
    counted: list[int] = []

    def some() -> bool:
        counted.append(1)
        return len(counted) > 8

    found = storms.storm("connect", at, until(some))
    assert "done" not in found
    assert any(name.startswith("refused: ") for name in found)
