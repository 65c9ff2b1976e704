"""What `weir` makes of a supervisor's answers: a stop that is reported as failed although the service ended."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.supervisor import Supervisor


class _Compose(socketserver.ThreadingUnixStreamServer):
    """Answers as process-compose 1.87 does for one service, `safekeeper-1`: its first stop is reported as failed."""

    daemon_threads = True

    def __init__(self, path: Path, *, state_after_stop: str) -> None:
        super().__init__(str(path), _Handler)
        self.state = "Running"
        self.state_after_stop = state_after_stop
        self.asked: list[str] = []

    def answer(self, request: str) -> tuple[int, object]:
        if request == "GET /processes":
            return 200, {"data": [self._process()]}
        self.asked.append(request)
        if self.state == "Running":
            self.state = self.state_after_stop
            return 400, {"error": "no such process"}
        self.state = "Running" if "/restart/" in request else self.state
        return 200, {"name": "safekeeper-1"}

    def _process(self) -> dict[str, object]:
        numbers = {"pid": 7, "restarts": 0, "age": 0, "exit_code": 0}
        return {
            "name": "safekeeper-1",
            "status": self.state,
            "is_ready": "Ready",
            "has_ready_probe": True,
            **numbers,
        }


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, _Compose)
        status, body = self.server.answer(f"{self.command} {self.path}")
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    do_GET = do_PATCH = do_POST = _answer  # noqa: N815  the names that http.server calls

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as in http.server
        """Keep the access log out of the test's output."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> installations.Installation:
    monkeypatch.setenv("WEIR_TOOLS_DIR", str(tmp_path))
    monkeypatch.setenv("WEIR_BIN_DIR", str(tmp_path))
    (tmp_path / "process-compose").touch()
    return installations.create(tmp_path / "home", 17400)


@pytest.fixture
def compose(made: installations.Installation, request: pytest.FixtureRequest) -> Generator[_Compose]:
    made.socket.parent.mkdir(parents=True, exist_ok=True)
    with _Compose(made.socket, state_after_stop=request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("compose", ["Completed"], indirect=True)
def test_a_service_that_ended_faster_than_the_supervisor_looked_is_stopped(
    made: installations.Installation, compose: _Compose
):
    Supervisor(made).stop_service("safekeeper-1")
    assert compose.asked == ["PATCH /process/stop/safekeeper-1"]


@pytest.mark.parametrize("compose", ["Completed"], indirect=True)
def test_a_restart_that_ended_with_the_stop_goes_on_and_starts_the_service(
    made: installations.Installation, compose: _Compose
):
    Supervisor(made).restart_service("safekeeper-1")
    assert compose.asked == ["POST /process/restart/safekeeper-1"] * 2
    assert compose.state == "Running"


@pytest.mark.parametrize("compose", ["Terminating"], indirect=True)
def test_a_refused_stop_of_a_service_that_still_runs_is_an_error(made: installations.Installation, compose: _Compose):
    with pytest.raises(CliError, match="no such process"):
        Supervisor(made).stop_service("safekeeper-1")
