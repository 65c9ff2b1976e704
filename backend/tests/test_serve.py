"""Several processes of the API at one port: any of them answers, their metrics are added up, and one that ends is
replaced."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest
from weir_testing import programs

from weir.config import Settings
from weir.kit.metrics import FOLDER

PROCESSES = 2
REQUESTS = 40
_ANSWERED = re.compile(
    r'^weir_api_requests_total\{method="GET",route="[^"]*/projects",status="200"\} (\S+)$', re.MULTILINE
)


@pytest.fixture
def url(
    environment: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[str, int, httpx.Client]]:
    monkeypatch.setenv("WEIR_API_PROCESSES", str(PROCESSES))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = programs.free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "weir.serve", "--port", str(port)]
    key = (environment.secrets_dir / "api_key").read_text().strip()
    with (
        programs.program(command, tmp_path / "log", f"{address}/healthz") as process,
        httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=20) as client,
    ):
        yield address, process.pid, client
    assert not list(tmp_path.glob("weir-api-metrics-*")), "the folder of the metrics goes with the API"


def _serving(supervisor: int, folder: Path) -> dict[int, Path]:
    """The supervisor's children that have begun to count, and where."""
    (metrics,) = folder.glob("weir-api-metrics-*")
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    counters = {int(child): metrics / f"counter_{child}.db" for child in children}
    return {child: file for child, file in counters.items() if file.exists()}


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _counted(client: httpx.Client) -> float:
    return sum(float(count) for count in _ANSWERED.findall(client.get("/metrics").text))


def _ask(address: str, client: httpx.Client) -> None:
    """Each time by a new connection, so that the kernel chooses a process each time."""
    with httpx.Client(base_url=address, headers=client.headers, timeout=20) as another:
        another.get("/api/v2/projects").raise_for_status()


def test_any_process_answers_and_their_metrics_are_added_up(
    url: tuple[str, int, httpx.Client], tmp_path: Path
) -> None:
    address, supervisor, client = url
    _wait(lambda: len(_serving(supervisor, tmp_path)) == PROCESSES, "both processes have not come up")
    before = _counted(client)
    for _ in range(REQUESTS):
        _ask(address, client)
    # Whichever of them is asked.
    assert {_counted(client) for _ in range(5)} == {before + REQUESTS}


def test_a_process_that_is_killed_is_replaced_and_what_it_counted_stays(
    url: tuple[str, int, httpx.Client], tmp_path: Path
) -> None:
    address, supervisor, client = url
    _wait(lambda: len(_serving(supervisor, tmp_path)) == PROCESSES, "both processes have not come up")
    for _ in range(REQUESTS):
        _ask(address, client)
    before = _counted(client)
    first = min(_serving(supervisor, tmp_path))
    os.kill(first, signal.SIGKILL)
    client.close()

    def replaced() -> bool:
        serving = _serving(supervisor, tmp_path)
        return first not in serving and len(serving) == PROCESSES

    _wait(replaced, f"nothing has taken the place of process {first}")
    with httpx.Client(base_url=address, headers=client.headers, timeout=20) as another:
        assert _counted(another) == before
        for _ in range(REQUESTS):
            _ask(address, another)
        assert _counted(another) == before + REQUESTS


def test_one_process_keeps_no_files(environment: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del environment
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    port = programs.free_port()
    command = [sys.executable, "-m", "weir.serve", "--port", str(port)]
    with programs.program(command, tmp_path / "log", f"http://127.0.0.1:{port}/healthz"):
        assert "process_cpu_seconds_total" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert not list(tmp_path.glob("weir-api-metrics-*"))
