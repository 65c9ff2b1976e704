"""An S3 server for tests: on a directory, with keys of its own, ended by pid."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from harness import Engine, Process, engine, free_port, listening

BUCKET = "weir"


def program() -> Path:
    cache = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache/weir"))
    found = Path(os.environ.get("WEIR_TOOLS_DIR", cache / "bin")) / "versitygw"
    assert found.exists(), f"{found} is missing: scripts/setup --only s3-server"
    return found


class S3Server:
    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="weir-s3-"))
        (self.root / BUCKET).mkdir()
        self.port = free_port()
        # The store may be reached under another name later; who uses it finds it at this port of this machine.
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": f"test-{secrets.token_hex(4)}",
            "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(24),
        }
        self.process = Process(
            "s3",
            [str(program()), "--keep-alive", "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(self.root)],
            Path(f"{self.root}.log"),
            lambda: listening(self.port),
            environment={
                "ROOT_ACCESS_KEY": self.environment["AWS_ACCESS_KEY_ID"],
                "ROOT_SECRET_KEY": self.environment["AWS_SECRET_ACCESS_KEY"],
            },
        )

    def address(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def close(self) -> None:
        self.process.stop()
        shutil.rmtree(self.root, ignore_errors=True)
        Path(f"{self.root}.log").unlink(missing_ok=True)


@contextlib.contextmanager
def s3_server() -> Generator[S3Server]:
    server = S3Server()
    try:
        server.process.start()
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def engine_on_s3(server: S3Server, **options: Any) -> Generator[Engine]:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    environment = server.environment
    with engine(
        root, object_store=server.address("engine"), pageserver_environment=environment, **options
    ) as running:
        yield running
