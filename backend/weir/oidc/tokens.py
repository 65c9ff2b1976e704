"""Tokens that a provider signs: who signed them, and what they say.

PyJWT checks signatures, and nothing else of it is used: an algorithm has to be one of ALGORITHMS and the one of the
key, so neither `none` nor a key that is taken for the secret of an HMAC gets that far. What a token says is checked
here, at a moment that the caller gives.
"""

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.exceptions import InvalidSignatureError, PyJWTError

ALGORITHMS = ("RS256", "ES256", "EdDSA")
# By key type and curve; which members of a key are public.
_KINDS: Mapping[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", ("kty", "n", "e")),
    ("EC", "P-256"): ("ES256", ("kty", "crv", "x", "y")),
    ("OKP", "Ed25519"): ("EdDSA", ("kty", "crv", "x")),
}
_LEAST_RSA_BITS = 2048
_MOST_KEYS = 50
MOST_TOKEN = 16 * 1024
# By how much clocks may differ.
LEEWAY = timedelta(seconds=60)
# How old a logout token may be. Its id is kept for longer, so that it counts once.
LOGOUT_AGE = timedelta(minutes=10)
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
_MOST_ID = 255
_MOST_SID = 512


class TokenRefusedError(Exception):
    """The token is none of the provider's for this client at this moment; the text says why."""


class UnknownKeyError(TokenRefusedError):
    """None of the keys that are known has signed it: the provider may have new ones."""


@dataclass(frozen=True)
class Key:
    """A public key of a provider."""

    kid: str | None
    algorithm: str
    public: Any


@dataclass(frozen=True)
class Signed:
    """Header and claims of a token whose signature is right."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]


@dataclass(frozen=True)
class IdToken:
    """`email_verified`: whether the provider says that the person reads mail there."""

    subject: str
    sid: str | None
    email: str | None
    email_verified: bool
    name: str | None


@dataclass(frozen=True)
class LogoutToken:
    """Names a session at the provider (`sid`), a person (`subject`), or both."""

    jti: str
    subject: str | None
    sid: str | None


def keys_of(document: Any) -> tuple[Key, ...]:
    """The keys of a JSON web key set that can check signatures here; others are left out. Raises ValueError when it
    is no key set."""
    given = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(given, list):
        raise ValueError("it is no JSON web key set")  # noqa: TRY004  a document of others, not an argument
    found: list[Key] = []
    for each in given[:_MOST_KEYS]:
        key = _key(each) if isinstance(each, dict) else None
        if key is not None:
            found.append(key)
    return tuple(found)


def _key(each: Mapping[str, Any]) -> Key | None:
    kind = _KINDS.get((str(each.get("kty")), str(each.get("crv", ""))))
    if kind is None or each.get("use") not in {None, "sig"}:
        return None
    algorithm, members = kind
    names = {algorithm, "Ed25519"} if algorithm == "EdDSA" else {algorithm}
    kid = each.get("kid")
    if each.get("alg") not in {None, *names} or not isinstance(kid, str | None):
        return None
    try:
        public = jwt.PyJWK({name: each[name] for name in members}, algorithm=algorithm).key
    except (PyJWTError, KeyError, TypeError, ValueError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < _LEAST_RSA_BITS:
        return None
    return Key(kid, algorithm, public)


def signed(token: str, keys: Sequence[Key]) -> Signed:
    """Raises UnknownKeyError, TokenRefusedError."""
    if len(token) > MOST_TOKEN or not token.isascii():
        raise TokenRefusedError(f"it has more than {MOST_TOKEN} characters, or such as no token has")
    try:
        header = jwt.get_unverified_header(token)
    except PyJWTError as error:
        raise TokenRefusedError(f"it is no signed token: {error}") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise TokenRefusedError(f"its algorithm is {algorithm!r}; {', '.join(ALGORITHMS)} are taken")
    if "crit" in header or header.get("b64") is False:
        raise TokenRefusedError("its header asks for an extension that is not known here")
    suitable = [key for key in keys if key.algorithm == algorithm and (kid is None or key.kid in {None, kid})]
    for key in suitable:
        try:
            payload = jwt.PyJWS().decode(token, key.public, algorithms=[key.algorithm])
        except InvalidSignatureError:
            continue
        except PyJWTError as error:
            raise TokenRefusedError(f"it is no signed token: {error}") from None
        return Signed(header, _claims(payload))
    if suitable and kid is not None:
        raise TokenRefusedError("its signature is not the provider's")
    raise UnknownKeyError(f"no key of the provider for {algorithm}, called {kid!r}, has signed it")


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = json.loads(payload)
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefusedError("what it holds is no JSON object")
    return claims


def id_token(token: Signed, issuer: str, client_id: str, nonce: str, at: datetime) -> IdToken:
    """What an id_token says of the person who has just signed in. Raises TokenRefusedError."""
    claims = token.claims
    if str(token.header.get("typ", "JWT")).lower() not in {"jwt", "application/jwt"} or "events" in claims:
        raise TokenRefusedError("it is a token of another kind than an id_token")
    _check_parties(claims, issuer, client_id)
    _check_times(claims, at)
    _moment(claims, "exp")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise TokenRefusedError("its nonce is not the one that this sign-in began with")
    subject = _text(claims, "sub", _MOST_ID)
    if subject is None:
        raise TokenRefusedError("it names no subject (`sub`)")
    return IdToken(subject, _text(claims, "sid", _MOST_SID), *person_claims(claims))


def person_claims(claims: Mapping[str, Any]) -> tuple[str | None, bool, str | None]:
    """Email, whether it is verified, and name, of an id_token or of what the provider tells of a person."""
    email, name = claims.get("email"), claims.get("name")
    return (
        email if isinstance(email, str) else None,
        claims.get("email_verified") is True,
        name.strip()[:_MOST_ID] or None if isinstance(name, str) else None,
    )


def logout_token(token: Signed, issuer: str, client_id: str, at: datetime) -> LogoutToken:
    """Raises TokenRefusedError."""
    claims = token.claims
    if str(token.header.get("typ", "JWT")).lower() not in {"jwt", "logout+jwt", "application/logout+jwt"}:
        raise TokenRefusedError("it is a token of another kind than a logout token")
    _check_parties(claims, issuer, client_id)
    _check_times(claims, at)
    if _moment(claims, "iat") < (at - LOGOUT_AGE).timestamp():
        raise TokenRefusedError(f"it is older than {LOGOUT_AGE.total_seconds():g} s")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise TokenRefusedError("its `events` name no logout")
    if "nonce" in claims:
        raise TokenRefusedError("it has a nonce, as an id_token has")
    jti, subject, sid = (
        _text(claims, "jti", _MOST_SID),
        _text(claims, "sub", _MOST_ID),
        _text(claims, "sid", _MOST_SID),
    )
    if jti is None:
        raise TokenRefusedError("it has no id (`jti`)")
    if subject is None and sid is None:
        raise TokenRefusedError("it names neither a session (`sid`) nor a subject (`sub`)")
    return LogoutToken(jti, subject, sid)


def _check_parties(claims: Mapping[str, Any], issuer: str, client_id: str) -> None:
    if claims.get("iss") != issuer:
        raise TokenRefusedError(f"its issuer is not {issuer}")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client_id not in audiences:
        raise TokenRefusedError("it is for another audience")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise TokenRefusedError("it was issued to another client (`azp`)")


def _check_times(claims: Mapping[str, Any], at: datetime) -> None:
    """`exp` where there is one: a caller that wants one asks for it."""
    if "exp" in claims and _moment(claims, "exp") <= (at - LEEWAY).timestamp():
        raise TokenRefusedError("it has expired")
    for name in ("iat", "nbf"):
        if (name in claims or name == "iat") and _moment(claims, name) > (at + LEEWAY).timestamp():
            raise TokenRefusedError(f"it is of the future (`{name}`)")


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRefusedError(f"its `{name}` is no moment")
    return value


def _text(claims: Mapping[str, Any], name: str, most: int) -> str | None:
    """None where there is no such claim."""
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, str) or not 0 < len(value) <= most or "\x00" in value:
        raise TokenRefusedError(f"its `{name}` is no text of at most {most} characters")
    return value
