"""Puts the front before an application."""

from typing import Any

from fastapi import FastAPI

from weir import errors
from weir.config import Settings
from weir.front.gate import Bodies, Gate
from weir.front.kinds import SAFE_METHODS, Kind
from weir.front.limiter import RateLimits
from weir.front.rates import Rate

_ANY = (errors.TooManyRequestsError, errors.MisdirectedError, errors.HeadersTooLargeError)
_CHANGES = (
    errors.ForbiddenError,
    errors.QuotaExceededError,
    errors.RequestTimeoutError,
    errors.TooLargeError,
    errors.UnsupportedMediaTypeError,
)


def rates_of(settings: Settings) -> dict[Kind, Rate | None]:
    written = {
        Kind.READ: settings.rate_reads,
        Kind.CHANGE: settings.rate_changes,
        Kind.REVEAL: settings.rate_reveals,
        Kind.SQL: settings.rate_sql,
        Kind.STRANGER: settings.rate_strangers,
    }
    return {kind: Rate.parse(text) for kind, text in written.items()}


def install(app: FastAPI, settings: Settings) -> None:
    """To be called before the middleware that is to see refused requests as well: what is added last is outermost."""
    app.add_middleware(Bodies, most_body=settings.max_body_bytes)
    app.add_middleware(RateLimits, rates=rates_of(settings))
    app.add_middleware(
        Gate,
        allowed_hosts=settings.host_names,
        most_body=settings.max_body_bytes,
        behind_tls=settings.behind_tls,
    )


def describe(schema: dict[str, Any]) -> None:
    """Adds to an OpenAPI document what the front may answer to any request. What an operation says itself stays."""
    for methods in schema["paths"].values():
        for method, operation in methods.items():
            kinds = _ANY if method.upper() in SAFE_METHODS else (*_ANY, *_CHANGES)
            for status, described in errors.responses(*kinds).items():
                content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
                entry: dict[str, Any] = {"description": described["description"], "content": content}
                if status == errors.TooManyRequestsError.status:
                    seconds = {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}}
                    entry["headers"] = {"Retry-After": seconds}
                operation["responses"].setdefault(str(status), entry)
