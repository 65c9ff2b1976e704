"""The cookie of a console session."""

from dataclasses import dataclass
from datetime import timedelta

from fastapi import Request, Response

from weir.authz.principal import SESSION_COOKIE, idle
from weir.config import get_settings


@dataclass(frozen=True)
class Lifetime:
    """Of sessions: from signing in, and without a request."""

    most: timedelta
    idle: timedelta


def lifetime() -> Lifetime:
    return Lifetime(timedelta(hours=get_settings().session_hours), idle())


def set_cookie(request: Request, response: Response, token: str) -> None:
    """Of no use to scripts, to other sites' requests that change something, and, over TLS, to who reads along."""
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=get_settings().session_hours * 3600,
        httponly=True,
        samesite="lax",
        secure=is_tls(request),
        path="/",
    )


def is_tls(request: Request) -> bool:
    """Whether the browser asks by TLS, as far as this program and its settings know."""
    return get_settings().behind_tls or request.url.scheme == "https"


def public_url(request: Request) -> str:
    """Of this installation, as the browser has it, without a slash at the end. The gate has found the host to be one
    of the installation's names."""
    return f"{'https' if is_tls(request) else 'http'}://{request.headers['host']}"
