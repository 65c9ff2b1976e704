"""The walk over all ports of a whole installation, as `weir up` starts it: whoever comes without a token that allows
it is refused, on each port that listens. A port that this test does not know fails it.

Where parts speak TLS, whoever walks has the certificate of a part that may come to the port, as one who has taken
that part over: what tokens keep from it is asked here. Who has no certificate is in `test_tls_walk.py`."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from port_requests import connected, has_ended, opens, routes
from stack import Stack, running_stack, wait_for
from weirbench.api import Database
from weirbench.parts import client, context, part_name
from weirbench.postgres import SqlError, query

from weir.cli import installation
from weir.cli.installation import Installation
from weir.tokens import keys, mint, parts
from weir.tokens.keys import SigningKey
from weir.tokens.mint import Grant, Right

# What answers everybody on loopback, with the reason; docs/security.md says so too.
OPEN = {
    "temporal": "authenticates nobody",
    "temporal_ui": "authenticates nobody",
    "temporal_http": "authenticates nobody",
    "temporal_metrics": "figures",
    "prometheus": "figures, unless parts speak TLS",
    "proxy_http": "figures",
}
POSTGRES = {"postgres", "proxy"}


@dataclass
class Walk:
    stack: Stack
    mine: Database
    other: Database
    # By port: the name in the settings, or `compute:ID` and `agent:ID`.
    ports: dict[int, str]
    settings: Installation

    def client(self, name: str) -> httpx.Client:
        """Of the part's HTTP API, as the control plane connects, without a token."""
        (port,) = [port for port, known in self.ports.items() if known == name]
        return client(self.settings, name, port, timeout=10)

    def proof(self, port: int) -> tuple[ssl.SSLContext, str] | None:
        """What `mine` proves itself by at a port of pages or of WAL, and whom it means; None where parts speak plain
        TCP."""
        proof = context(self.settings, f"compute:{self.mine.compute_id}")
        return None if proof is None else (proof, part_name(self.ports[port]))

    def opens(self, port: int, kind: str, spec: dict[str, str], token: str | None) -> bool:
        return opens(port, kind, spec, token, proof=self.proof(port))

    def spec(self, database: Database) -> dict[str, str]:
        return json.loads((self.folder(database) / "spec.json").read_text())

    def folder(self, database: Database) -> Path:
        return self.stack.home / "computes" / database.compute_id

    def token_of(self, database: Database) -> str:
        return (self.folder(database) / "token").read_text().strip()

    def key(self) -> SigningKey:
        return keys.read_signing_key(keys.signing_key_file(self.stack.home))

    def manage(
        self,
        audience: str,
        *,
        ago: float = 0,
        key: SigningKey | None = None,
        tenant: str | None = None,
        timeline: str | None = None,
    ) -> str:
        """A token as the control plane makes it, so many seconds ago."""
        grant = Grant("a test", (audience,), (Right.MANAGE, Right.METRICS), tenant, timeline)
        return mint.sign(key or self.key(), grant, time.time() - ago, mint.REQUEST_SECONDS)


@pytest.fixture(scope="module")
def walk() -> Generator[Walk]:
    with running_stack() as stack:
        api = stack.api()
        mine, other = api.create_database("mine", {}), api.create_database("other", {})
        query(mine.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
        settings = installation.load(stack.home)
        # The simulated fleet has a port in the settings, and does not run here.
        ports = {port: name for name, port in settings.ports.items() if name != "simulator"}
        for database in (mine, other):
            port = json.loads((stack.home / "computes" / database.compute_id / "spec.json").read_text())["port"]
            ports |= {port: f"compute:{database.compute_id}", port + 1: f"agent:{database.compute_id}"}
        yield Walk(stack, mine, other, ports, settings)


def listening(home: Path) -> dict[int, str]:
    """TCP ports that processes of this installation, and those they have started, listen on; with a name of one."""
    sockets: dict[str, tuple[int, str]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, _, port = fields[1].rpartition(":")
                sockets[f"socket:[{fields[9]}]"] = (int(port, 16), address)
    found: dict[int, str] = {}
    for pid in _processes(home):
        try:
            name = (pid / "comm").read_text().strip()
            links = [str(entry.readlink()) for entry in (pid / "fd").iterdir()]
        except OSError:
            continue
        for link in links:
            if link in sockets:
                port, address = sockets[link]
                found[port] = name
                # 127.0.0.1, or ::1 and its form for IPv4: nothing listens for other machines.
                assert address.endswith("0100007F") or address == "00000000000000000000000001000000", (name, port)
    return found


def _processes(home: Path) -> Iterator[Path]:
    """Known by their environment, their folder or their command, as `Stack.remains` knows them, and their
    descendants."""
    parents: dict[int, int] = {}
    known: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if f"WEIR_HOME={home}".encode() in environment or f"{home}/" in command:
            known.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return (Path(f"/proc/{pid}") for pid in known)


def test_each_port_that_listens_is_one_that_is_known(walk: Walk):
    found = listening(walk.stack.home)
    # Temporal's own parts speak with each other on ports that the kernel chooses, and authenticate nobody either.
    unknown = {port: name for port, name in found.items() if port not in walk.ports and name != "temporal"}
    assert not unknown, "ports that no test walks"
    silent = {walk.ports[port] for port in walk.ports if port not in found}
    assert not silent, "the walk does not see what listens"


def audience(name: str) -> str:
    if name.startswith("agent:"):
        return "compute/" + name.removeprefix("agent:")
    return "pageserver" if name == "pageserver_http" else "safekeeper"


def parts_of(walk: Walk) -> list[str]:
    """HTTP ports whose routes are walked, by name. Of the agents, that of `mine`."""
    wanted = {"pageserver_http", *(f"safekeeper_{n}_http" for n in (1, 2, 3)), f"agent:{walk.mine.compute_id}"}
    return [name for name in walk.ports.values() if name in wanted]


def strangers(walk: Walk, name: str) -> dict[str, str | None]:
    """Tokens that open no route of this port for `mine`."""
    part = audience(name)
    spec, other = walk.spec(walk.mine), walk.spec(walk.other)
    good = walk.manage(part, tenant=spec["tenant_id"], timeline=spec["timeline_id"])
    header, claims, signature = good.split(".")
    everything = base64.urlsafe_b64encode(
        base64.urlsafe_b64decode(claims + "==").replace(b'"manage"', b'"metrics"')
    ).rstrip(b"=")
    unsigned = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": walk.key().name}).encode()).rstrip(b"=")
    stranger = SigningKey(Ed25519PrivateKey.generate())
    forged = walk.manage(part, key=stranger).split(".")
    return {
        "no token": None,
        "nonsense": "nonsense",
        "the API's key": (walk.stack.home / "secrets" / "api_key").read_text().strip(),
        "another tenant's": walk.manage(part, tenant=other["tenant_id"]),
        "another timeline's": walk.manage(part, tenant=spec["tenant_id"], timeline="0" * 32),
        "another compute's own": walk.token_of(walk.other),
        "expired": walk.manage(part, ago=3600),
        "of later": walk.manage(part, ago=-3600),
        "for another part": walk.manage("safekeeper" if part != "safekeeper" else "pageserver"),
        "by a stranger's key": walk.manage(part, key=stranger),
        "by a stranger's key under our name": ".".join([header, *forged[1:]]),
        "changed": ".".join([header, everything.decode(), signature]),
        "unsigned": f"{unsigned.decode()}.{claims}.",
    }


def test_no_route_of_any_part_opens_to_a_stranger(walk: Walk):
    opened: list[str] = []
    asked = 0
    for name in parts_of(walk):
        with walk.client(name) as part:
            assert part.get("/healthz").status_code == 200
            for what, token in strangers(walk, name).items():
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                for method, path in routes(name, walk.spec(walk.mine)):
                    answer = part.request(method, path, headers=headers)
                    asked += 1
                    if answer.status_code not in {401, 403}:
                        opened.append(f"{method} {name} {path} with {what}: {answer.status_code}")
                    if token is not None:
                        assert token not in answer.text
    assert not opened, "\n".join(opened)
    assert asked > 500
    # Nothing of all this has happened.
    assert query(walk.mine.uri, "SELECT count(*) FROM kept") == "1000"


def test_tokens_that_fit_open_what_they_name_and_nothing_more(walk: Walk):
    spec = walk.spec(walk.mine)
    tenant, timeline = spec["tenant_id"], spec["timeline_id"]
    path = f"/v1/tenant/{tenant}/timeline/{timeline}"

    def status(name: str, path: str, token: str) -> int:
        with walk.client(name) as part:
            return part.get(path, headers={"Authorization": f"Bearer {token}"}).status_code

    for name in ("pageserver_http", "safekeeper_1_http"):
        token = walk.manage(audience(name), tenant=tenant, timeline=timeline)
        assert status(name, path, token) == 200
        assert status(name, "/v1/timelines" if "safekeeper" in name else "/v1/tenant", token) == 403
        assert status(name, "/metrics", walk.manage(audience(name))) == 200
    agent = f"agent:{walk.mine.compute_id}"
    assert status(agent, "/status", walk.manage(audience(agent))) == 200
    own = walk.token_of(walk.mine)
    assert status("pageserver_http", path, own) == 200
    assert status("pageserver_http", path + "/chains", own) == 403
    assert status("safekeeper_1_http", path, own) == 403
    assert status(agent, "/status", own) == 401
    scraped = (parts.tokens_dir(walk.stack.home) / "prometheus").read_text().strip()
    for name in ("pageserver_http", "safekeeper_1_http", agent):
        assert status(name, "/metrics", scraped) == 200
    assert status("pageserver_http", path, scraped) == 403


# The data paths, byte by byte.


def data_ports(walk: Walk) -> list[tuple[int, str]]:
    """Each with a kind of connection."""
    by_name = {name: port for port, name in walk.ports.items()}
    found = [(by_name["pageserver_pages"], "page")]
    kinds = ("propose", "fetch", "read", "hold")
    return found + [(by_name[f"safekeeper_{n}_wal"], kind) for n in (1, 2, 3) for kind in kinds]


def grants(walk: Walk, *rights: Right, part: str = "safekeeper", database: Database | None = None) -> str:
    spec = walk.spec(database or walk.mine)
    grant = Grant("a test", (part,), rights, spec["tenant_id"], spec["timeline_id"])
    return mint.sign(walk.key(), grant, time.time(), 300)


def test_no_data_port_opens_to_a_stranger(walk: Walk):
    spec = walk.spec(walk.mine)
    opened: list[str] = []
    for port, kind in data_ports(walk):
        name = "pageserver_http" if kind == "page" else "safekeeper_1_http"
        some = strangers(walk, name)
        # A key to manage all is none to read pages or to write WAL with.
        some["to manage"] = walk.manage(audience(name))
        some["of Prometheus"] = (parts.tokens_dir(walk.stack.home) / "prometheus").read_text().strip()
        some["huge"] = "x" * 60_000
        opened += [
            f"{port} {kind} with {what}" for what, token in some.items() if walk.opens(port, kind, spec, token)
        ]
    assert not opened, "\n".join(opened)
    assert query(walk.mine.uri, "SELECT count(*) FROM kept") == "1000"


def test_a_computes_token_opens_its_own_timeline_and_moves_no_trimming(walk: Walk):
    mine, other, own = walk.spec(walk.mine), walk.spec(walk.other), walk.token_of(walk.mine)
    opened = {kind for port, kind in data_ports(walk) if walk.opens(port, kind, mine, own)}
    assert opened == {"page", "propose", "fetch"}
    assert not [kind for port, kind in data_ports(walk) if walk.opens(port, kind, other, own)]


def test_who_may_read_wal_has_none_of_it_held(walk: Walk):
    spec = walk.spec(walk.mine)
    wanted = {
        (Right.READ_WAL,): {"fetch", "read"},
        (Right.TRIM_WAL,): set[str](),
        (Right.READ_WAL, Right.TRIM_WAL): {"fetch", "read", "hold"},
        (Right.READ_PAGES,): set[str](),
        (Right.WRITE_WAL,): {"propose", "fetch"},
    }
    for rights, kinds in wanted.items():
        token = grants(walk, *rights)
        found = {kind for port, kind in data_ports(walk) if kind != "page" and walk.opens(port, kind, spec, token)}
        assert found == kinds, rights


def test_a_stranger_takes_no_memory_by_a_long_frame(walk: Walk):
    for port, kind in data_ports(walk):
        if kind in {"page", "propose"}:
            with connected(port, proof=walk.proof(port)) as peer:
                peer.sendall((16 << 20).to_bytes(4, "big") + b"weir-token ")
                assert has_ended(peer), "its length alone is refused"


def test_ports_of_postgres_and_the_api_want_what_they_always_wanted(walk: Walk):
    for port, name in walk.ports.items():
        if name in POSTGRES or name.startswith("compute:"):
            with pytest.raises(SqlError):
                query(f"postgresql://app_owner:guess@127.0.0.1:{port}/appdb", "SELECT 1", timeout=20)
        elif name == "api":
            assert httpx.get(f"http://127.0.0.1:{port}/api/v2/projects", timeout=10).status_code == 401
            opens_to_prometheus_alone(walk, port, "/metrics")
            opens_to_prometheus_alone(walk, port, "/internal/prometheus/targets")
        elif name == "worker":
            opens_to_prometheus_alone(walk, port, "/metrics")
        elif name == "prometheus" and walk.settings.has_tls:
            # It knows no tokens: who has no certificate of a part ends here.
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/api/v1/status/config", timeout=10).raise_for_status()
            with pytest.raises(httpx.HTTPError), httpx.Client(verify=False, timeout=10) as stranger:  # noqa: S501
                stranger.get(f"https://127.0.0.1:{port}/api/v1/status/config")
        elif not name.startswith("agent:") and name not in OPEN:
            assert name.startswith(("pageserver_", "safekeeper_")), f"{name} is walked by no test"


def opens_to_prometheus_alone(walk: Walk, port: int, path: str) -> None:
    """A page of the control plane's with figures: no token but Prometheus's own opens it."""
    url = f"http://127.0.0.1:{port}{path}"
    for what, token in strangers(walk, "pageserver_http").items():
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = httpx.get(url, headers=headers, timeout=10)
        assert answer.status_code == 401, (path, what)
        assert token is None or token not in answer.text
    scraped = (parts.tokens_dir(walk.stack.home) / "prometheus").read_text().strip()
    assert httpx.get(url, headers={"Authorization": f"Bearer {scraped}"}, timeout=10).status_code == 200


def test_everything_that_asks_has_its_token_and_prometheus_sees_all(walk: Walk):
    own = "pageserver|safekeeper|compute|api|worker|proxy|prometheus"

    def down() -> list[str]:
        with walk.client("prometheus") as prometheus:
            rows = prometheus.get("/api/v1/query", params={"query": "up{job=~'" + own + "'}"}).json()
        found = rows["data"]["result"]
        return [str(row["metric"]) for row in found if row["value"][1] != "1"] if len(found) >= 10 else ["not all"]

    wait_for("all parts to be scraped", lambda: not down(), 60)
    for name in parts_of(walk):
        with walk.client(name) as part:
            headers = {"Authorization": f"Bearer {walk.manage(audience(name))}"}
            assert "weir_token_authentication 1" in part.get("/metrics", headers=headers).text, name


def test_a_retired_key_opens_nothing_and_nothing_stops_meanwhile(walk: Walk):
    """The last of the walk: it changes the keys."""
    before = {name: walk.manage(audience(name)) for name in parts_of(walk)}
    compute = walk.token_of(walk.mine)
    path = {"agent": "/status", "pageserver_http": "/v1/tenant"}

    def status(name: str) -> int:
        headers = {"Authorization": f"Bearer {before[name]}"}
        with walk.client(name) as part:
            return part.get(path.get(name.partition(":")[0], "/v1/timelines"), headers=headers).status_code

    assert {status(name) for name in before} == {200}
    for words in (("keys", "rotate"), ("keys", "list")):
        result = walk.stack.weir(*words)
        assert result.returncode == 0, result.stderr
    # The overlap: who has an old token is let in, and those that ask have new ones.
    assert {status(name) for name in before} == {200}
    assert walk.token_of(walk.mine) != compute
    result = walk.stack.weir("keys", "rotate", "--at-once")
    assert result.returncode == 0, result.stderr
    time.sleep(1.5)
    assert {status(name) for name in before} == {401}
    # All goes on: a compute is suspended and started, which asks every part.
    walk.stack.suspend_compute(walk.mine)
    walk.stack.start_compute(walk.mine)
    walk.stack.wait_for_compute(walk.mine)
    assert query(walk.mine.uri, "SELECT count(*) FROM kept") == "1000"
    test_everything_that_asks_has_its_token_and_prometheus_sees_all(walk)


def test_no_token_is_in_a_log_or_in_an_argument(walk: Walk):
    """A token's signature is random: where it is, the token is."""
    home = walk.stack.home
    files = [*parts.tokens_dir(home).iterdir(), *home.glob("computes/*/token")]
    secrets = [file.read_text().strip().rpartition(".")[2] for file in files]
    secrets += (home / "secrets" / "token_key").read_text().splitlines()[1:-1]
    assert len(secrets) >= 6
    texts = {str(path): path.read_text(errors="replace") for path in home.glob("log/*.log")}
    texts |= {str(path): path.read_text(errors="replace") for path in home.glob("computes/*/*log")}
    for pid in _processes(home):
        for name in ("cmdline", "environ"):
            try:
                texts[str(pid / name)] = (pid / name).read_bytes().decode(errors="replace")
            except OSError:
                continue
    texts["weir status"] = walk.stack.weir("status").stdout + walk.stack.weir("status", "--json").stdout
    found = [name for name, text in texts.items() if any(secret in text for secret in secrets)]
    assert not found
