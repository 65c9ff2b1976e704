"""Parts that prove themselves to each other: the engine works as ever, no port opens to whoever can't prove to be a
part that may come there, and nobody who takes a part's port learns anything. CAs change meanwhile."""

from __future__ import annotations

import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
from credentials import Credentials
from harness import Compute, Engine, Timeline, engine, metric, wait_for
from proofs import Proofs

from weir.kit import certificates
from weir.tls import authority, parts

TLS_ALERT = 0x15
ALL = {"pages", "wal", "pageserver", "safekeeper", "agent"}
# By kind of port: the parts that may come there.
ADMITTED = {
    "pages": {"compute"},
    "wal": {"compute", "pageserver", "safekeeper", "control"},
    "pageserver": {"control", "prometheus", "compute", "pageserver"},
    "safekeeper": {"control", "prometheus", "safekeeper"},
    "agent": {"control", "prometheus"},
}


@dataclass
class Proven:
    """An engine with TLS, and a compute in it that has a table `kept` of 1000 rows."""

    engine: Engine
    proofs: Proofs
    compute: Compute

    def ports(self) -> dict[str, int]:
        """One of each kind."""
        return {
            "pages": self.engine.page_port,
            "wal": self.engine.wal_ports[0],
            "pageserver": self.engine.pageserver_http_port,
            "safekeeper": self.engine.http_ports[0],
            "agent": int(self.compute.http.base_url.port or 0),
        }

    def kept(self) -> int:
        return self.compute.sql("SELECT count(*) FROM kept")[0][0]


@contextmanager
def running() -> Iterator[Proven]:
    # Below /tmp, because Postgres runs unprivileged and must be able to reach it.
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    credentials = Credentials(root)
    proofs = Proofs(root)
    with engine(root, credentials=credentials, proofs=proofs, safekeeper_options=["--peers", "{peers}"]) as it:
        compute = it.compute(it.create_timeline())
        compute.sql("CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
        yield Proven(it, proofs, compute)


@pytest.fixture(scope="module")
def proven() -> Generator[Proven]:
    with running() as it:
        yield it


@pytest.fixture
def own() -> Generator[Proven]:
    """For a test that takes parts down."""
    with running() as it:
        yield it


def context_of(file: Path | None) -> ssl.SSLContext:
    """A client that believes whoever answers, so that only the port's own check counts, with the certificate of a
    file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if file is not None:
        context.load_cert_chain(file)
    return context


def asked_of(kind: str, timeline: Timeline) -> bytes:
    """What each kind of port answers, if only by a refusal for want of a token."""
    if kind not in {"pages", "wal"}:
        return b"GET /nowhere HTTP/1.1\r\nHost: walk\r\n\r\n"
    whose = bytes.fromhex(timeline.tenant) + bytes.fromhex(timeline.id)
    # As postcard writes them: a hello of version 1, and a reader of version 3 from 0 on, for whom nothing is held.
    body = b"\x01" + whose + b"\0\0" if kind == "pages" else b"\x02\x03" + whose + b"\0" + b"\x04walk" + b"\0\0"
    return len(body).to_bytes(4, "big") + body


def opens(proven: Proven, kind: str, context: ssl.SSLContext | None) -> bool:
    """Whether the port of this kind answers a request."""
    with socket.create_connection(("127.0.0.1", proven.ports()[kind]), timeout=10) as plain:
        try:
            with plain if context is None else context.wrap_socket(plain) as peer:
                peer.sendall(asked_of(kind, proven.compute.timeline))
                answer = peer.recv(100)
        except (ssl.SSLError, ConnectionError):
            return False
    return answer != b"" and not (context is None and answer[0] == TLS_ALERT)


def test_all_parts_work_and_say_until_when_they_can_prove_themselves(proven: Proven):
    running, compute = proven.engine, proven.compute
    compute.sql("CREATE TABLE large AS SELECT n FROM generate_series(1, 100000) AS n")
    compute.suspend()
    # A new run reads its pages from the pageserver, and its start from the safekeepers.
    again = running.compute(compute.timeline, name=compute.process.name)
    proven.compute = again
    assert again.sql("SELECT count(*) FROM large") == [(100000,)]
    for of in (running.storage, again):
        left = metric(of, "weir_part_certificate_not_after_timestamp_seconds") - time.time()
        assert authority.PART_SECONDS / 2 < left <= authority.PART_SECONDS
    for part, port in (("pageserver", running.pageserver_http_port), ("safekeeper", running.http_ports[0])):
        name = part if part == "pageserver" else "safekeeper-1"
        words = [str(running.bin_dir / "weir-probe"), part, f"127.0.0.1:{port}", *proven.proofs.options(name)]
        assert subprocess.run(words, check=False, capture_output=True, timeout=20).returncode == 0
        # The right program, and another part than the one that is meant.
        words[1] = "safekeeper" if part == "pageserver" else "pageserver"
        wrong = subprocess.run(words, check=False, capture_output=True, timeout=20, text=True)
        assert wrong.returncode == 1
        assert "is not proven to be" in wrong.stderr


def test_no_port_opens_to_who_proves_to_be_no_part(proven: Proven):
    now = authority.moment(time.time())
    stranger = certificates.authority(now.replace(year=now.year - 1), now.replace(year=now.year + 1))
    all_names = ["control", "compute", "pageserver", "safekeeper", "prometheus"]
    forge = proven.proofs.forge
    contexts = {
        "no TLS": None,
        "no certificate": context_of(None),
        "another CA's": context_of(forge("foreign", all_names, ca=stranger)),
        "expired": context_of(forge("expired", all_names, hours=(-5, -1))),
        "of later": context_of(forge("later", all_names, hours=(1, 5))),
        "of a stranger's name": context_of(forge("nobody", ["nobody", "xcontrol", "control.compute"])),
    }
    old = context_of(forge("old", all_names))
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    contexts["TLS 1.2"] = old
    opened = [
        f"{kind}: {what}"
        for kind in proven.ports()
        for what, context in contexts.items()
        if opens(proven, kind, context)
    ]
    assert not opened, "\n".join(opened)
    for reason in ("not_tls", "no_certificate", "unknown_authority", "expired", "not_yet", "part", "version"):
        assert metric(proven.engine.storage, "weir_tls_handshake_failures_total", side="server", reason=reason) >= 1
    assert proven.kept() == 1000


def test_each_port_opens_to_the_parts_that_have_to_do_with_it_and_to_no_other(proven: Proven):
    assert set(proven.ports()) == ALL == set(ADMITTED)
    files = {
        "control": parts.control_file(proven.proofs.root),
        "prometheus": parts.service_file(proven.proofs.root, "prometheus"),
        "pageserver": parts.service_file(proven.proofs.root, "pageserver"),
        "safekeeper": parts.service_file(proven.proofs.root, "safekeeper-2"),
        "compute": parts.compute_file(proven.proofs.root, proven.compute.process.name),
    }
    for kind in ALL:
        found = {name for name, file in files.items() if opens(proven, kind, context_of(file))}
        assert found == ADMITTED[kind], kind


@dataclass
class Impostor:
    """Takes a port, and everything that somebody says there who believes it; `raw`: without TLS."""

    port: int
    context: ssl.SSLContext | None
    connections: int = 0
    believed: list[bytes] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.listener.settimeout(0.2)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self.listener.close()

    def _serve(self) -> None:
        while not self.ended.is_set():
            try:
                peer, _ = self.listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            peer.settimeout(3)
            try:
                if self.context is None:
                    self.raw.append(peer.recv(1 << 16))
                    continue
                with self.context.wrap_socket(peer, server_side=True) as proven:
                    self.believed.append(proven.recv(1 << 16))
            except OSError:
                # Not believed: the caller has ended it.
                pass
            finally:
                peer.close()


def taking(port: int, file: Path | None) -> Impostor:
    context = None
    if file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
    return Impostor(port, context)


def test_who_takes_a_parts_port_is_told_nothing(own: Proven):
    running, root = own.engine, own.proofs.root
    now = authority.moment(time.time())
    stranger = certificates.authority(now.replace(year=now.year - 1), now.replace(year=now.year + 1))
    compute = parts.compute_file(root, own.compute.process.name)
    files: dict[str, Path | None] = {
        "without TLS": None,
        "with a compute's certificate": compute,
        "with another CA's": own.proofs.forge("taken", ["pageserver", "safekeeper"], ca=stranger),
        "with one that has expired": own.proofs.forge("past", ["pageserver", "safekeeper"], hours=(-5, -1)),
    }
    for what, file in files.items():
        running.safekeepers[2].kill9()
        with taking(running.wal_ports[2], file) as impostor:
            wait_for("somebody to ask it", lambda it=impostor: it.connections >= 3, 60)
            # A majority is left.
            own.compute.sql("INSERT INTO kept SELECT 0")
        assert impostor.believed == [], what
        assert all(b"weir-token" not in said and said[:1] in {b"\x16", b""} for said in impostor.raw), what
        running.safekeepers[2].start()
    # The pageserver's pages, while a compute has to read some.
    running.pageserver.kill9()
    found: list[int] = []
    with taking(running.page_port, parts.service_file(root, "safekeeper-1")) as impostor:
        query = "SELECT count(prosrc) FROM pg_proc"
        reading = threading.Thread(target=lambda: found.append(own.compute.sql(query)[0][0]))
        reading.start()
        wait_for("the compute to ask it", lambda: impostor.connections >= 3, 30)
        assert impostor.believed == []
    running.pageserver.start()
    reading.join(60)
    assert found
    assert found[0] > 1000
    assert own.kept() == 1004


def test_certificates_and_cas_change_while_everything_goes_on(own: Proven):
    running, compute = own.engine, own.compute
    before = parts.service_file(own.proofs.root, "pageserver").read_text()
    session = compute.connect()
    pid = session.execute("SELECT pg_backend_pid()").fetchall()
    old = context_of(own.proofs.forge("by-the-old-ca", ["control", "compute"]))
    assert [kind for kind in ALL if not opens(own, kind, old)] == []
    here = [*own.proofs.services, *own.proofs.computes]
    it = parts.rotate(own.proofs.root, here, at_once=True)
    assert len(it.trusted) == 1
    time.sleep(1.5)
    after = parts.service_file(own.proofs.root, "pageserver").read_text()
    assert not set(before.split("-----BEGIN CERTIFICATE-----")) & set(after.split("-----BEGIN CERTIFICATE-----"))
    # Certificates of the old CA count no longer; what was open goes on, WAL and pages among it.
    assert not [kind for kind in ALL if opens(own, kind, old)]
    assert session.execute("SELECT pg_backend_pid()").fetchall() == pid
    session.execute("INSERT INTO kept SELECT n FROM generate_series(1, 1000) AS n")
    session.close()
    # Everybody asks anew, and is believed.
    for process in (running.pageserver, *running.safekeepers):
        process.kill9()
        process.start()
        compute.sql("INSERT INTO kept SELECT 0")
    assert own.kept() == 2004


def test_a_part_that_is_to_speak_tls_does_not_start_without_its_certificate(tmp_path: Path):
    proofs = Proofs(tmp_path)
    file = parts.service_file(tmp_path, "safekeeper-1")
    whole = file.read_text()
    bin_dir = Engine(tmp_path).bin_dir
    for text in ("", "nonsense", whole[: len(whole) // 2], whole.partition("-----BEGIN CERTIFICATE")[0]):
        file.write_text(text)
        words = [str(bin_dir / "weir-safekeeper"), "--id", "1", "--data-dir", str(tmp_path / "data")]
        words += ["--listen-wal", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", *proofs.options("safekeeper-1")]
        ended = subprocess.run(words, capture_output=True, check=False, text=True, timeout=20)
        assert ended.returncode != 0
        assert "--tls, the part's certificate" in ended.stderr
        assert not (tmp_path / "data").exists(), "nothing was begun"
        secret = whole.splitlines()[1]
        assert secret not in ended.stderr + ended.stdout
