"""A whole Weir of containers, for the tests of the images."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from composed import document
from containers import Composition, missing_programs, run
from weirbench.api import Weir

DOCKER = Path(__file__).resolve().parents[1]
READY_SECONDS = 420
# A subnet that a Docker on this machine does not have.
VARIABLES = {"WEIR_SUBNET": "10.213.80.0/24", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://traces:4318"}


@dataclass
class Installation:
    containers: Composition
    api: Weir
    secrets: Path

    def public(self, service: str) -> str:
        """Where clients outside reach the service."""
        return self.containers.networks["public"].address(service)

    def inside(self, service: str) -> str:
        """Where the other parts reach it."""
        return self.containers.networks["weir"].address(service)

    @property
    def prometheus(self) -> str:
        return f"http://{self.inside('prometheus')}:9090"

    def connect(self, uri: str) -> psycopg.Connection[tuple[object, ...]]:
        """By the proxy, at its address instead of the name that is published."""
        certificate = str(self.secrets / "proxy_certificate")
        return psycopg.connect(
            uri,
            hostaddr=self.public("proxy"),
            sslmode="verify-full",
            sslrootcert=certificate,
            autocommit=True,
            connect_timeout=60,
        )


@contextmanager
def running() -> Generator[Installation]:
    """With the profile `observe`, but for Grafana, whose image is another registry's."""
    missing = missing_programs()
    if os.geteuid() != 0 or missing:
        pytest.fail(
            f"containers need root, and runc, buildah and iproute2 (missing: {missing}); see docker/README.md"
        )
    with tempfile.TemporaryDirectory(prefix="weir-images-") as scratch:
        folder = Path(scratch)
        # Users of containers look for volumes below it.
        folder.chmod(0o711)
        secrets = folder / "secrets"
        run(DOCKER / "make-secrets", secrets)
        containers = Composition(document(VARIABLES), folder, secrets, profiles={"observe"}, without={"grafana"})
        try:
            containers.prepare()
            containers.start_all(READY_SECONDS)
            url = f"http://{containers.networks['public'].address('api')}:7400"
            yield Installation(containers, Weir(url, (secrets / "api_key").read_text().strip()), secrets)
        finally:
            containers.close()
