"""An identity provider as this process knows it: where its endpoints are, its keys, and what Weir asks it.

Each request ends after SECONDS, follows no redirect, and is refused inside a transaction of the metadata database.
"""

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import httpx

from weir.clients.http import HttpClient
from weir.errors import UnauthorizedError, UnavailableError
from weir.kit.http import is_loopback
from weir.kit.transactions import refuse_requests
from weir.oidc import tokens
from weir.oidc.renewed import Ages, Renewed
from weir.oidc.settings import ProviderSettings, is_safe_url
from weir.oidc.tokens import Key, Signed

SECONDS = 10.0
MOST_BYTES = 1 << 20
# Of endpoints, and of keys: one that the provider has withdrawn counts for an hour at most while it answers.
ENDPOINT_AGES = Ages(good=3600, most=86_400)
KEY_AGES = Ages(good=3600, most=86_400)
_BASIC, _POST = "client_secret_basic", "client_secret_post"


@dataclass(frozen=True)
class Endpoints:
    """What the discovery document says. `basic`: whether the client's secret goes in a header, not in the body.
    `names_itself`: whether answers of the authorization endpoint have `iss` (RFC 9207)."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    end_session: str | None
    basic: bool
    names_itself: bool


@dataclass(frozen=True)
class Exchanged:
    """What a code was exchanged for."""

    id_token: str
    access_token: str | None


class Provider:
    """`clock`: seconds, and never back."""

    def __init__(
        self, settings: ProviderSettings, http: HttpClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self._http = http
        self._endpoints = Renewed(self._discover, ENDPOINT_AGES, clock)
        self._keys = Renewed(self._read_keys, KEY_AGES, clock)

    async def endpoints(self) -> Endpoints:
        """Raises UnavailableError."""
        return await self._endpoints.get()

    async def signed(self, token: str) -> Signed:
        """The token, when a key of the provider has signed it: of the keys that are kept, or, at most once a minute,
        of those that it has now. Raises TokenRefusedError, UnavailableError."""
        keys = await self._keys.get()
        try:
            return tokens.signed(token, keys)
        except tokens.UnknownKeyError:
            newer = await self._keys.after(keys)
            if newer is keys:
                raise
            return tokens.signed(token, newer)

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Exchanged:
        """What the provider gives for a code, which counts once there. Raises UnauthorizedError when it refuses the
        code, UnavailableError."""
        endpoints = await self.endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json"}
        secret = self._secret()
        if secret is not None and endpoints.basic:
            pair = f"{quote_plus(self.settings.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = self.settings.client_id
            if secret is not None:
                form["client_secret"] = secret
        response = await self._request("POST", endpoints.token, headers=headers, data=form)
        body = self._object(response, "POST", endpoints.token)
        if response.status_code == 200:
            id_token, access_token = body.get("id_token"), body.get("access_token")
            if isinstance(id_token, str):
                return Exchanged(id_token, access_token if isinstance(access_token, str) else None)
            raise self._fault("gave no id_token for a code; is `openid` among the scopes of this client there?")
        error = plain(body.get("error"))
        if error == "invalid_grant":
            raise UnauthorizedError(
                f"{self.settings.name} does not take the code of this sign-in (invalid_grant): it was used, is too "
                "old, or is another client's; begin again"
            )
        raise self._fault(
            f"refused to exchange a code: {response.status_code} {error}; check client_id, client_secret_file and "
            "the redirect URI that it knows"
        )

    async def userinfo(self, access_token: str, subject: str) -> Mapping[str, Any]:
        """What the provider tells of the person beside the id_token; nothing where it has no such endpoint, or where
        its answer is of somebody else. Raises UnavailableError."""
        where = (await self.endpoints()).userinfo
        if where is None:
            return {}
        headers = {"Accept": "application/json", "Authorization": f"Bearer {access_token}"}
        response = await self._request("GET", where, headers=headers)
        if response.status_code != 200 or not _is_json(response):
            return {}
        body = self._object(response, "GET", where)
        return body if body.get("sub") == subject else {}

    async def _discover(self) -> Endpoints:
        where = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        body = await self._read(where)
        if body.get("issuer") != self.settings.issuer:
            raise self._fault(
                f"says that it is {plain(body.get('issuer'))}; write the issuer as it does, to the last slash"
            )

        def endpoint(name: str) -> str | None:
            value = body.get(name)
            if value is None:
                return None
            if not isinstance(value, str) or not is_safe_url(value, loopback=self._is_here()):
                raise self._fault(f"has no https URL as its {name}")
            return value

        authorization, token, keys = (
            endpoint(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        )
        if authorization is None or token is None or keys is None:
            raise self._fault("names no authorization_endpoint, token_endpoint or jwks_uri")
        ways = body.get("token_endpoint_auth_methods_supported")
        return Endpoints(
            authorization=authorization,
            token=token,
            keys=keys,
            userinfo=endpoint("userinfo_endpoint"),
            end_session=endpoint("end_session_endpoint"),
            basic=not isinstance(ways, list) or _BASIC in ways or _POST not in ways,
            names_itself=body.get("authorization_response_iss_parameter_supported") is True,
        )

    def _is_here(self) -> bool:
        """Whether the provider is a program of this machine, which may do without TLS."""
        host = httpx.URL(self.settings.issuer).host
        return self.settings.issuer.startswith("http://") and (host == "localhost" or is_loopback(host))

    async def _read_keys(self) -> tuple[Key, ...]:
        where = (await self.endpoints()).keys
        try:
            return tokens.keys_of(await self._read(where))
        except ValueError as error:
            raise self._fault(f"answers at {where}, but {error}") from None

    async def _read(self, where: str) -> Mapping[str, Any]:
        response = await self._request("GET", where, headers={"Accept": "application/json"})
        if response.status_code != 200:
            raise self._fault(f"answered {response.status_code} to GET {where}, where 200 was expected")
        return self._object(response, "GET", where)

    async def _request(self, method: str, where: str, **words: Any) -> httpx.Response:
        refuse_requests(f"identity provider {self.settings.id}", f"{method} {where}")
        try:
            return await self._http.request(method, where, timeout=SECONDS, **words)
        except httpx.HTTPError as error:
            raise self._fault(f"did not answer to {method} {where}: {error or type(error).__name__}") from error

    def _object(self, response: httpx.Response, method: str, where: str) -> Mapping[str, Any]:
        try:
            body = response.json() if len(response.content) <= MOST_BYTES else None
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise self._fault(
                f"answered {response.status_code} to {method} {where}, and no JSON object of usual size"
            )
        return body

    def _secret(self) -> str | None:
        try:
            return self.settings.secret()
        except OSError as error:
            raise UnavailableError(
                f"the client secret for the identity provider {self.settings.id} can't be read: "
                f"{self.settings.client_secret_file}: {error.strerror}"
            ) from None

    def _fault(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"the identity provider {self.settings.id} ({self.settings.issuer}) {what}; try again, or sign in in "
            "another way"
        )


def plain(value: object) -> str:
    """What a provider or a browser sent, for a message: short, and without control characters."""
    text = value if isinstance(value, str) else "nothing"
    return "".join(each for each in text[:200] if each.isprintable())


def _is_json(response: httpx.Response) -> bool:
    """What a provider tells of a person may be a signed token, too, which is not asked for here."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
