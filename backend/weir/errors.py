"""Errors that a client of the API may see.

Each carries its HTTP status and a stable code; the message says what happened, to what, and what to do.
The body is always `{request_id, code, message}`.
"""

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import exc
from starlette.exceptions import HTTPException

log = structlog.get_logger()


class ErrorBody(BaseModel):
    """The body of every error."""

    request_id: str
    code: str
    message: str


class WeirError(Exception):
    status = 500
    code = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.headers: dict[str, str] = {}


class BadRequestError(WeirError):
    status = 400
    code = "BAD_REQUEST"


class UnauthorizedError(WeirError):
    status = 401
    code = "UNAUTHORIZED"


class CodeRequiredError(UnauthorizedError):
    """The password was right; repeat the request with a code of the second factor."""

    code = "CODE_REQUIRED"


class TooManyAttemptsError(WeirError):
    """Signing in has failed too often; the header `Retry-After` says for how many seconds to wait."""

    status = 429
    code = "TOO_MANY_ATTEMPTS"

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(message)
        self.headers = {"Retry-After": str(seconds)}


class ForbiddenError(WeirError):
    """The caller's role, or the scope of its key, does not reach so far."""

    status = 403
    code = "FORBIDDEN"


class QuotaExceededError(ForbiddenError):
    """A quota is used up; free some of it, or have the installation's operator raise it."""

    code = "QUOTA_EXCEEDED"


class NotFoundError(WeirError):
    status = 404
    code = "NOT_FOUND"

    @classmethod
    def of(cls, kind: str, ident: object) -> "NotFoundError":
        return cls(f"{kind} {ident} does not exist; check the id with the list call of its kind")


class RangeNotKeptError(WeirError):
    """There is nothing of this range of time at this granularity: it is none, or begins before what is kept."""

    status = 406
    code = "NOT_ACCEPTABLE"


class ConflictError(WeirError):
    """The request contradicts what exists; repeating it does not help."""

    status = 409
    code = "CONFLICT"


class UnloggedRowsError(ConflictError):
    """Unlogged tables hold rows that the request would lose; repeat it with `discard_unlogged=true` to lose them."""

    code = "UNLOGGED_ROWS"


class PreconditionFailedError(WeirError):
    status = 412
    code = "PRECONDITION_FAILED"


class RequestTimeoutError(WeirError):
    """The body of the request did not come to its end in time."""

    status = 408
    code = "REQUEST_TIMEOUT"


class TooLargeError(WeirError):
    """The body of the request is larger than the API takes."""

    status = 413
    code = "BODY_TOO_LARGE"


class UnsupportedMediaTypeError(WeirError):
    """The body of the request is no JSON by its `Content-Type`."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"


class MisdirectedError(WeirError):
    """The request's `Host` is no name of this installation."""

    status = 421
    code = "MISDIRECTED_REQUEST"


class HeadersTooLargeError(WeirError):
    """The request has too many headers, or too large ones."""

    status = 431
    code = "HEADERS_TOO_LARGE"


class TooManyRequestsError(WeirError):
    """Too many requests of one kind; nothing was done, and `Retry-After` says when to repeat it."""

    status = 429
    code = "RATE_LIMITED"


class ProjectBusyError(WeirError):
    """Another operation holds what the request is about. Clients repeat the request on 423 and only then."""

    status = 423
    code = "PROJECT_BUSY"


class NotBuiltError(WeirError):
    """Part of the API's shape, but not of this version; refused rather than ignored."""

    status = 400
    code = "NOT_SUPPORTED"


class UnavailableError(WeirError):
    """A program Weir depends on does not answer."""

    status = 503
    code = "DEPENDENCY_UNAVAILABLE"


def responses(*errors: type[WeirError]) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for the errors an operation documents."""
    by_status: dict[int, list[str]] = {}
    for error in errors:
        text = (error.__doc__ or HTTPStatus(error.status).phrase).strip().splitlines()[0]
        by_status.setdefault(error.status, []).append(f"{error.code}: {text}")
    return {status: {"model": ErrorBody, "description": " ".join(text)} for status, text in by_status.items()}


def request_id_of(request: Request) -> str:
    return getattr(request.state, "request_id", "")


def error_response(
    request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    body = ErrorBody(request_id=request_id_of(request), code=code, message=message)
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def describe_validation(error: RequestValidationError) -> str:
    """One line that names each field and what is wrong with it."""
    parts: list[str] = []
    for item in error.errors():
        where = ".".join(str(step) for step in item["loc"][1:]) or str(item["loc"][0])
        source = {"query": "query parameter", "path": "path parameter", "header": "header"}.get(
            str(item["loc"][0]), "field"
        )
        reason = str(item["msg"]).removeprefix("Value error, ")
        parts.append(f"{source} {where}: {reason}")
    return "the request is not valid: " + "; ".join(parts)


def install(app: FastAPI) -> None:
    @app.exception_handler(WeirError)
    async def weir_error(request: Request, error: WeirError) -> JSONResponse:
        return error_response(request, error.status, error.code, error.message, error.headers)

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(request, 400, BadRequestError.code, describe_validation(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        code = HTTPStatus(error.status_code).name
        message = f"{request.method} {request.url.path}: {error.detail}"
        return error_response(request, error.status_code, code, message)

    @app.exception_handler(exc.OperationalError)
    @app.exception_handler(exc.InterfaceError)
    @app.exception_handler(exc.TimeoutError)
    async def database_away(request: Request, error: exc.SQLAlchemyError) -> JSONResponse:
        log.error("database_away", path=request.url.path, error=str(error))
        message = (
            f"{request.method} {request.url.path}: the metadata database did not answer in time; read what the "
            "request was about, since it may have been done, and repeat it"
        )
        return error_response(request, UnavailableError.status, UnavailableError.code, message)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("request_failed", path=request.url.path, exc_info=error)
        message = f"an unexpected error stopped the request; see the API's log for {request_id_of(request)}"
        return error_response(request, 500, WeirError.code, message)
