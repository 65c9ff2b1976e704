"""Buckets of tokens, and whose bucket a request takes from.

Threats: bursts beyond what the rate says, by rounding or by a clock that jumps; a new bucket with each wrong key,
each session, each address of one's own network; memory by many addresses; a flood that keeps others out; clients that
are kept from learning how their operations are.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from starlette.types import Receive, Scope, Send

from weir.front.kinds import Kind, is_poll, kind_of
from weir.front.limiter import RateLimits, network_of
from weir.front.rates import NANOSECONDS, Buckets, Rate

RATES = st.builds(Rate, st.integers(1, 1_000_000), st.integers(1, 40))
# Within a bucket's own scale as well as far beyond it.
GAPS = st.lists(st.integers(0, 3) | st.integers(0, 200 * NANOSECONDS), min_size=1, max_size=120)


def _moments(gaps: list[int]) -> list[int]:
    at, found = 0, list[int]()
    for gap in gaps:
        at += gap
        found.append(at)
    return found


@given(RATES, GAPS)
def test_a_bucket_lets_through_what_exact_arithmetic_does(rate: Rate, gaps: list[int]) -> None:
    buckets = Buckets[str](rate, 10)
    tokens, before = Fraction(rate.burst), 0
    for at in _moments(gaps):
        tokens = min(Fraction(rate.burst), tokens + Fraction(at - before, rate.interval))
        before = at
        wait = buckets.take("key", at)
        assert (wait == 0) == (tokens >= 1)
        if wait == 0:
            tokens -= 1


@given(RATES, GAPS)
def test_no_window_lets_more_through_than_the_burst_and_the_rate_over_it(rate: Rate, gaps: list[int]) -> None:
    buckets = Buckets[str](rate, 10)
    passed = [at for at in _moments(gaps) if buckets.take("key", at) == 0]
    for first, begin in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= rate.burst + (passed[last] - begin) // rate.interval


@given(RATES, GAPS)
def test_what_is_refused_is_taken_after_the_time_said_and_not_before(rate: Rate, gaps: list[int]) -> None:
    buckets = Buckets[str](rate, 10)
    for at in _moments(gaps):
        wait = buckets.take("key", at)
        if wait:
            assert buckets.take("key", at + wait - 1) == 1
            assert buckets.take("key", at + wait) == 0
            return


@given(RATES, st.lists(st.integers(0, 600 * NANOSECONDS), min_size=1, max_size=120))
def test_a_clock_that_jumps_adds_no_token(rate: Rate, moments: list[int]) -> None:
    buckets = Buckets[str](rate, 10)
    passed = sum(buckets.take("key", at) == 0 for at in moments)
    assert passed <= rate.burst + (max(moments) - min(moments)) // rate.interval


@given(RATES, st.lists(st.integers(0, 3), max_size=60))
def test_one_that_is_given_back_was_never_taken(rate: Rate, gaps: list[int]) -> None:
    plain, other = Buckets[str](rate, 10), Buckets[str](rate, 10)
    for at in _moments(gaps):
        if other.take("key", at) == 0:
            other.give_back("key")
        assert other.take("key", at) == plain.take("key", at)


def test_many_keys_take_bounded_memory_and_the_newest_are_remembered() -> None:
    buckets = Buckets[int](Rate(1, 1), 100)
    for key in range(100_000):
        assert buckets.take(key, 0) == 0
    assert len(buckets) == 100
    assert all(buckets.take(key, 0) > 0 for key in range(99_900, 100_000))


@pytest.mark.parametrize("written", ["", "10", "10/", "0/1", "1/0", "-1/1", "1/1/1", "1.5/2", "9999999/1", "none"])
def test_what_is_no_rate_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no rate"):
        Rate.parse(written)


def test_rates_are_read() -> None:
    assert Rate.parse(" 600/100 ") == Rate(600, 100)
    assert Rate.parse("off") is None


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/api/v2/projects", Kind.READ),
        ("POST", "/api/v2/projects", Kind.CHANGE),
        ("DELETE", "/api/v2/projects/p", Kind.CHANGE),
        ("GET", "/api/v2/projects/p/branches/b/roles/r/reveal_password", Kind.REVEAL),
        ("POST", "/api/v2/projects/p/branches/b/roles/r/reset_password", Kind.REVEAL),
        ("GET", "/api/v2/projects/p/connection_uri", Kind.REVEAL),
        ("POST", "/api/v2/api_keys", Kind.REVEAL),
        ("GET", "/api/v2/api_keys", Kind.READ),
        ("POST", "/api/v2/organizations/o/invitations", Kind.REVEAL),
        ("GET", "/api/v2/organizations/o/invitations", Kind.READ),
        ("POST", "/api/v2/invitations/accept", Kind.CHANGE),
        ("GET", "/api/v2/projects/p/branches/b/schema", Kind.SQL),
        ("GET", "/api/v2/projects/p/branches/b/compare_schema", Kind.SQL),
        # Names that people gave, where they are no names of routes.
        ("GET", "/api/v2/projects/p/branches/b/roles/schema", Kind.READ),
        ("GET", "/api/v2/projects/p/branches/b/databases/connection_uri", Kind.READ),
    ],
)
def test_kinds(method: str, path: str, kind: Kind) -> None:
    assert kind_of(method, path) is kind


@pytest.mark.parametrize(
    ("method", "path", "polls"),
    [
        ("GET", "/api/v2/projects/p/operations", True),
        ("GET", "/api/v2/projects/p/operations/1", True),
        ("POST", "/api/v2/projects/p/operations/1/cancel", False),
        ("POST", "/api/v2/projects/p/operations", False),
        ("GET", "/api/v2/projects/p/operations/1/more", False),
        ("GET", "/api/v2/projects/p/branches/b/roles/operations", False),
        ("GET", "/api/v2/projects/a/b/operations", False),
    ],
)
def test_polls(method: str, path: str, *, polls: bool) -> None:
    assert is_poll(method, path) is polls


def test_addresses_of_one_network_are_one() -> None:
    assert network_of("2001:db8:0:1::1") == network_of("2001:db8:0:1:ffff::2")
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8:0:2::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("no address") == "no address"


@dataclass
class Api:
    """What answers behind the limits: it knows keys `right-N`, whose ids are N, and counts what reaches it."""

    revoked: set[str] = field(default_factory=set[str])
    asked: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        headers = dict(scope["headers"])
        shown = headers.get(b"authorization", b"").removeprefix(b"Bearer ").decode("latin-1")
        shown = shown or headers.get(b"cookie", b"").removeprefix(b"weir_session=").decode()
        right = shown.startswith("right-") and shown not in self.revoked
        if right:
            scope.setdefault("state", {})["api_key_id"] = int(shown.split("-")[1])
        await send({"type": "http.response.start", "status": 200 if right else 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class Front:
    api: Api
    limits: RateLimits
    seconds: list[float]

    async def get(
        self, path: str = "/projects", key: str = "", *, address: str = "192.0.2.1", **more: str
    ) -> httpx.Response:
        headers = more | ({"authorization": f"Bearer {key}"} if key else {})
        transport = httpx.ASGITransport(self.limits, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(f"/api/v2{path}", headers=headers)


@pytest.fixture(name="front")
def _front() -> Front:
    api, seconds = Api(), [0.0]
    rates = {Kind.READ: Rate(60, 3), Kind.REVEAL: Rate(60, 1), Kind.STRANGER: Rate(60, 4)}
    limits = RateLimits(api, rates=rates, clock=lambda: int(seconds[0] * NANOSECONDS), most_buckets=50, most_known=3)
    return Front(api, limits, seconds)


def _limited(kind: Kind) -> float:
    return REGISTRY.get_sample_value("weir_api_limited_requests_total", {"class": kind.value}) or 0


async def test_one_too_many_is_told_which_limit_and_when(front: Front) -> None:
    before = _limited(Kind.READ)
    for _ in range(3):
        assert (await front.get(key="right-7")).status_code == 200
    answer = await front.get(key="right-7")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    body = answer.json()
    assert body["code"] == "RATE_LIMITED"
    assert body["message"] == (
        "API key 7 has made all the reads that it may for now (60 a minute, 3 at once); nothing was done; repeat the "
        "request after 1 s"
    )
    assert _limited(Kind.READ) == before + 1
    front.seconds[0] += 1
    assert (await front.get(key="right-7")).status_code == 200
    assert (await front.get(key="right-7")).status_code == 429
    # Another kind, another key: other buckets.
    assert (await front.get("/projects/p/connection_uri", key="right-7")).status_code == 200
    assert (await front.get("/projects/p/connection_uri", key="right-7")).status_code == 429
    assert (await front.get(key="right-8")).status_code == 200


async def test_polls_of_operations_are_never_limited_for_who_has_a_key(front: Front) -> None:
    for _ in range(20):
        assert (await front.get("/projects/p/operations/1", key="right-1")).status_code == 200
        await front.get(key="right-1")
    assert (await front.get(key="right-1")).status_code == 429


async def test_wrong_keys_are_limited_by_address_however_many_there_are(front: Front) -> None:
    paths = ("/projects", "/projects/p/operations") * 10
    answers = [await front.get(path, key=f"wrong-{n}") for n, path in enumerate(paths)]
    assert [answer.status_code for answer in answers] == [401] * 4 + [429] * 16
    # What is refused does not reach the database.
    assert front.api.asked == 4
    assert "the address 192.0.2.1" in answers[-1].json()["message"]
    assert (await front.get(key="wrong-1", address="192.0.2.2")).status_code == 401


async def test_neighbours_in_a_network_of_one_owner_are_one(front: Front) -> None:
    answers = [await front.get(address=f"2001:db8::{n:x}") for n in range(1, 9)]
    assert [answer.status_code for answer in answers] == [401] * 4 + [429] * 4


async def test_an_address_that_others_flood_from_keeps_no_known_key_out(front: Front) -> None:
    assert (await front.get(key="right-1")).status_code == 200
    for n in range(10):
        await front.get(key=f"wrong-{n}")
    assert (await front.get(key="wrong-1")).status_code == 429
    assert (await front.get(key="right-1")).status_code == 200


async def test_right_keys_behind_one_address_cost_each_other_nothing(front: Front) -> None:
    for n in range(20):
        assert (await front.get(key=f"right-{n}")).status_code == 200
    assert len(front.limits._known) == 3


async def test_sessions_of_one_key_share_its_bucket(front: Front) -> None:
    answers = [await front.get(cookie=f"weir_session=right-5-{n}") for n in range(5)]
    assert [answer.status_code for answer in answers][:4] == [200] * 4
    # The first of each was let in by its address, and counted for the key.
    assert (await front.get(cookie="weir_session=right-5-4")).status_code == 429


async def test_a_key_that_is_revoked_is_forgotten(front: Front) -> None:
    assert (await front.get(key="right-1")).status_code == 200
    front.api.revoked.add("right-1")
    assert [(await front.get(key="right-1")).status_code for _ in range(7)] == [401] * 5 + [429] * 2


async def test_many_addresses_and_keys_take_bounded_memory(front: Front) -> None:
    for n in range(300):
        await front.get(key=f"wrong-{n}", address=f"198.51.100.{n % 256}" if n < 256 else f"203.0.113.{n - 256}")
    assert len(front.limits._buckets[Kind.STRANGER]) == 50
    assert len(front.limits._known) == 0


async def test_a_kind_without_a_rate_is_not_limited(front: Front) -> None:
    headers = {"authorization": "Bearer right-1"}
    transport = httpx.ASGITransport(front.limits, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        answers = [await client.post("/api/v2/projects") for _ in range(30)]
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", "Basic eDp5", "bearer\tx", "\xff\xfe", "Bearer " + "x" * 9000]
)
async def test_absurd_credentials_are_a_strangers(front: Front, value: str) -> None:
    cookies = b"weir_session=; =; ;;;; weir_session"
    headers = [(b"authorization", value.encode("latin-1")), (b"cookie", cookies)]
    transport = httpx.ASGITransport(front.limits, client=("192.0.2.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answers = [await client.get("/api/v2/projects", headers=headers) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [401] * 4 + [429] * 2
