"""Promise: the control plane's own pages for Prometheus open to a token that is for them, of now, and by a key that
counts, and to nothing else that somebody makes up."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from weir.tokens import parts
from weir.tokens.check import Checker, Refused
from weir.tokens.keys import OVERLAP_SECONDS, KeyFiles, SigningKey, read_signing_key
from weir.tokens.mint import ISSUER, Grant, Right, sign

NOW = 1_800_000_000.0
GRANT = Grant("prometheus", ("pageserver", "control"), (Right.METRICS,))


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> KeyFiles:
    for name in ("run", "secrets"):
        (tmp_path / name).mkdir(mode=0o700)
    files = KeyFiles(tmp_path)
    files.prepare(NOW)
    return files


@pytest.fixture(name="checker")
def _checker(files: KeyFiles, tmp_path: Path, clock: Clock) -> Checker:
    return Checker(tmp_path, clock)


def key(files: KeyFiles) -> SigningKey:
    return read_signing_key(files.private)


def opens(checker: Checker, token: str | None, right: Right = Right.METRICS) -> bool:
    try:
        checker.check(None if token is None else f"Bearer {token}", right)
    except Refused as refused:
        said = str(refused)
    else:
        return True
    assert token is None or token not in said
    return False


def encoded(words: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(words).encode()).rstrip(b"=").decode()


def written(key: SigningKey, claims: dict[str, Any], **header: Any) -> str:
    """A token that says this, whatever it is, under a signature that is right."""
    signed = f"{encoded({'alg': 'EdDSA', 'kid': key.name} | header)}.{encoded(claims)}"
    signature = base64.urlsafe_b64encode(key.private.sign(signed.encode())).rstrip(b"=").decode()
    return f"{signed}.{signature}"


def claims(**changed: Any) -> dict[str, Any]:
    return GRANT.claims(int(NOW), 300) | changed


def test_the_token_that_prometheus_has_opens_and_those_of_other_parts_do_not(
    files: KeyFiles, checker: Checker, tmp_path: Path
) -> None:
    parts.renew(key(files), parts.services(tmp_path), NOW)
    found = {path.name: opens(checker, path.read_text().strip()) for path in parts.tokens_dir(tmp_path).iterdir()}
    assert found == {"prometheus": True, "pageserver": False, "safekeeper": False}
    assert not opens(checker, (parts.tokens_dir(tmp_path) / "prometheus").read_text().strip(), Right.MANAGE)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic dXNlcjpwYXNzd29yZA==", "{good}"])
def test_a_header_that_carries_no_token_is_refused(files: KeyFiles, checker: Checker, header: str | None) -> None:
    good = sign(key(files), GRANT, NOW, 300)
    checker.check(f"bearer {good}", Right.METRICS)
    with pytest.raises(Refused, match="there is no token"):
        checker.check(None if header is None else header.replace("{good}", good), Right.METRICS)


DEEP = base64.urlsafe_b64encode(b"[" * 2900).decode()


NONSENSE = ["x", "..", "a.b", "a.b.c", "a.b.c.d", "\u00e9.b.c", "x" * 9_000]


@pytest.mark.parametrize("token", [*NONSENSE, *(f"{head}.b.c" for head in (DEEP, encoded([]), encoded({})))])
def test_nonsense_is_refused_and_breaks_nothing(checker: Checker, token: str) -> None:
    assert not opens(checker, token)


@pytest.mark.parametrize(
    "said",
    [
        claims(iss="weir"),
        claims(aud=["pageserver", "safekeeper", "compute"]),
        claims(aud="pageserver"),
        claims(aud=None),
        claims(rights=["manage"]),
        claims(rights="metrics"),
        claims(rights=None),
        claims(tenant="1" * 32),
        claims(tenant="1" * 32, timeline="2" * 32),
        claims(iat=int(NOW) - 600, exp=int(NOW) - 31),
        claims(iat=int(NOW) + 31),
        claims(nbf=int(NOW) + 31),
        claims(exp=int(NOW) + 24 * 3600 + 1),
        claims(exp=None),
        claims(exp=True),
        claims(exp=NOW + 300),
        claims(iat="0"),
        {},
    ],
)
def test_what_is_signed_and_not_for_this_is_refused(files: KeyFiles, checker: Checker, said: dict[str, Any]) -> None:
    assert opens(checker, written(key(files), claims())), "the difference is what is said"
    assert not opens(checker, written(key(files), said))


def test_clocks_may_differ_by_half_a_minute(files: KeyFiles, checker: Checker) -> None:
    for said in (claims(iat=int(NOW) + 30), claims(iat=int(NOW) - 600, exp=int(NOW) - 29), claims(aud="control")):
        assert opens(checker, written(key(files), said))


def test_signatures_that_are_not_of_the_named_key_are_refused(files: KeyFiles, checker: Checker) -> None:
    own, stranger = key(files), SigningKey(Ed25519PrivateKey.generate())
    good = written(own, claims())
    head, said, signature = good.split(".")
    forged = written(stranger, claims(), kid=own.name)
    tokens = {
        "by a stranger's key": written(stranger, claims()),
        "by a stranger's key under our name": forged,
        "unsigned": f"{encoded({'alg': 'none', 'kid': own.name})}.{said}.",
        "signed as if the public key were a secret": written(own, claims(), alg="HS256"),
        "with what nobody knows and all have to": written(own, claims(), crit=["exp"]),
        "with other claims": f"{head}.{encoded(claims(exp=int(NOW) + 900))}.{signature}",
        "without its signature": f"{head}.{said}.",
        "with another's signature": f"{head}.{said}.{forged.rpartition('.')[2]}",
        "written in another way": f"{head}.{said}.{signature}==",
        "with what a lax reader skips": f"{head}.{said}.{signature[:10]}!{signature[10:]}",
    }
    assert opens(checker, good)
    assert [what for what, token in tokens.items() if opens(checker, token)] == []
    assert claims()["iss"] == ISSUER


def test_a_key_counts_until_it_retires_and_no_longer_once_it_is_forgotten(
    files: KeyFiles, checker: Checker, clock: Clock
) -> None:
    old = key(files)
    files.rotate(clock, lambda _: None)
    for token in (written(old, claims()), written(key(files), claims())):
        assert opens(checker, token)
    clock.now += OVERLAP_SECONDS
    late = claims(iat=int(clock.now), exp=int(clock.now) + 300)
    assert [opens(checker, written(each, late)) for each in (old, key(files))] == [False, True]
    clock.now = NOW
    files.forget_others()
    assert [opens(checker, written(each, claims())) for each in (old, key(files))] == [False, True]


def test_a_key_set_that_makes_no_sense_opens_nothing_and_takes_nothing_away(
    files: KeyFiles, tmp_path: Path, clock: Clock
) -> None:
    token, text = written(key(files), claims()), files.public.read_text()
    running = Checker(tmp_path, clock)
    assert opens(running, token)
    files.public.write_text("{}")
    assert opens(running, token), "what was read before goes on to count"
    assert not opens(running, None)
    assert not opens(Checker(tmp_path, clock), token), "who starts has read nothing"
    files.public.write_text(text)
    assert opens(Checker(tmp_path, clock), token)
    files.public.unlink()
    assert not opens(running, None), "a file that is gone opens nothing to whoever has read it"
    assert opens(Checker(tmp_path, clock), None), "without keys nobody has tokens"
