"""What is refused before anything of Weir's sees it, over real connections.

Threats: a site whose name is made to lead here (DNS rebinding); forms and scripts of other sites that ride on the
console's session; pages that frame the console; bodies without length, without end, or slower than anybody waits for;
headers that no client means.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send
from weir_testing.fixtures import Weir, own_database, running_api

from weir import console
from weir.config import Settings, get_settings
from weir.errors import BadRequestError, ForbiddenError, MisdirectedError, UnsupportedMediaTypeError
from weir.front import checks
from weir.front.gate import Bodies, Gate
from weir.front.headers import PLACEHOLDER, console_policy
from weir.front.kinds import takes_form
from weir.front.protocol import BoundedHttp
from weir.front.settings import host_names
from weir.main import create_app

Given = list[tuple[bytes, bytes]]
MEBIBYTE = 1 << 20


async def _raw(url: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes as they are, and reads one answer, to its end or the connection's."""
    parts = httpx.URL(url)
    reader, writer = await asyncio.open_connection(parts.host, parts.port)
    try:
        async with asyncio.timeout(20):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
    finally:
        writer.close()
    return int(status.split()[1]), headers, body


def _headers(**given: str) -> Given:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]


def _request(weir: Weir, line: str, *headers: str, host: str | None = None, body: bytes = b"") -> bytes:
    own = httpx.URL(weir.url)
    lines = [f"{line} HTTP/1.1", f"Host: {host or f'{own.host}:{own.port}'}", f"Authorization: Bearer {weir.api_key}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7400",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        # Leads to this machine from a browser on it, and is no name of it.
        "0.0.0.0",  # noqa: S104
        "192.0.2.7",
        "[2001:db8::1]",
        "xn--lcalhost-n4a",
    ],
)
@pytest.mark.parametrize("path", ["/api/v2/projects", "/", "/metrics", "/internal/prometheus/targets"])
async def test_a_foreign_name_that_leads_here_is_told_nothing(weir: Weir, host: str, path: str) -> None:
    status, headers, body = await _raw(weir.url, _request(weir, f"GET {path}", host=host))
    assert status == 421
    answer = json.loads(body)
    assert answer["code"] == "MISDIRECTED_REQUEST"
    assert "WEIR_ALLOWED_HOSTS" in answer["message"]
    assert answer["request_id"] == headers["x-request-id"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7400", "localhost.", "127.0.0.1", "127.9.9.9:1", "[::1]:7400", "[0:0::1]"]
)
async def test_names_of_this_machine_are_taken(weir: Weir, host: str) -> None:
    status, _, _ = await _raw(weir.url, _request(weir, "GET /api/v2/users/me", host=host))
    assert status == 200


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "Host: \r\n",
        "Host: localhost:99999\r\n",
        "Host: localhost:\r\n",
        "Host: localhost, localhost\r\n",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: evil.example@localhost\r\n",
        "Host: localhost/evil.example\r\n",
        "Host: [::1\r\n",
        "Host: [zz::]\r\n",
        "Host: [1.2.3]\r\n",
        "Host: ../localhost\r\n",
        "Host: lo\xe7alhost\r\n",
        f"Host: {'a' * 300}\r\n",
    ],
)
async def test_absurd_hosts_are_400(weir: Weir, lines: str) -> None:
    request = f"GET /api/v2/users/me HTTP/1.1\r\n{lines}Authorization: Bearer {weir.api_key}\r\n\r\n"
    status, _, _ = await _raw(weir.url, request.encode("latin-1"))
    assert status == 400


async def test_a_probe_needs_no_name(weir: Weir) -> None:
    status, _, body = await _raw(weir.url, _request(weir, "GET /healthz", host="10.1.2.3:7400"))
    assert (status, json.loads(body)) == (200, {"status": "ok"})


def test_names_that_an_operator_gives_and_the_address_of_the_connection_are_taken() -> None:
    settings = Settings(allowed_hosts="Weir.Example.org, 10.0.0.5,[2001:db8::5]", api_url="http://api:7400")
    for host in ("weir.example.org", "10.0.0.5", "2001:db8::5", "api", "localhost"):
        checks.refuse_foreign_host(host, settings.host_names, "127.0.0.1")
    checks.refuse_foreign_host("172.30.80.4", settings.host_names, "172.30.80.4")
    for host in ("example.org", "other.weir.example.org", "10.0.0.6", "172.30.80.4"):
        with pytest.raises(MisdirectedError):
            checks.refuse_foreign_host(host, settings.host_names, "127.0.0.1")
    with pytest.raises(MisdirectedError):
        checks.refuse_foreign_host("testclient", settings.host_names, "testclient")


@pytest.mark.parametrize(
    "written", ["http://weir.example", "weir.example:7400", "*", "*.example.org", "a b", "-x", "[::"]
)
def test_what_is_no_host_is_no_setting(written: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        host_names(written)


@pytest.mark.parametrize(("origin", "opens"), [("http://localhost:7400", True), ("https://evil.example", False)])
async def test_a_page_of_another_site_opens_no_socket(origin: str, *, opens: bool) -> None:
    opened: list[str] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        opened.append(scope["path"])

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    gate = Gate(app, allowed_hosts=frozenset(), most_body=MEBIBYTE, behind_tls=False)
    headers = _headers(host="localhost:7400", origin=origin)
    await gate({"type": "websocket", "path": "/api/v2/sql", "headers": headers, "server": None}, receive, send)
    assert (bool(opened), sent) == ((True, []) if opens else (False, [{"type": "websocket.close", "code": 1008}]))


@asynccontextmanager
async def _signed_in(weir: Weir) -> AsyncGenerator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=weir.url, timeout=20) as browser:
        answer = await browser.post("/api/v2/auth/session", json={"api_key": weir.api_key})
        assert answer.status_code == 204
        yield browser


@pytest.mark.parametrize(
    "media", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
)
@pytest.mark.parametrize("origin", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
async def test_a_form_of_another_site_changes_nothing(weir: Weir, media: str, origin: dict[str, str]) -> None:
    """`text/plain` forms can be made to look like JSON; browsers of long ago send no Origin with them."""
    before = len(await weir.call("GET", "/api_keys"))
    async with _signed_in(weir) as browser:
        headers = origin | {"Content-Type": media}
        answer = await browser.post("/api/v2/api_keys", content=b'{"key_name": "stolen", "x": "="}', headers=headers)
    assert answer.status_code == (403 if origin else 415)
    assert len(await weir.call("GET", "/api_keys")) == before


@pytest.mark.parametrize("media", ["application/x-www-form-urlencoded", "text/plain"])
async def test_an_empty_form_of_another_site_changes_nothing_either(weir: Weir, media: str) -> None:
    async with _signed_in(weir) as browser:
        answer = await browser.post("/api/v2/projects/p/endpoints/e/suspend", headers={"Content-Type": media})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        # Another port is another site, though it has the cookie.
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "file://"},
        {"Origin": "HOST/"},
        {"Origin": "HOST@evil.example"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "HOST", "Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("with_key", [False, True])
async def test_pages_of_other_sites_change_nothing(weir: Weir, headers: dict[str, str], *, with_key: bool) -> None:
    given = {name: value.replace("HOST", weir.url) for name, value in headers.items()}
    if with_key:
        answer = await weir.client.post("/api/v2/api_keys", json={"key_name": "stolen"}, headers=given)
    else:
        async with _signed_in(weir) as browser:
            answer = await browser.post("/api/v2/api_keys", json={"key_name": "stolen"}, headers=given)
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "stolen" not in [key["name"] for key in await weir.call("GET", "/api_keys")]


async def test_the_consoles_own_pages_change_what_they_may(weir: Weir) -> None:
    headers = {"Origin": weir.url, "Sec-Fetch-Site": "same-origin"}
    async with _signed_in(weir) as browser:
        made = await browser.post("/api/v2/api_keys", json={"key_name": "by the console"}, headers=headers)
    assert made.status_code == 200
    await weir.call("DELETE", f"/api_keys/{made.json()['id']}")


def test_origins_behind_tls() -> None:
    checks.refuse_foreign_origin(_headers(host="weir.example", origin="https://weir.example"), only_https=True)
    checks.refuse_foreign_origin(_headers(host="weir.example:443", origin="https://weir.example"), only_https=True)
    checks.refuse_foreign_origin(_headers(host="weir.example", origin="http://weir.example"), only_https=False)
    with pytest.raises(ForbiddenError):
        # Somebody on the way to the browser can make such a page.
        checks.refuse_foreign_origin(_headers(host="weir.example", origin="http://weir.example"), only_https=True)
    two = [*_headers(host="weir.example", origin="https://weir.example"), (b"origin", b"https://evil.example")]
    with pytest.raises(ForbiddenError):
        checks.refuse_foreign_origin(two, only_https=False)


@pytest.mark.parametrize(
    "types",
    [
        ["text/json"],
        ["application/json; charset=latin-1"],
        ["application/json-patch+json"],
        ["application/jsonp"],
        ["application/json, text/plain"],
        ["application/json", "application/json"],
        [""],
        ["text/plain; application/json"],
    ],
)
def test_what_only_looks_like_json(types: list[str]) -> None:
    headers = [(b"content-length", b"2"), *((b"content-type", value.encode()) for value in types)]
    with pytest.raises(UnsupportedMediaTypeError):
        checks.refuse_other_media(headers)


def test_forms_are_taken_where_identity_providers_send_them_and_nowhere_else() -> None:
    form = [(b"content-length", b"2"), (b"content-type", b"application/x-www-form-urlencoded")]
    json = [(b"content-length", b"2"), (b"content-type", b"application/json")]
    checks.refuse_other_media(form, form=True)
    with pytest.raises(UnsupportedMediaTypeError, match="a form"):
        checks.refuse_other_media(json, form=True)
    assert takes_form("/api/v2/auth/oidc/corp/backchannel-logout")
    for path in (
        "/api/v2/auth/oidc/corp/logout",
        "/api/v2/auth/oidc/a/b/backchannel-logout",
        "/api/v2/auth/oidc/corp/backchannel-logout/",
        "/api/v2/projects",
    ):
        assert not takes_form(path)


@pytest.mark.parametrize("media", ["application/json", "Application/JSON; charset=UTF-8", "application/json;"])
def test_json_is_taken(media: str) -> None:
    checks.refuse_other_media([(b"content-length", b"2"), (b"content-type", media.encode())])


@pytest.mark.parametrize("body", [[(b"transfer-encoding", b"chunked")], [(b"content-length", b"7")]])
def test_a_body_without_a_type_is_refused(body: Given) -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        checks.refuse_other_media(body)


def test_no_body_needs_no_type() -> None:
    checks.refuse_other_media([])
    checks.refuse_other_media([(b"content-length", b"0")])


def test_no_body_may_be_called_one_of_no_known_type() -> None:
    """As aiohttp does with a POST that has none."""
    octets = (b"content-type", b"application/octet-stream")
    checks.refuse_other_media([octets, (b"content-length", b"0")])
    with pytest.raises(UnsupportedMediaTypeError):
        checks.refuse_other_media([octets, (b"content-length", b"2")])


@pytest.mark.parametrize("length", ["-1", "1e3", "", "0x10", "٣"])
def test_lengths_that_are_no_number(length: str) -> None:
    with pytest.raises(BadRequestError):
        checks.refuse_announced_size([(b"content-length", length.encode("utf-8"))], MEBIBYTE)


async def test_a_body_that_is_announced_too_large_is_refused_before_it_is_sent(weir: Weir) -> None:
    request = _request(
        weir, "POST /api/v2/projects", "Content-Type: application/json", f"Content-Length: {MEBIBYTE + 1}"
    )
    status, headers, body = await _raw(weir.url, request)
    assert (status, json.loads(body)["code"], headers["connection"]) == (413, "BODY_TOO_LARGE", "close")


async def test_a_body_without_a_length_is_counted_as_it_comes(weir: Weir) -> None:
    """It never comes to its end; the answer comes before."""
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    request = _request(
        weir,
        "POST /api/v2/projects",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        body=chunk * (MEBIBYTE // 65_536 + 1),
    )
    status, headers, body = await _raw(weir.url, request)
    assert (status, json.loads(body)["code"], headers["connection"]) == (413, "BODY_TOO_LARGE", "close")


async def test_a_body_in_chunks_that_fits_is_taken(weir: Weir) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        for piece in (b'{"key_', b'name": "in', b' chunks"}'):
            yield piece

    headers = {"Content-Type": "application/json"}
    made = await weir.client.post("/api/v2/api_keys", content=pieces(), headers=headers)
    assert (made.status_code, made.json()["name"]) == (200, "in chunks")
    await weir.call("DELETE", f"/api_keys/{made.json()['id']}")


async def _through(bodies: Bodies, receive: Receive) -> int:
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope: Scope = {"type": "http", "method": "POST", "path": "/api/v2/projects", "headers": [], "state": {}}
    await bodies(scope, receive, send)
    return statuses[0]


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


async def test_a_body_that_is_slower_than_anybody_waits_for_is_408() -> None:
    async def slow() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    assert await _through(Bodies(_echo, most_body=MEBIBYTE, seconds=0.1), slow) == 408


async def test_a_client_that_goes_in_the_middle_of_its_body_has_asked_for_nothing() -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"a"', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def gone() -> Message:
        return messages.pop(0)

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("half a request was carried out")

    assert await _through(Bodies(never, most_body=MEBIBYTE), gone) == 400


@pytest.mark.parametrize(
    "lines",
    [
        [f"X-{n}: y" for n in range(200)],
        [f"Cookie: {'; '.join(f'c{n}=x' for n in range(6000))}"],
        [f"X-Long: {'x' * 40_000}"],
    ],
)
async def test_headers_that_no_client_means_are_431(weir: Weir, lines: list[str]) -> None:
    status, _, body = await _raw(weir.url, _request(weir, "GET /api/v2/users/me", *lines))
    assert (status, json.loads(body)["code"]) == (431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize("piece", [b"X-Header: value\r\n" * 4096, b"x" * 65_536])
async def test_a_head_without_end_ends_the_connection(weir: Weir, piece: bytes) -> None:
    own = httpx.URL(weir.url)
    reader, writer = await asyncio.open_connection(own.host, own.port)
    sent = 0
    answer = b""
    try:
        async with asyncio.timeout(20):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
            while not answer and sent < 64 * MEBIBYTE:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                with suppress(TimeoutError):
                    answer = await asyncio.wait_for(reader.read(64), 0.02)
    except ConnectionError:
        # Closed with its answer, while more was on the way to it.
        answer = answer or b"closed"
    finally:
        writer.close()
    assert answer.startswith((b"HTTP/1.1 431", b"closed"))
    assert sent < 8 * MEBIBYTE


async def test_a_head_that_does_not_come_ends_the_connection(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedHttp, "head_seconds", 0.2)
    own = httpx.URL(weir.url)
    for begun in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        reader, writer = await asyncio.open_connection(own.host, own.port)
        writer.write(begun)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
    # A request that is served longer than that is not touched.
    status, _, _ = await _raw(weir.url, _request(weir, "GET /api/v2/users/me"))
    assert status == 200


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Forwarded-Host: evil.example", "X-Original-URL: /internal/proxy", "X-HTTP-Method-Override: DELETE"],
        ["X-Request-Id: <script>alert(1)</script>"],
        ["Range: bytes=0-,0-,0-", "Expect: nothing", "Accept: \xff/\xfe", "Content-Type: text/html"],
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="],
    ],
)
async def test_absurd_headers_are_never_a_failure_of_the_api(weir: Weir, lines: list[str]) -> None:
    status, headers, _ = await _raw(weir.url, _request(weir, "GET /api/v2/users/me", *lines, body=b"0\r\n\r\n"))
    assert status < 500
    assert "<script>" not in headers.get("x-request-id", "")


async def test_the_api_itself_limits_a_key_and_strangers_and_lets_the_key_poll(
    environment: Settings, postgres_url: str
) -> None:
    del environment
    # So few a minute that a slow machine gains none.
    rates = {"WEIR_RATE_READS": "1/3", "WEIR_RATE_STRANGERS": "1/5"}
    async with own_database(postgres_url, **rates) as settings, running_api(settings) as client:
        answers = [await client.get("/api/v2/users/me") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        body = answers[-1].json()
        assert set(body) == {"request_id", "code", "message"}
        assert body["request_id"] == answers[-1].headers["x-request-id"]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        async with httpx.AsyncClient(base_url=client.base_url, timeout=20) as stranger:
            wrong = [
                await stranger.get("/api/v2/projects/p/operations", headers={"Authorization": f"Bearer wrong-{n}"})
                for n in range(7)
            ]
            assert [answer.status_code for answer in wrong] == [401] * 5 + [429] * 2
            assert (await stranger.get("/healthz")).status_code == 200
        polls = [await client.get("/api/v2/projects/p/operations") for _ in range(20)]
        assert {answer.status_code for answer in polls} == {404}


async def test_every_answer_tells_browsers_what_it_is_not_for(weir: Weir) -> None:
    async with httpx.AsyncClient(base_url=weir.url, timeout=20) as stranger:
        for path, status in (
            ("/api/v2/projects", 401),
            ("/api/v2/openapi.json", 200),
            ("/api/nothing", 404),
            ("/healthz", 200),
            ("/metrics", 200),
        ):
            answer = await stranger.get(path)
            assert answer.status_code == status
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert "camera=()" in answer.headers["permissions-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
            assert "strict-transport-security" not in answer.headers
            assert (answer.headers.get("cache-control") == "no-store") == path.startswith("/api")


async def test_an_unexpected_error_has_them_too_and_browsers_keep_to_tls(
    environment: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    del environment
    monkeypatch.setenv("WEIR_BEHIND_TLS", "true")
    get_settings.cache_clear()
    try:
        app = create_app()

        @app.get("/fails")
        async def fails() -> None:
            raise RuntimeError("as a defect would")

        # Before the console's route, which takes every path.
        app.router.routes.insert(0, app.router.routes.pop())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/fails")
    finally:
        monkeypatch.undo()
        get_settings.cache_clear()
    assert answer.status_code == 500
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_the_consoles_policy_lets_nothing_in_that_is_inline() -> None:
    policy = dict(part.strip().split(" ", 1) for part in console_policy("n").split(";"))
    assert "unsafe" not in str(policy)
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self' 'nonce-n'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["default-src"] == "'none'"


async def test_the_consoles_page_has_a_new_nonce_each_time(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f'<meta property="csp-nonce" nonce="{PLACEHOLDER}" />')
    app = FastAPI()
    console.install(app, tmp_path)
    transport = httpx.ASGITransport(app)
    nonces: set[str] = set()
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/", "/projects", "/index.html"):
            page = await client.get(path)
            nonce = page.text.split('nonce="')[1].split('"')[0]
            assert f"'nonce-{nonce}'" in page.headers["content-security-policy"]
            assert len(nonce) >= 22
            nonces.add(nonce)
    assert len(nonces) == 3
    assert PLACEHOLDER not in nonces
