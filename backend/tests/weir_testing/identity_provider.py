"""Identity providers for tests: a real one, `oidc-provider` of npm, and a crooked one that signs what it is told."""

import base64
import json
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit
from uuid import uuid4

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from weir.authz.principal import SESSION_COOKIE
from weir.config import Settings
from weir.db import Database
from weir.kit.clock import now
from weir_testing import programs
from weir_testing.fixtures import own_database, running_api
from weir_testing.storage import Server

PACKAGE = Path(__file__).resolve().parents[1] / "oidc_provider"
CLIENT = "weir"
SECRET = "of the client, with a / and a :"
DOMAIN = "example.org"
_KIND = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@dataclass(frozen=True)
class SigningKey:
    """`private`: of cryptography."""

    kid: str
    algorithm: str
    private: Any

    @classmethod
    def make(cls, algorithm: str) -> "SigningKey":
        private: Any
        if algorithm == "RS256":
            private = rsa.generate_private_key(65537, 2048)
        elif algorithm == "ES256":
            private = ec.generate_private_key(ec.SECP256R1())
        else:
            private = ed25519.Ed25519PrivateKey.generate()
        return cls(f"{algorithm}-{uuid4().hex[:8]}", algorithm, private)

    def public(self) -> dict[str, Any]:
        return self._jwk(self.private.public_key())

    def secret(self) -> dict[str, Any]:
        return self._jwk(self.private)

    def _jwk(self, key: Any) -> dict[str, Any]:
        made = json.loads(_KIND[self.algorithm].to_jwk(key))
        return {name: made[name] for name in made if name != "key_ops"} | {
            "kid": self.kid,
            "alg": self.algorithm,
            "use": "sig",
        }

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        return jwt.encode(dict(claims), self.private, algorithm=self.algorithm, headers={"kid": self.kid} | header)


def unsigned(claims: Mapping[str, Any]) -> str:
    """By the algorithm `none`."""
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@dataclass(frozen=True)
class Installation:
    """An API with a database of its own, and people who sign in by providers."""

    url: str
    database: Database
    settings: Settings

    @asynccontextmanager
    async def browser(self, account: str = "") -> AsyncGenerator[httpx.AsyncClient]:
        """One that signs in as this account wherever a provider asks it. It follows no redirect by itself."""
        headers = {"Accept": "text/html", "x-account": account} if account else {"Accept": "text/html"}
        async with httpx.AsyncClient(base_url=f"{self.url}/api/v2", headers=headers, timeout=20) as client:
            yield client

    def is_here(self, where: str) -> bool:
        return where.startswith(f"{self.url}/")


@asynccontextmanager
async def installation(postgres_url: str, secret_file: Path, **issuers: str) -> AsyncGenerator[Installation]:
    """`issuers`: of providers, by id. They speak for DOMAIN, and make people members of the organisation `admin`."""
    secret_file.write_text(f"{SECRET}\n")
    variables = {"WEIR_TEMPORAL_ADDRESS": "127.0.0.1:9", "WEIR_OIDC": ",".join(issuers)}
    for ident, issuer in issuers.items():
        variables |= {
            f"WEIR_OIDC_{ident.upper()}_ISSUER": issuer,
            f"WEIR_OIDC_{ident.upper()}_CLIENT_ID": CLIENT,
            f"WEIR_OIDC_{ident.upper()}_CLIENT_SECRET_FILE": str(secret_file),
            f"WEIR_OIDC_{ident.upper()}_ALLOWED_DOMAINS": DOMAIN,
            f"WEIR_OIDC_{ident.upper()}_ORGANIZATION": "admin",
            f"WEIR_OIDC_{ident.upper()}_ROLE": "member",
        }
    async with own_database(postgres_url, **variables) as settings:
        database = Database(settings)
        try:
            async with running_api(settings) as client:
                yield Installation(str(client.base_url).rstrip("/"), database, settings)
        finally:
            await database.close()


class RealProvider:
    """The real one. `start` has it run with these settings, anew where they are others, always on the same port and
    so as the same issuer."""

    def __init__(self, directory: Path) -> None:
        self.port = programs.free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.keys = [SigningKey.make(algorithm) for algorithm in ("RS256", "ES256", "EdDSA")]
        self.accounts: dict[str, dict[str, Any]] = {}
        self._directory = directory
        self._running = ExitStack()
        self._started: str = ""

    def account(self, email: str, **claims: Any) -> str:
        """The id of a new account."""
        ident = f"account-{uuid4().hex[:12]}"
        self.change(ident, **{"email": email, "email_verified": True, "name": f"Name of {ident}"} | claims)
        return ident

    def change(self, ident: str, **claims: Any) -> None:
        """Holds at once: the provider reads the file at each sign-in."""
        self.accounts[ident] = self.accounts.get(ident, {}) | claims
        file = self._directory / "accounts.json"
        file.with_suffix(".new").write_text(json.dumps(self.accounts))
        file.with_suffix(".new").replace(file)

    def start(self, url: str, *, algorithm: str = "RS256", conform: bool = True) -> None:
        """`url`: of the installation. `conform`: claims of the person are told by another request, not in the
        id_token."""
        if not (PACKAGE / "node_modules").is_dir():
            raise RuntimeError(f"{PACKAGE} has no node_modules; `make setup` installs them")
        oidc = f"{url}/api/v2/auth/oidc/corp"
        client = {
            "client_id": CLIENT,
            "client_secret": SECRET,
            "id_token_signed_response_alg": algorithm,
            "redirect_uris": [f"{oidc}/callback"],
            "post_logout_redirect_uris": [f"{url}/"],
            "backchannel_logout_uri": f"{oidc}/backchannel-logout",
            "backchannel_logout_session_required": True,
        }
        content = json.dumps(
            {
                "port": self.port,
                "accounts": str(self._directory / "accounts.json"),
                "clients": [client],
                "jwks": {"keys": [key.secret() for key in self.keys]},
                "conform": conform,
            }
        )
        if content == self._started:
            return
        self.stop()
        config = self._directory / "provider.json"
        config.write_text(content)
        command = ["node", str(PACKAGE / "server.mjs"), str(config)]
        check = f"{self.issuer}/.well-known/openid-configuration"
        self._running.enter_context(programs.program(command, self._directory / "provider.log", check))
        self._started = content

    def stop(self) -> None:
        self._running.close()
        self._started = ""


async def answer_of(here: Installation, client: httpx.AsyncClient, next_path: str = "/projects") -> str:
    """Begins to sign in, and goes as far as the provider's answer: the URL of it, which nobody has opened."""
    response = await client.get("/auth/oidc/corp/start", params={"next": next_path})
    assert response.status_code == 303, response.text
    where = response.headers["location"]
    while not here.is_here(where):
        response = await client.get(where)
        assert response.status_code in {302, 303}, f"{where}: {response.status_code} {response.text}"
        where = urljoin(where, response.headers["location"])
    return where


async def sign_in(here: Installation, client: httpx.AsyncClient, expect: int = 303) -> httpx.Response:
    response = await client.get(await answer_of(here, client))
    assert response.status_code == expect, response.text
    assert (SESSION_COOKIE in response.cookies) is (expect == 303)
    return response


@dataclass
class CrookedProvider:
    """Has one's own way in everything: `token` makes what the token endpoint answers with, of the claims that would
    be right; `discovery` is laid over the right document. `asked` has what was asked of it, by path."""

    port: int = field(default_factory=programs.free_port)
    key: SigningKey = field(default_factory=lambda: SigningKey.make("ES256"))
    subject: str = field(default_factory=lambda: f"subject-{uuid4().hex[:12]}")
    email: str = ""
    token: Any = None
    discovery: dict[str, Any] = field(default_factory=dict[str, Any])
    userinfo: dict[str, Any] | None = None
    status: int = 200
    asked: list[str] = field(default_factory=list[str])
    forms: list[dict[str, list[str]]] = field(default_factory=list[dict[str, list[str]]])
    nonce: str = ""

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        """As right as it began, with another person."""
        self.subject, self.email, self.token, self.userinfo = f"subject-{uuid4().hex[:12]}", "", None, None
        self.status = 200
        self.asked.clear()
        self.forms.clear()

    def claims(self, **others: Any) -> dict[str, Any]:
        """Of a right id_token; None leaves a claim out."""
        at = now()
        right = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": self.subject,
            "exp": _seconds(at + timedelta(minutes=5)),
            "iat": _seconds(at),
            "nonce": self.nonce,
            "email": self.email or f"{self.subject}@{DOMAIN}",
            "email_verified": True,
        }
        return {name: value for name, value in (right | others).items() if value is not None}

    def logout_claims(self, **others: Any) -> dict[str, Any]:
        at = now()
        right = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": self.subject,
            "exp": _seconds(at + timedelta(minutes=2)),
            "iat": _seconds(at),
            "jti": uuid4().hex,
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
        }
        return {name: value for name, value in (right | others).items() if value is not None}

    def app(self) -> Starlette:
        async def discovery(request: Request) -> Response:
            self.asked.append(request.url.path)
            right = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
            }
            return JSONResponse(right | self.discovery)

        async def jwks(request: Request) -> Response:
            self.asked.append(request.url.path)
            return JSONResponse({"keys": [self.key.public()]})

        async def token(request: Request) -> Response:
            self.asked.append(request.url.path)
            self.forms.append(parse_qs((await request.body()).decode()))
            made = self.key.sign(self.claims()) if self.token is None else self.token(self)
            body = {"access_token": "of-nobody", "token_type": "Bearer", "id_token": made}
            return JSONResponse(body, self.status, {"Location": f"{self.issuer}/elsewhere"})

        async def userinfo(request: Request) -> Response:
            self.asked.append(request.url.path)
            return JSONResponse(self.userinfo or {}, 200 if self.userinfo else 404)

        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", discovery),
                Route("/jwks", jwks),
                Route("/token", token, methods=["POST"]),
                Route("/userinfo", userinfo),
            ]
        )

    async def begin(self, client: httpx.AsyncClient, ident: str) -> dict[str, str]:
        """Begins to sign in; what this provider would answer with. The nonce is noted."""
        response = await client.get(f"/auth/oidc/{ident}/start")
        assert response.status_code == 303, response.text
        asked = {name: value for name, (value,) in parse_qs(urlsplit(response.headers["location"]).query).items()}
        assert asked["code_challenge_method"] == "S256"
        self.nonce = asked["nonce"]
        return {"code": "a-code", "state": asked["state"]}

    async def sign_in(self, client: httpx.AsyncClient, ident: str, **others: str) -> httpx.Response:
        """`others`: parameters of the answer that are not as they should be."""
        return await client.get(f"/auth/oidc/{ident}/callback", params=await self.begin(client, ident) | others)


@contextmanager
def crooked(**discovery: Any) -> Generator[CrookedProvider]:
    provider = CrookedProvider(discovery=discovery)
    with Server(provider.app(), provider.port):
        yield provider


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def own_folder(scratch: Path) -> Path:
    """Below the folder of this run of the tests."""
    folder = scratch / f"provider-{os.urandom(4).hex()}"
    folder.mkdir()
    return folder
