"""Promise: in containers, too, whoever comes to a port of storage or of a compute without a token that allows it is
refused; keys change while everything runs. The whole walk, port by port, is e2e/system/test_port_walk.py."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from port_requests import opens, routes
from running import Installation

from weir.tokens import keys, mint
from weir.tokens.keys import SigningKey
from weir.tokens.mint import Grant, Right

# One for all requests: making one costs more than a request.
CLIENT = httpx.Client(timeout=30)
SAFEKEEPERS = ("safekeeper-1", "safekeeper-2", "safekeeper-3")
OPEN = Right.MANAGE, Right.METRICS, Right.READ_PAGES, Right.WRITE_WAL, Right.READ_WAL, Right.TRIM_WAL


@dataclass
class Walk:
    weir: Installation
    uri: str
    spec: dict[str, Any]
    other: dict[str, Any]

    def key(self) -> SigningKey:
        return keys.read_signing_key(self.weir.containers.volume("signing-key") / "token_key")

    def token(self, audience: str, *, key: SigningKey | None = None, ago: float = 0, whose: str = "mine") -> str:
        """One for everything of a timeline, of `mine`, of `other`, or of all of them (`all`)."""
        spec = {"mine": self.spec, "other": self.other}.get(whose)
        scope = (None, None) if spec is None else (spec["tenant_id"], spec["timeline_id"])
        grant = Grant("a test", (audience,), OPEN, *scope)
        return mint.sign(key or self.key(), grant, time.time() - ago, mint.REQUEST_SECONDS)

    @property
    def agent(self) -> str:
        return f"compute/{self.spec['compute_id']}"

    def http(self) -> list[tuple[str, str, str]]:
        """Address, name as `routes` has it, and audience of each HTTP port that asks for tokens."""
        inside = self.weir.inside
        found = [(f"{inside('pageserver')}:7601", "pageserver_http", "pageserver")]
        found += [(f"{inside(name)}:7511", name, "safekeeper") for name in SAFEKEEPERS]
        return [*found, (f"{inside('worker')}:{int(self.spec['port']) + 1}", f"agent:{self.agent}", self.agent)]

    def data(self) -> list[tuple[str, int, str, str]]:
        """Host, port, kind of connection and audience of each port of pages and WAL."""
        inside = self.weir.inside
        kinds = ("propose", "fetch", "read", "hold")
        found = [(inside("pageserver"), 7600, "page", "pageserver")]
        return found + [(inside(name), 7501, kind, "safekeeper") for name in SAFEKEEPERS for kind in kinds]

    def file(self, volume: str) -> str:
        return (self.weir.containers.volume(volume) / "token").read_text().strip()

    def strangers(self, audience: str) -> dict[str, str | None]:
        stranger = SigningKey(Ed25519PrivateKey.generate())
        foreign, ours = self.token(audience, key=stranger), self.token(audience)
        return {
            "no token": None,
            "nonsense": "nonsense",
            "the API's key": (self.weir.secrets / "api_key").read_text().strip(),
            "a foreign key's": foreign,
            "a foreign key's under our name": ".".join([ours.split(".")[0], *foreign.split(".")[1:]]),
            "expired": self.token(audience, ago=3600),
            "of later": self.token(audience, ago=-3600),
            "for another part": self.token("safekeeper" if audience != "safekeeper" else "pageserver"),
            "another tenant's": self.token(audience, whose="other"),
        }

    def rows(self) -> object:
        with self.weir.connect(self.uri) as connection:
            found = connection.execute("SELECT count(*) FROM kept").fetchone()
        assert found is not None
        return found[0]


def _made(weir: Installation, name: str) -> tuple[str, dict[str, Any]]:
    made = weir.api.request("POST", "/projects", {"project": {"name": name}})
    weir.api.wait_operations(made["operations"])
    ident = made["endpoints"][0]["id"]
    path = weir.containers.volume("computes") / ident / "spec.json"
    return made["connection_uris"][0]["connection_uri"], json.loads(path.read_text())


@pytest.fixture(scope="module")
def walk(weir: Installation) -> Walk:
    (uri, spec), (_, other) = _made(weir, "walked"), _made(weir, "neighbour")
    with weir.connect(uri) as connection:
        connection.execute("CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    return Walk(weir, uri, spec, other)


def _status(address: str, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return CLIENT.request(method, f"http://{address}{path}", headers=headers).status_code


def test_no_route_of_any_part_opens_to_a_stranger(walk: Walk) -> None:
    opened: list[str] = []
    asked = 0
    for address, name, audience in walk.http():
        assert _status(address, "GET", "/healthz", None) == 200
        for what, token in walk.strangers(audience).items():
            for method, path in routes(name, walk.spec):
                status = _status(address, method, path, token)
                asked += 1
                if status not in {401, 403}:
                    opened.append(f"{method} {name} {path} with {what}: {status}")
    assert not opened, "\n".join(opened)
    assert asked > 300
    assert walk.rows() == 1000


def test_a_token_that_fits_opens_what_it_names(walk: Walk) -> None:
    timeline = f"/v1/tenant/{walk.spec['tenant_id']}/timeline/{walk.spec['timeline_id']}"
    for address, name, audience in walk.http():
        path = "/status" if name.startswith("agent") else timeline
        assert _status(address, "GET", path, walk.token(audience)) == 200, name
        metrics = httpx.get(
            f"http://{address}/metrics", headers={"Authorization": f"Bearer {walk.token(audience, whose='all')}"}
        )
        assert "weir_token_authentication 1" in metrics.text, name
    assert all(opens(port, kind, walk.spec, walk.token(to), host) for host, port, kind, to in walk.data())


def test_no_data_port_opens_to_a_stranger(walk: Walk) -> None:
    opened: list[str] = []
    for host, port, kind, audience in walk.data():
        some = walk.strangers(audience) | {"Prometheus's": walk.file("prometheus-token")}
        opened += [
            f"{host}:{port} {kind} with {what}"
            for what, token in some.items()
            if opens(port, kind, walk.spec, token, host)
        ]
    assert not opened, "\n".join(opened)
    assert walk.rows() == 1000


def test_each_container_has_its_own_parts_token_and_no_other(walk: Walk) -> None:
    containers = walk.weir.containers
    folder = "/var/lib/weir/credentials"
    for name, own in (("safekeeper-1", "safekeeper"), ("pageserver", "pageserver"), ("prometheus", "prometheus")):
        status, said = containers.execute(name, "find", folder, "-type", "f", "-name", "token*")
        assert status == 0, said
        others = {"/token_keys.json"} if name != "prometheus" else set[str]()
        found = {line.removeprefix(folder).removeprefix("/run") for line in said.split()}
        assert found == {f"/tokens/{own}/token"} | others, name
        status, said = containers.execute(name, "touch", f"{folder}/tokens/{own}/token")
        assert status != 0
    # Whoever has a database's rights reads no key: its user is another one.
    for path in (f"{folder}/secrets/token_key", f"{folder}/run/token_keys.json"):
        status, said = containers.execute("worker", "setpriv", "--reuid=postgres", "--clear-groups", "cat", path)
        assert status != 0
        assert "Permission denied" in said, said
    for name in ("signing-key", "public-keys", "pageserver-token", "safekeeper-token", "prometheus-token"):
        volume = containers.volume(name)
        assert volume.stat().st_mode & 0o777 == 0o700
        for path in volume.iterdir():
            assert path.stat().st_mode & 0o077 == 0 or path.name == ".lock", path


def _rotate(walk: Walk, *options: str) -> str:
    """As an operator does it: `docker compose exec tokens weir-admin tokens rotate`."""
    words = ("weir-admin", "tokens", "rotate", *options)
    status, said = walk.weir.containers.execute("tokens", *words, seconds=120)
    assert status == 0, said
    return said


def _statuses(walk: Walk, tokens: dict[str, str]) -> set[int]:
    paths = {"pageserver_http": "/v1/tenant"}
    return {
        _status(
            address, "GET", "/status" if name.startswith("agent") else paths.get(name, "/v1/timelines"), tokens[name]
        )
        for address, name, _ in walk.http()
    }


def test_a_key_is_replaced_while_everything_runs_and_a_retired_one_opens_nothing(walk: Walk) -> None:
    """The last of the walk: it changes the keys."""
    old = {name: walk.token(audience, whose="all") for _, name, audience in walk.http()}
    before = {name: walk.file(f"{name}-token") for name in ("pageserver", "safekeeper", "prometheus")}
    compute = walk.weir.containers.volume("computes") / walk.spec["compute_id"] / "token"
    of_compute = compute.read_text()
    assert _statuses(walk, old) == {200}
    with walk.weir.connect(walk.uri) as open_before:
        assert "signs from now on" in _rotate(walk)
        # The overlap: who has an old token is let in, and those that ask have new ones.
        assert _statuses(walk, old) == {200}
        assert not [name for name, token in before.items() if walk.file(f"{name}-token") == token]
        _wait_until_changed(compute, of_compute)
        assert "count no longer" in _rotate(walk, "--at-once")
        time.sleep(1.5)
        assert _statuses(walk, old) == {401}
        host, port, kind, _ = walk.data()[0]
        assert not opens(port, kind, walk.spec, old["pageserver_http"], host)
        status, said = walk.weir.containers.execute("tokens", "weir-admin", "tokens", "list")
        assert status == 0
        assert len(said.splitlines()) == 1
        # A session that was open goes on, and a compute that starts anew asks every part.
        open_before.execute("INSERT INTO kept VALUES (1001)")
    ident = walk.spec["compute_id"]
    project = next(
        one["id"] for one in walk.weir.api.request("GET", "/projects")["projects"] if one["name"] == "walked"
    )
    for verb in ("suspend", "start"):
        answer = walk.weir.api.request("POST", f"/projects/{project}/endpoints/{ident}/{verb}")
        walk.weir.api.wait_operations(answer["operations"])
    assert walk.rows() == 1001
    _all_are_scraped(walk)


def _wait_until_changed(path: Path, before: str) -> None:
    deadline = time.monotonic() + 30
    while path.read_text() == before:
        assert time.monotonic() < deadline, f"{path} has the token of the old key"
        time.sleep(0.5)


def _all_are_scraped(walk: Walk) -> None:
    url = f"{walk.weir.prometheus}/api/v1/query"
    deadline = time.monotonic() + 60
    while True:
        rows = httpx.get(url, params={"query": "up{job=~'pageserver|safekeeper|compute'}"}, timeout=10).json()
        values = [row["value"][1] for row in rows["data"]["result"]]
        if len(values) >= 6 and set(values) == {"1"}:
            return
        assert time.monotonic() < deadline, rows
        time.sleep(1)
