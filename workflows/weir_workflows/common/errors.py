"""How activities fail.

A plain exception is repeated under the activity's retry policy. `refused` ends the activity at once: the
other side understood the request and will not do it, so repeating it cannot help.
"""

from temporalio.exceptions import ActivityError, ApplicationError

from weir.clients.http import RemoteError

REFUSED = "Refused"
MISSING = "Missing"


def refused(message: str) -> ApplicationError:
    return ApplicationError(message, type=REFUSED, non_retryable=True)


def missing(kind: str, ident: str) -> ApplicationError:
    return ApplicationError(f"{kind} {ident} is not in the database", type=MISSING, non_retryable=True)


def from_remote(error: RemoteError) -> Exception:
    """The same error if it is worth repeating, a refusal if not."""
    return error if error.retryable else refused(str(error))


def reason_of(error: BaseException) -> str:
    """The innermost message: what happened, without Temporal's wrapping."""
    while isinstance(error, ActivityError) and error.cause is not None:
        error = error.cause
    if isinstance(error, ApplicationError):
        return error.message
    return str(error) or type(error).__name__
