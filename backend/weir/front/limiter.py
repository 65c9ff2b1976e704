"""How many requests the API takes of one key, and of one address that shows no key.

A key is known to be right once a request with it, or with a session that it opened, was let in. Until then, and with
a wrong one, a request counts for the address it comes from, and the database is not asked beyond that rate. A key
that turns out to be right has its token given back: many users behind one address cost each other nothing. Whoever
floods from the same address can keep a key out that this process has not seen yet, and none that it has.

Memory is bounded: so many buckets of each kind, so many known keys. All of it is this process's own and begins anew
with it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from prometheus_client import Counter
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weir.authz.principal import SESSION_COOKIE
from weir.errors import TooManyRequestsError
from weir.front.checks import Headers, values
from weir.front.gate import refuse
from weir.front.kinds import API, WORDS, Kind, is_poll, kind_of
from weir.front.rates import NANOSECONDS, Buckets, Rate
from weir.kit.crypto import hash_token

MOST_BUCKETS = 20_000
MOST_KNOWN = 20_000
# What `weir.authz.principal` leaves in a request's state when it has found whose it is: the id of its API key.
STATE_KEY = "api_key_id"
# Of an IPv6 address, the network that a site has of its own: its owner can take any address in it.
_SITE_BITS = 64

LIMITED = Counter("weir_api_limited_requests_total", "Requests refused because there were too many", ["class"])
for _kind in Kind:
    LIMITED.labels(_kind.value)


def network_of(address: str) -> str:
    """Whose bucket a request from this address takes from. Text that is no address has one of its own."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed.packed, _SITE_BITS), strict=False))


def credential_of(headers: Headers) -> bytes | None:
    """What tells who asks, hashed: the key, or the console's session where there is none. None: there is neither."""
    for value in values(headers, b"authorization")[:1]:
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return hash_token(f"key {key.strip()}")
    for value in values(headers, b"cookie"):
        session = cookie_parser(value).get(SESSION_COOKIE)
        if session:
            return hash_token(f"session {session}")
    return None


class RateLimits:
    """`rates`: a kind that has none is not limited. `clock`: nanoseconds, and never back."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        rates: Mapping[Kind, Rate | None],
        clock: Callable[[], int] = time.monotonic_ns,
        most_buckets: int = MOST_BUCKETS,
        most_known: int = MOST_KNOWN,
    ) -> None:
        self._app = app
        self._clock = clock
        self._buckets: dict[Kind, Buckets[int | str]] = {
            kind: Buckets(rate, most_buckets) for kind, rate in rates.items() if rate is not None
        }
        self._most_known = most_known
        # Ids of keys by what requests show; the one that was used last is the last.
        self._known: OrderedDict[bytes, int | str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        credential = credential_of(scope["headers"])
        key = None if credential is None else self._known.get(credential)
        if credential is None or key is None:
            await self._stranger(credential, scope, receive, send)
        else:
            await self._known_key(credential, key, scope, receive, send)

    async def _known_key(self, credential: bytes, key: int | str, scope: Scope, receive: Receive, send: Send) -> None:
        self._known.move_to_end(credential)
        kind = kind_of(scope["method"], scope["path"])
        wait = 0 if is_poll(scope["method"], scope["path"]) else self._take(kind, key)
        if wait:
            await self._refuse(kind, f"API key {key}", wait, scope, receive, send)
            return

        async def watching(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._known.pop(credential, None)
            await send(message)

        await self._app(scope, receive, watching)

    async def _stranger(self, credential: bytes | None, scope: Scope, receive: Receive, send: Send) -> None:
        client: tuple[str, Any] | None = scope.get("client")
        network = network_of(client[0] if client else "")
        wait = self._take(Kind.STRANGER, network)
        if wait:
            await self._refuse(Kind.STRANGER, f"the address {network}", wait, scope, receive, send)
            return
        state: dict[str, Any] = scope.setdefault("state", {})
        await self._app(scope, receive, send)
        key = state.get(STATE_KEY)
        if credential is None or key is None:
            return
        # Counted where it belongs, unless there is no token left: the answer is out already.
        if is_poll(scope["method"], scope["path"]) or not self._take(kind_of(scope["method"], scope["path"]), key):
            self._give_back(Kind.STRANGER, network)
        self._known[credential] = key
        if len(self._known) > self._most_known:
            self._known.popitem(last=False)

    def _take(self, kind: Kind, whose: int | str) -> int:
        buckets = self._buckets.get(kind)
        return 0 if buckets is None else buckets.take(whose, self._clock())

    def _give_back(self, kind: Kind, whose: int | str) -> None:
        if kind in self._buckets:
            self._buckets[kind].give_back(whose)

    async def _refuse(self, kind: Kind, who: str, wait: int, scope: Scope, receive: Receive, send: Send) -> None:
        LIMITED.labels(kind.value).inc()
        rate = self._buckets[kind].rate
        seconds = max(1, -(-wait // NANOSECONDS))
        error = TooManyRequestsError(
            f"{who} has made all the {WORDS[kind]} that it may for now ({rate.per_minute} a minute, {rate.burst} at "
            f"once); nothing was done; repeat the request after {seconds} s"
        )
        await refuse(error, scope, receive, send, retry_after=str(seconds))
