"""What a walk over the ports of parts asks: routes, and connections to pages and WAL. The specs of computes say whose
timeline it is about."""

from __future__ import annotations

import socket
import ssl


def routes(name: str, spec: dict[str, str]) -> list[tuple[str, str]]:
    """What a part's port serves, as docs/interfaces.md has it, and what it does not. `name`: `pageserver_http`,
    `agent:ID`, or a safekeeper's."""
    tenant = f"/v1/tenant/{spec['tenant_id']}"
    timeline = f"{tenant}/timeline/{spec['timeline_id']}"
    common = [("GET", "/metrics"), ("GET", "/nowhere"), ("GET", "/healthz/"), ("GET", "//metrics")]
    if name.startswith("agent:"):
        get = ("/status", "/synchronous_commit", "/settings", "/wal_by_relation")
        post = ("/configure", "/full_page_writes", "/members", "/terminate")
        return [*common, *(("GET", path) for path in get), *(("POST", path) for path in post)]
    if name == "pageserver_http":
        get = (
            *("/v1/tenant", "/v1/sick_safekeepers", tenant, f"{tenant}/about", f"{tenant}/timeline", timeline),
            *(
                f"{timeline}/{last}"
                for last in ("lsn_by_timestamp", "timestamp_of_lsn", "bundle", "layers", "detach")
            ),
            *(f"{timeline}/{last}" for last in ("ingested", "digest", "chains")),
        )
        return [
            *common,
            *(("GET", path) for path in get),
            *(("PUT", path) for path in (tenant, f"{tenant}/about", f"{timeline}/aux", f"{timeline}/start")),
            *(("PUT", path) for path in (f"{timeline}/safekeepers", "/v1/crash_point/any")),
            *(("POST", path) for path in (f"{tenant}/timeline", f"{timeline}/checkpoint", f"{timeline}/lease")),
            *(("POST", path) for path in (f"{timeline}/detach",)),
            *(("DELETE", path) for path in (tenant, timeline)),
            ("PATCH", f"{tenant}/config"),
        ]
    return [
        *common,
        *(("GET", path) for path in ("/v1/timelines", "/v1/disk", timeline)),
        *(("POST", path) for path in (timeline, f"{timeline}/fill", f"{timeline}/verify")),
        ("DELETE", timeline),
    ]


# The data paths, byte by byte, so that nothing of ours decides what is sent.
REFUSED = {"page": 1, "propose": 5, "fetch": 1, "read": 1, "hold": 1}


def _number(value: int) -> bytes:
    """A number as postcard writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def first_message(kind: str, tenant: str, timeline: str) -> bytes:
    """What opens a connection to pages, or to WAL: as a proposer, a fetching peer, a reader, a reader for whom WAL is
    held."""
    whose = bytes.fromhex(tenant) + bytes.fromhex(timeline)
    if kind == "page":
        return _number(1) + whose + _number(0) + _number(0)
    if kind == "propose":
        return _number(0) + _number(4) + whose + _number(0)
    if kind == "fetch":
        return _number(1) + _number(2) + whose + _number(1) + _number(0) + _number(1 << 40)
    return _number(2) + _number(3) + whose + _number((1 << 64) - 1) + b"\x04walk" + bytes([kind == "hold"]) + b"\0"


def _exactly(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = peer.recv(count - len(found))
        if not more:
            raise ConnectionError("closed")
        found += more
    return found


def connected(port: int, host: str = "127.0.0.1", proof: tuple[ssl.SSLContext, str] | None = None) -> socket.socket:
    """A connection to this port. `proof`: by what the caller proves itself, and the part that it means; None: by
    plain TCP."""
    plain = socket.create_connection((host, port), timeout=10)
    if proof is None:
        return plain
    context, part = proof
    try:
        return context.wrap_socket(plain, server_hostname=part)
    except OSError:
        plain.close()
        raise


def opens(
    port: int,
    kind: str,
    spec: dict[str, str],
    token: str | None,
    host: str = "127.0.0.1",
    proof: tuple[ssl.SSLContext, str] | None = None,
) -> bool:
    """Whether a connection of this kind is let in; one that is not gets the refusal of its protocol, and its end."""
    frames = [] if token is None else [b"weir-token " + token.encode()]
    frames.append(first_message(kind, spec["tenant_id"], spec["timeline_id"]))
    with connected(port, host, proof) as peer:
        peer.sendall(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        answer = _exactly(peer, int.from_bytes(_exactly(peer, 4), "big"))
        assert token is None or token.encode() not in answer
        if answer[0] != REFUSED[kind]:
            return True
        if b"token" not in answer:
            # Let in, and refused for another reason, such as a term that was never won.
            return True
        assert has_ended(peer), "a refused connection ends"
        return False


def has_ended(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True
