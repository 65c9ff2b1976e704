"""What a request is to the limits of rate: by its method and path alone, before anything looks into it."""

import re
from enum import StrEnum

API = "/api/"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_SQL = re.compile(r"/branches/[^/]+/(schema|compare_schema|sql|query)(/|$)")
_REVEAL = re.compile(r"/projects/[^/]+/(connection_uri|branches/[^/]+/roles/[^/]+/(reveal_password|reset_password))$")
_KEYS = re.compile(r"/(api_keys|organizations/[^/]+/invitations)$")
_POLL = re.compile(r"/api/v2/projects/[^/]+/operations(/[^/]+)?")
# Identity providers send forms there, as OpenID Connect has it. What counts is a signed token, and no cookie.
_FORM = re.compile(r"/api/v2/auth/oidc/[^/]+/backchannel-logout")


class Kind(StrEnum):
    """`STRANGER`: without a key that is known to be right."""

    READ = "read"
    CHANGE = "change"
    REVEAL = "reveal"
    SQL = "sql"
    STRANGER = "stranger"


# As the answer to one request too many calls them.
WORDS = {
    Kind.READ: "reads",
    Kind.CHANGE: "changes",
    Kind.REVEAL: "requests that show or make a secret",
    Kind.SQL: "requests that run SQL or a dump",
    Kind.STRANGER: "requests without a key that is known to be right",
}


def is_poll(method: str, path: str) -> bool:
    """Whether the request asks how operations are. Clients ask that in a loop until something is done, and one that
    is told to wait would not learn of a failure; it is never limited for whoever has a key."""
    return method in SAFE_METHODS and _POLL.fullmatch(path) is not None


def takes_form(path: str) -> bool:
    """Whether the body of a request to this path is a form, and not JSON."""
    return _FORM.fullmatch(path) is not None


def kind_of(method: str, path: str) -> Kind:
    """Of a request below `API`. The path is decoded, as routes see it."""
    if _SQL.search(path):
        return Kind.SQL
    if _REVEAL.search(path) or (method == "POST" and _KEYS.search(path)):
        return Kind.REVEAL
    return Kind.READ if method in SAFE_METHODS else Kind.CHANGE
