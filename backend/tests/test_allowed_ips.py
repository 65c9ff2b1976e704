"""The addresses that clients of a project may come from: how they are set, and what the proxy is told of them."""

from collections.abc import Generator
from typing import Any

import pytest
from test_proxy import TOKEN, Asking
from weir_testing.fixtures import Weir

from weir.config import get_settings
from weir.kit.addresses import parse_range, plain_range
from weir.proxy.router import TOKEN_FILE


@pytest.fixture
def asking(weir: Weir) -> Generator[Asking]:
    path = weir.settings.secrets_dir / TOKEN_FILE
    path.write_text(TOKEN + "\n")
    yield Asking(weir)
    path.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def with_proxy(weir: Weir) -> Generator[None]:
    del weir
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_PROXY_PORT", "7432")
        get_settings.cache_clear()
        yield
    get_settings.cache_clear()


async def _set(weir: Weir, created: dict[str, Any], status: int = 200, **allowed: Any) -> dict[str, Any]:
    body = {"project": {"settings": {"allowed_ips": allowed}}}
    return await weir.call("PATCH", f"/projects/{created['project']['id']}", status, json=body)


async def test_the_proxy_is_told_at_once_and_only_what_is_set(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="listed")
    ident = created["endpoints"][0]["id"]
    # A proxy of before these lists refuses a name that it does not know.
    assert "allowed_ips" not in await asking.endpoint(ident)
    given = ["192.0.2.7", "10.0.0.0/8", "198.51.100.1-198.51.100.9", "2001:db8::/32"]
    changed = await _set(weir, created, ips=given)
    assert changed["project"]["settings"]["allowed_ips"] == {"ips": given, "protected_branches_only": False}
    assert changed["operations"] == []
    assert (await asking.endpoint(ident))["allowed_ips"] == [
        "192.0.2.7-192.0.2.7",
        "10.0.0.0-10.255.255.255",
        "198.51.100.1-198.51.100.9",
        "2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    ]
    # The same answer comes of a wake.
    woken = (await asking.send("POST", f"{ident}/wake")).json()
    assert woken["allowed_ips"][0] == "192.0.2.7-192.0.2.7"
    await _set(weir, created, ips=[])
    assert "allowed_ips" not in await asking.endpoint(ident)


async def test_a_list_for_protected_branches_is_for_these(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="guarded")
    ident, branch = created["endpoints"][0]["id"], created["branch"]["id"]
    await _set(weir, created, ips=["192.0.2.7"], protected_branches_only=True)
    assert "allowed_ips" not in await asking.endpoint(ident)
    path = f"/projects/{created['project']['id']}/branches/{branch}"
    await weir.call("PATCH", path, json={"branch": {"protected": True}})
    assert (await asking.endpoint(ident))["allowed_ips"] == ["192.0.2.7-192.0.2.7"]
    await weir.call("PATCH", path, json={"branch": {"protected": False}})
    assert "allowed_ips" not in await asking.endpoint(ident)
    # What is left out stays as it is.
    await _set(weir, created, protected_branches_only=False)
    assert (await asking.endpoint(ident))["allowed_ips"] == ["192.0.2.7-192.0.2.7"]


async def test_a_new_project_may_have_a_list_from_its_begin(weir: Weir, asking: Asking) -> None:
    created = await weir.project(name="closed", settings={"allowed_ips": {"ips": ["192.0.2.7"]}})
    assert (await asking.endpoint(created["endpoints"][0]["id"]))["allowed_ips"] == ["192.0.2.7-192.0.2.7"]


@pytest.mark.parametrize(
    "wrong",
    ["", "192.0.2", "192.0.2.1/33", "192.0.2.1/255.0.0.0", "192.0.2.01", "fe80::1%eth0", "192.0.2.9-192.0.2.1",
     "192.0.2.1-::1", "host.example", "192.0.2.1/+8"],
)  # fmt: skip
async def test_what_is_no_range_is_refused_by_name_and_changes_nothing(weir: Weir, wrong: str) -> None:
    created = await weir.project(name="mistyped")
    refused = await _set(weir, created, 400, ips=["192.0.2.7", wrong])
    assert "allowed_ips" in refused["message"]
    assert not wrong or wrong in refused["message"]
    project = (await weir.call("GET", f"/projects/{created['project']['id']}"))["project"]
    assert "allowed_ips" not in project["settings"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("192.0.2.7", "192.0.2.7-192.0.2.7"),
        ("192.0.2.9/24", "192.0.2.0-192.0.2.255"),
        ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
        ("192.0.2.5 - 192.0.3.9", "192.0.2.5-192.0.3.9"),
        ("::1/128", "::1-::1"),
        ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ],
)
def test_each_form_is_a_range(text: str, plain: str) -> None:
    assert plain_range(text) == plain
    assert plain_range(plain) == plain


@pytest.mark.parametrize("text", [" ", "a-b", "192.0.2.1-", "::1/129", "192.0.2.1/-1", "192.0.2.1/٣"])
def test_what_has_no_form_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no address, and no range"):
        parse_range(text)
