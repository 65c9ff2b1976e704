"""Signing in by an identity provider, and out again."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi import status as http
from fastapi.responses import RedirectResponse

from weir.authz.principal import SESSION_COOKIE, CurrentPrincipal, address_of
from weir.config import get_settings
from weir.db import Database, Session, release
from weir.errors import (
    BadRequestError,
    CodeRequiredError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TooManyAttemptsError,
    UnauthorizedError,
    UnavailableError,
    WeirError,
    request_id_of,
    responses,
)
from weir.identity import audit
from weir.identity.cookies import is_tls, lifetime, public_url, set_cookie
from weir.identity.repository import IdentityRepository
from weir.kit.clock import now
from weir.kit.crypto import SecretBox, hash_token
from weir.oidc import flow, links, pages, service
from weir.oidc.flow import Begun
from weir.oidc.provider import Provider, plain
from weir.oidc.schemas import (
    AuthProvider,
    AuthProviders,
    ProviderLink,
    ProviderLinkBegun,
    ProviderLinkEnd,
    ProviderLinks,
    ProviderLogout,
)
from weir.oidc.service import House
from weir.people.proof import own_of
from weir.people.sign_in import Came
from weir.people.sign_in_schemas import PasswordProof

router = APIRouter(tags=["auth"], responses=responses(BadRequestError))
_API = "/api/v2"
_MOST_FORM = 64 * 1024
_FLOW_COOKIE = "weir_sign_in"
_ASKS_AGAIN = responses(
    UnauthorizedError, CodeRequiredError, ForbiddenError, NotFoundError, ConflictError, TooManyAttemptsError
)
_REDIRECTS = {
    **responses(BadRequestError, UnauthorizedError, ForbiddenError, NotFoundError, ConflictError, UnavailableError),
    http.HTTP_303_SEE_OTHER: {"description": "Where the browser goes"},
}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {"logout_token": {"type": "string"}},
                    "required": ["logout_token"],
                }
            }
        },
    }
}


async def _providers(request: Request) -> Mapping[str, Provider]:
    return request.app.state.providers


Providers = Annotated[Mapping[str, Provider], Depends(_providers)]
ProviderId = Annotated[str, Path(max_length=31)]
# Of what a provider sends by the browser.
_Sent = Annotated[str | None, Query(max_length=4096)]


def _provider(providers: Mapping[str, Provider], provider_id: str) -> Provider:
    found = providers.get(provider_id)
    if found is None:
        raise NotFoundError.of("identity provider", provider_id)
    return found


def _house(request: Request) -> House:
    database: Database = request.app.state.database
    return House(database, SecretBox.open(get_settings().secrets_dir), lifetime())


def _came(request: Request) -> Came:
    return Came(address_of(request), request_id_of(request), now())


def _flow_cookie(request: Request) -> str:
    """With the prefix, browsers take it from this host alone, and over TLS: none of a neighbour's plants one."""
    return f"__Host-{_FLOW_COOKIE}" if is_tls(request) else _FLOW_COOKIE


def _set_flow_cookie(request: Request, response: Response, value: str, seconds: int) -> None:
    """Lax: the browser comes back from another site, by a link."""
    response.set_cookie(
        _flow_cookie(request), value, max_age=seconds, httponly=True, samesite="lax", secure=is_tls(request), path="/"
    )


def _redirect_uri(request: Request, provider_id: str) -> str:
    return f"{public_url(request)}{_API}/auth/oidc/{provider_id}/callback"


@router.get("/auth/providers")
async def list_auth_providers(providers: Providers) -> AuthProviders:
    """The identity providers that people may sign in by, as the installation's settings name them."""
    found = [
        AuthProvider(id=ident, name=each.settings.name, start_url=f"{_API}/auth/oidc/{ident}/start")
        for ident, each in providers.items()
    ]
    return AuthProviders(providers=found)


@router.get(
    "/auth/oidc/{provider_id}/start",
    status_code=http.HTTP_303_SEE_OTHER,
    response_class=RedirectResponse,
    responses=_REDIRECTS,
)
async def begin_provider_sign_in(
    provider_id: ProviderId,
    request: Request,
    providers: Providers,
    next_path: Annotated[str, Query(alias="next", max_length=1024)] = "/",
) -> Response:
    """For a browser: sends it to the provider, with a cookie that its answer is bound to. `next`: the page of the
    console that it goes to in the end."""
    try:
        provider = _provider(providers, provider_id)
        begun = flow.begin(provider_id, _redirect_uri(request, provider_id), flow.checked_next(next_path), now())
        where = flow.authorization_url((await provider.endpoints()).authorization, provider.settings, begun)
    except WeirError as error:
        return pages.failure(request, error)
    response = RedirectResponse(where, http.HTTP_303_SEE_OTHER)
    box = SecretBox.open(get_settings().secrets_dir)
    _set_flow_cookie(request, response, flow.seal(box, begun), int(flow.LASTS.total_seconds()))
    return response


@router.get(
    "/auth/oidc/{provider_id}/callback",
    status_code=http.HTTP_303_SEE_OTHER,
    response_class=RedirectResponse,
    responses=_REDIRECTS,
)
async def finish_provider_sign_in(
    provider_id: ProviderId,
    request: Request,
    providers: Providers,
    code: _Sent = None,
    state: _Sent = None,
    iss: _Sent = None,
    error: _Sent = None,
) -> Response:
    """For a browser that the provider sends back: opens a session and sets its cookie, or makes the link that
    `POST /auth/oidc/{provider_id}/link` began, and goes on to the page that it began with."""
    begun: Begun | None = None
    try:
        provider = _provider(providers, provider_id)
        begun = _begun(request, provider_id, state)
        await _check_answer(provider, iss, error)
        if not code:
            raise BadRequestError(f"{provider.settings.name} sent no code; begin again")
        before, token = request.cookies.get(SESSION_COOKIE), None
        if begun.link_in is None:
            token = await service.sign_in(_house(request), provider, begun, code, _came(request), before)
        else:
            await links.make(_house(request), provider, begun, code, _came(request), before)
    except WeirError as failed:
        linking = begun is not None and begun.link_in is not None
        response = pages.failure(request, failed, "Linking" if linking else "Signing in")
    else:
        response = RedirectResponse(flow.checked_next(begun.next_path), http.HTTP_303_SEE_OTHER)
        if token is not None:
            set_cookie(request, response, token)
    if begun is not None:
        _set_flow_cookie(request, response, "", 0)
    return response


def _begun(request: Request, provider_id: str, state: str | None) -> Begun:
    """What the browser began with. Raises BadRequestError when this is no answer to it."""
    box = SecretBox.open(get_settings().secrets_dir)
    begun = flow.unseal(box, request.cookies.get(_flow_cookie(request)), now())
    if begun is None:
        raise BadRequestError(
            f"this browser has begun no sign-in in the last {flow.LASTS.total_seconds() / 60:g} minutes, or keeps no "
            "cookies; begin again"
        )
    if not state or not flow.is_state(begun, state) or begun.provider_id != provider_id:
        raise BadRequestError(
            "this answer is to another sign-in than the last one that this browser began; begin again"
        )
    return begun


async def _check_answer(provider: Provider, iss: str | None, error: str | None) -> None:
    """Raises BadRequestError for an answer of another provider (RFC 9207), UnauthorizedError for a refusal."""
    issuer = provider.settings.issuer
    if iss is None:
        if (await provider.endpoints()).names_itself:
            raise BadRequestError(
                f"the answer does not say that it is of {issuer}, as that provider's do; begin again"
            )
    elif iss != issuer:
        raise BadRequestError(f"the answer is of {plain(iss)!r}, and {issuer} was asked; begin again")
    if error is not None:
        raise UnauthorizedError(f"{provider.settings.name} did not sign you in: {plain(error)}; begin again")


@router.post(
    "/auth/oidc/{provider_id}/backchannel-logout",
    openapi_extra=_FORM,
    responses=responses(NotFoundError, UnavailableError),
)
async def end_sessions_by_provider(provider_id: ProviderId, request: Request, providers: Providers) -> None:
    """For a provider: ends the sessions that a signed `logout_token` names, by session there or by person."""
    provider = _provider(providers, provider_id)
    body = await request.body()
    given: list[str] = []
    if len(body) <= _MOST_FORM and body.isascii():
        given = parse_qs(body.decode("ascii"), max_num_fields=20).get("logout_token", [])
    if len(given) != 1:
        raise BadRequestError("send one `logout_token` as a form")
    await service.end_by_provider(_house(request), provider, given[0], _came(request))


@router.post("/auth/oidc/logout", responses=responses(UnauthorizedError))
async def end_provider_session(
    request: Request, response: Response, principal: CurrentPrincipal, session: Session, providers: Providers
) -> ProviderLogout:
    """Sign out of this session, and learn where the browser may end the one at the provider that opened it."""
    token = request.cookies.get(SESSION_COOKIE)
    if principal.session_id is None or token is None:
        raise BadRequestError("this ends a session of the console, and the request is none of a session's")
    kept = await service.provider_session(session, principal.session_id)
    url: str | None = None
    if kept is not None:
        await release(session)
        provider = next((each for each in providers.values() if each.settings.issuer == kept.issuer), None)
        box = SecretBox.open(get_settings().secrets_dir)
        url = await service.logout_url(provider, kept, box, f"{public_url(request)}/")
    what = f"user/{principal.name}" if principal.is_person else f"account/{principal.name}"
    audit.record(session, principal, "session.delete", what)
    await IdentityRepository(session).end_session(hash_token(token))
    response.delete_cookie(SESSION_COOKIE, path="/")
    return ProviderLogout(url=url)


@router.get("/auth/links", responses=responses(UnauthorizedError, ForbiddenError))
async def list_provider_links(principal: CurrentPrincipal, session: Session, providers: Providers) -> ProviderLinks:
    """By whom at which identity providers the caller signs in, the oldest link first."""
    found = [] if principal.user_id is None else await links.links_of(session, principal.user_id)
    known = {each.settings.issuer: (ident, each.settings.name) for ident, each in providers.items()}
    shown: list[ProviderLink] = []
    for row in found:
        ident, name = known.get(row.issuer, (None, None))
        shown.append(
            ProviderLink(
                issuer=row.issuer,
                subject=row.subject,
                provider_id=ident,
                name=name,
                email=row.email,
                linked_at=row.linked_at,
            )
        )
    return ProviderLinks(links=shown)


@router.post("/auth/oidc/{provider_id}/link", responses={**_ASKS_AGAIN, **responses(UnavailableError)})
async def begin_provider_link(
    provider_id: ProviderId,
    body: PasswordProof,
    request: Request,
    response: Response,
    principal: CurrentPrincipal,
    session: Session,
    providers: Providers,
) -> ProviderLinkBegun:
    """Begins to link the caller with whoever signs in at the provider next, in this browser and this session. Wants
    password and code, as signing in does. The browser then goes to `url`, and comes back to the page `/account`."""
    await release(session)
    provider = _provider(providers, provider_id)
    # Before the proof, which uses a code up.
    endpoint = (await provider.endpoints()).authorization
    await links.allow(own_of(request, principal, body), provider.settings)
    begun = flow.begin(provider_id, _redirect_uri(request, provider_id), "/account", now(), principal.session_id)
    box = SecretBox.open(get_settings().secrets_dir)
    _set_flow_cookie(request, response, flow.seal(box, begun), int(flow.LASTS.total_seconds()))
    return ProviderLinkBegun(url=flow.authorization_url(endpoint, provider.settings, begun))


@router.post("/auth/links/end", status_code=http.HTTP_204_NO_CONTENT, responses=_ASKS_AGAIN)
async def end_provider_link(
    body: ProviderLinkEnd, request: Request, principal: CurrentPrincipal, session: Session
) -> None:
    """From now on whoever the provider calls `subject` does not sign in as the caller. Wants password and code, as
    signing in does, so that another way to sign in is left. Sessions that came by the link end, but for this one."""
    await release(session)
    await links.end(own_of(request, principal, body), body.issuer, body.subject, principal.session_id)
