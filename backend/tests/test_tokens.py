"""Promise: what parts show each other is made for one purpose, is in time, and is signed by a key that its reader
has; keys change while everything runs; no file of these is anybody else's."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from weir.cli import installation as installations
from weir.cli.main import cli
from weir.clients.http import JsonClient, RemoteError
from weir.tokens import bearer, keys, parts
from weir.tokens.keys import OVERLAP_SECONDS, KeyFileError, KeyFiles, PublicKey, SigningKey
from weir.tokens.mint import REQUEST_SECONDS, Grant, Right, Signer, sign

NOW = 1_800_000_000.0
TENANT, TIMELINE = "1" * 32, "2" * 32
SPEC = {"compute_id": "ep-one", "tenant_id": TENANT, "timeline_id": TIMELINE}


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def claims_of(token: str) -> dict[str, Any]:
    return json.loads(decoded(token.split(".")[1]))


def key_of(token: str) -> str:
    return json.loads(decoded(token.split(".", maxsplit=1)[0]))["kid"]


def checks_out(token: str, known: list[PublicKey]) -> bool:
    """As a part does it, with the key that the token names."""
    signed, _, signature = token.strip().rpartition(".")
    named = [key for key in known if key.name == key_of(token)]
    try:
        Ed25519PublicKey.from_public_bytes(named[0].public).verify(decoded(signature), signed.encode())
    except (InvalidSignature, IndexError):
        return False
    return True


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("secrets", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    return tmp_path


@pytest.fixture
def files(home: Path) -> KeyFiles:
    made = KeyFiles(home)
    made.prepare(NOW)
    return made


def no_pause(_: float) -> None: ...


def test_a_keys_name_is_its_thumbprint():
    # RFC 8037, appendix A.3.
    public = decoded("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
    assert keys.thumbprint(public) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_token_says_what_it_is_for_and_is_signed_by_the_published_key(files: KeyFiles):
    key = keys.read_signing_key(files.private)
    token = sign(key, Grant("api", ("pageserver",), (Right.MANAGE,), TENANT), NOW, 300)
    assert checks_out(token, files.published())
    assert claims_of(token) == {
        "iss": "weir-control-plane",
        "sub": "api",
        "aud": ["pageserver"],
        "tenant": TENANT,
        "rights": ["manage"],
        "iat": int(NOW),
        "exp": int(NOW) + 300,
    }
    stranger = SigningKey(Ed25519PrivateKey.generate())
    assert not checks_out(sign(stranger, Grant("x", ("pageserver",), ()), NOW, 300), files.published())
    with pytest.raises(ValueError, match="tenant"):
        sign(key, Grant("api", ("pageserver",), (), None, TIMELINE), NOW, 300)


def test_the_private_key_is_its_owners_alone(files: KeyFiles, home: Path):
    assert files.private.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in files.public.read_bytes()
    files.private.chmod(0o640)
    with pytest.raises(KeyFileError, match="read by others"):
        keys.read_signing_key(files.private)
    files.private.unlink()
    files.private.symlink_to(home / "elsewhere")
    with pytest.raises(KeyFileError):
        keys.read_signing_key(files.private)


def test_preparing_again_changes_nothing_and_makes_what_is_lost(files: KeyFiles):
    before = files.private.read_bytes(), files.public.read_bytes()
    files.prepare(NOW)
    assert (files.private.read_bytes(), files.public.read_bytes()) == before
    files.public.unlink()
    files.prepare(NOW)
    assert (files.private.read_bytes(), files.public.read_bytes()) == before
    files.private.unlink()
    files.prepare(NOW)
    assert files.private.read_bytes() != before[0]
    # What was signed with the lost key may have been signed by whoever has it now.
    assert [key.name for key in files.published()] == [keys.read_signing_key(files.private).name]


def test_a_new_key_is_read_before_it_signs_and_the_old_one_counts_as_long_as_its_tokens(files: KeyFiles):
    old = keys.read_signing_key(files.private)
    seen: list[tuple[list[str], str]] = []

    def pause(seconds: float) -> None:
        assert seconds >= 2
        seen.append(([key.name for key in files.published()], keys.read_signing_key(files.private).name))

    new = files.rotate(lambda: NOW, pause)
    assert seen == [([old.name, new.name], old.name)]
    assert keys.read_signing_key(files.private).name == new.name
    until = {key.name: key.retires for key in files.published()}
    assert until == {new.name: None, old.name: int(NOW) + OVERLAP_SECONDS}
    assert parts.PART_SECONDS < OVERLAP_SECONDS

    # The time of the first does not begin anew with the next change, and afterwards it goes.
    newer = files.rotate(lambda: NOW + 60, no_pause)
    until = {key.name: key.retires for key in files.published()}
    assert until[old.name] == int(NOW) + OVERLAP_SECONDS
    files.prepare(NOW + OVERLAP_SECONDS)
    assert {key.name for key in files.published()} == {newer.name, new.name}


def test_a_change_that_breaks_off_leaves_keys_that_work_and_is_gone_on_with(files: KeyFiles):
    old = keys.read_signing_key(files.private)

    def dies(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.rotate(lambda: NOW, dies)
    assert keys.read_signing_key(files.private).name == old.name
    assert old.name in {key.name for key in files.published()}
    new = files.rotate(lambda: NOW, no_pause)
    # The key that nobody has goes with the others.
    assert [key.name for key in files.published() if key.retires is None] == [new.name]


def test_at_once_only_the_key_that_signs_counts(files: KeyFiles):
    old = sign(keys.read_signing_key(files.private), Grant("x", ("pageserver",), ()), NOW, 300)
    new = files.rotate(lambda: NOW, no_pause)
    assert checks_out(old, files.published())
    assert files.forget_others() == [key_of(old)]
    assert not checks_out(old, files.published())
    assert [key.name for key in files.published()] == [new.name]


def test_requests_share_a_token_for_half_its_time_and_never_over_a_change_of_keys(files: KeyFiles):
    clock = Clock()
    signer = Signer(files.private, clock)
    grant = Grant("api", ("pageserver",), (Right.MANAGE,), TENANT)
    first = signer.for_requests(grant)
    clock.now += REQUEST_SECONDS / 2 - 1
    assert signer.for_requests(grant) == first
    clock.now += 1
    second = signer.for_requests(grant)
    assert second != first
    clock.now -= 1000
    set_back = signer.for_requests(grant)
    assert claims_of(set_back)["iat"] == int(clock.now)
    assert signer.for_requests(Grant("api", ("safekeeper",), (Right.MANAGE,), TENANT)) != set_back
    new = files.rotate(clock, no_pause)
    assert key_of(signer.for_requests(grant)) == new.name


def test_a_request_shows_a_token_for_what_its_path_names(files: KeyFiles, home: Path):
    def scope(path: str, part: str = "pageserver") -> dict[str, Any]:
        token = bearer.for_storage(part, path, home)
        assert token is not None
        return {name: claims_of(token).get(name) for name in ("aud", "tenant", "timeline", "rights")}

    timeline = f"/v1/tenant/{TENANT}/timeline/{TIMELINE}"
    own = {"aud": ["pageserver"], "tenant": TENANT, "timeline": TIMELINE, "rights": ["manage"]}
    assert scope(timeline) == scope(timeline + "/checkpoint") == own
    whole = own | {"timeline": None}
    assert scope(f"/v1/tenant/{TENANT}") == scope(f"/v1/tenant/{TENANT}/timeline") == whole
    assert scope(f"/v1/tenant/{TENANT}/config") == whole
    everything = whole | {"tenant": None}
    assert scope("/v1/tenant") == scope("/v1/sick_safekeepers") == everything
    assert scope(f"/v1/tenant/{TENANT}x") == everything
    assert scope("/v1/timelines", "safekeeper") == everything | {"aud": ["safekeeper"]}
    assert scope("/metrics") == everything | {"rights": ["metrics"]}


def test_without_keys_there_is_no_token(tmp_path: Path):
    assert bearer.for_storage("pageserver", "/v1/tenant", tmp_path) is None
    assert bearer.headers("pageserver", "/v1/tenant", tmp_path) == {}


async def test_a_client_shows_its_token_and_no_error_does():
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(401, json={"code": "unauthenticated", "message": "the token has expired"})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        client = JsonClient("a part", "http://part", http, lambda path: f"the.token.of{path}")
        with pytest.raises(RemoteError) as error:
            await client.call("GET", "/v1")
    assert seen == ["Bearer the.token.of/v1"]
    assert "the.token" not in str(error.value)
    # A key that was changed just now is read by the next attempt.
    assert error.value.retryable


def renewed(files: KeyFiles, what: list[parts.Part], now: float) -> int:
    return parts.renew(keys.read_signing_key(files.private), what, now)


def test_a_compute_gets_a_token_for_its_own_timeline_and_no_other_right(files: KeyFiles, tmp_path: Path):
    part = parts.compute(tmp_path / "computes" / "ep-one", SPEC)
    assert renewed(files, [part], NOW) == 1
    token = part.file.read_text()
    assert checks_out(token, files.published())
    said = claims_of(token)
    assert (said["tenant"], said["timeline"]) == (TENANT, TIMELINE)
    assert set(said["rights"]) == {"read_pages", "write_wal"}
    assert part.file.stat().st_mode & 0o777 == 0o600


def test_each_services_token_is_for_what_it_asks_others(files: KeyFiles, home: Path):
    assert renewed(files, parts.services(home), NOW) == 3
    found = {path.name: claims_of(path.read_text()) for path in parts.tokens_dir(home).iterdir()}
    rights = {name: (said["aud"], said["rights"]) for name, said in found.items()}
    assert rights == {
        "pageserver": (["safekeeper"], ["read_wal", "trim_wal"]),
        "safekeeper": (["safekeeper"], ["read_wal"]),
        "prometheus": (["pageserver", "safekeeper", "compute", "control"], ["metrics"]),
    }
    assert parts.tokens_dir(home).stat().st_mode & 0o777 == 0o700


def _rotates(files: KeyFiles, part: parts.Part) -> float:
    files.rotate(lambda: NOW, no_pause)
    return NOW


def _nonsense(text: str) -> Callable[[KeyFiles, parts.Part], float]:
    def change(files: KeyFiles, part: parts.Part) -> float:
        part.file.write_text(text)
        return NOW

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda files, part: NOW + parts.PART_SECONDS / 2,
        # The clock was set back: what was made before is of later.
        lambda files, part: NOW - 60,
        _rotates,
        _nonsense(""),
        _nonsense("a.b.c"),
        _nonsense("e30.e30.e30"),
        _nonsense("W10.W10.W10"),
    ],
)
def test_a_token_is_renewed_when_it_has_to_be(
    files: KeyFiles, tmp_path: Path, change: Callable[[KeyFiles, parts.Part], float]
):
    part = parts.compute(tmp_path, SPEC)
    assert renewed(files, [part], NOW) == 1
    assert renewed(files, [part], NOW + parts.PART_SECONDS / 2 - 1) == 0
    now = change(files, part)
    assert renewed(files, [part], now) == 1
    assert checks_out(part.file.read_text(), files.published())
    assert renewed(files, [part], now) == 0


def test_a_compute_on_another_timeline_gets_another_token(files: KeyFiles, tmp_path: Path):
    renewed(files, [parts.compute(tmp_path, SPEC)], NOW)
    other = parts.compute(tmp_path, SPEC | {"timeline_id": "3" * 32})
    assert renewed(files, [other], NOW) == 1
    assert claims_of(other.file.read_text())["timeline"] == "3" * 32


def test_whose_token_a_compute_has_is_not_for_its_own_folder_to_say(files: KeyFiles, home: Path):
    folder = home / "computes" / "ep-one"
    folder.mkdir(parents=True)
    parts.record(home, SPEC)
    (folder / "spec.json").write_text(json.dumps(SPEC | {"tenant_id": "f" * 32}))
    assert renewed(files, parts.computes(home), NOW) == 1
    assert claims_of((folder / "token").read_text())["tenant"] == TENANT
    record = next((home / "secrets" / "computes").iterdir())
    assert record.stat().st_mode & 0o777 == 0o600
    parts.forget(home, "ep-one")
    assert parts.computes(home) == []
    parts.record(home, SPEC)
    record.write_text("{}")
    with pytest.raises(KeyFileError, match=r"ep-one\.json"):
        parts.computes(home)
    parts.forget(home, "ep-one")
    # One whose folder has gone gets none.
    parts.record(home, SPEC | {"compute_id": "ep-two"})
    assert parts.computes(home) == []


@pytest.mark.parametrize("form", ["token", ".token.{}.new"])
def test_no_token_is_read_or_written_through_a_link(files: KeyFiles, tmp_path: Path, form: str):
    """The folder of a compute may be its database's own user's."""
    name = form.format(os.getpid())
    victim = tmp_path / "victim"
    victim.write_text("of somebody else")
    folder = tmp_path / "computes" / "ep-one"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(victim)
    part = parts.compute(folder, SPEC)
    assert renewed(files, [part], NOW) == 1
    assert victim.read_text() == "of somebody else"
    assert not part.file.is_symlink()
    assert part.file.stat().st_mode & 0o777 == 0o600


def test_the_command_lists_and_rotates_keys_and_shows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("time.sleep", no_pause)
    made = installations.create(tmp_path / "home", 17400)
    KeyFiles(made.home).prepare(NOW)
    running = made.computes_dir / "ep-one"
    running.mkdir(parents=True)
    parts.record(made.home, SPEC)
    (running / "token").write_text("an older one")

    def weir(*words: str) -> str:
        result = CliRunner().invoke(cli, ["--home", str(made.home), "keys", *words])
        assert result.exit_code == 0, result.output
        return result.output

    first = json.loads(weir("list", "--json"))
    assert [row["signs"] for row in first] == [True]
    said = weir("rotate")
    both = json.loads(weir("list", "--json"))
    assert [row["signs"] for row in both] == [True, False]
    assert both[1]["kid"] == first[0]["kid"]
    assert both[0]["retires"] is None
    assert both[1]["retires"] is not None
    assert key_of((running / "token").read_text()) == both[0]["kid"]
    said += weir("rotate", "--at-once")
    assert len(json.loads(weir("list", "--json"))) == 1
    for secret in (*parts.tokens_dir(made.home).iterdir(), running / "token", KeyFiles(made.home).private):
        for line in secret.read_text().splitlines():
            assert line.strip("-") not in said
