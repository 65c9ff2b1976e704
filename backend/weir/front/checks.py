"""What can be said of a request by its headers alone. Each function raises the error that the client is answered
with.

A browser is the go-between of most of these attacks: a page of another site has it send requests here, with the
console's cookie, from inside of the network. It says truly which host it asked for and which site asked; it can send
forms, text and files without asking first, and JSON not.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from weir.errors import (
    BadRequestError,
    ForbiddenError,
    HeadersTooLargeError,
    MisdirectedError,
    TooLargeError,
    UnsupportedMediaTypeError,
)
from weir.front.settings import is_address, normal_host
from weir.kit.http import is_loopback

# Of one request, all names and values together. Browsers and proxies stay below 16 KiB.
MOST_HEADER_BYTES = 32 * 1024
MOST_HEADERS = 100
LOOPBACK_NAMES = frozenset({"localhost"})
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SHOWN = 80

Headers = Sequence[tuple[bytes, bytes]]


def values(headers: Headers, name: bytes) -> list[str]:
    """All values of a header, in order; ASGI gives names in small letters."""
    return [value.decode("latin-1") for key, value in headers if key == name]


def shown(text: str) -> str:
    """What a client sent, for a message: short, and without control characters."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def refuse_large_headers(headers: Headers) -> None:
    size = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > MOST_HEADERS or size > MOST_HEADER_BYTES:
        raise HeadersTooLargeError(
            f"the request has {len(headers)} headers of {size} bytes; at most {MOST_HEADERS} of {MOST_HEADER_BYTES} "
            "bytes are taken; leave cookies and headers out that are not for Weir"
        )


def host_of(headers: Headers) -> str:
    """The host that the request was sent to, in its normal form. Raises BadRequestError unless there is one."""
    given = values(headers, b"host")
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if found is None or (found["port"] and int(found["port"]) > 65535):
        raise BadRequestError(
            f"the request has to have one Host header, HOST or HOST:PORT; it has {shown(', '.join(given) or 'none')}"
        )
    if found["v6"] is None:
        return normal_host(found["name"])
    try:
        ip_address(found["v6"])
    except ValueError:
        raise BadRequestError(f"the Host header {shown(given[0])} holds no address") from None
    return normal_host(found["v6"])


def refuse_foreign_host(host: str, allowed: frozenset[str], local: str) -> None:
    """Against DNS rebinding: the name of a foreign site that leads to this machine stays a foreign name. `local`: the
    address that the connection came in at, which no name of a site is."""
    if host in LOOPBACK_NAMES or host in allowed or is_loopback(host):
        return
    if is_address(host) and host == normal_host(local):
        return
    raise MisdirectedError(
        f"{shown(host)} is no name of this installation, as the API knows; if it is one, add it to "
        "WEIR_ALLOWED_HOSTS ([api] allowed_hosts in weir.toml)"
    )


def _without_default_port(netloc: str, scheme: str) -> str:
    return netloc.lower().removesuffix(f":{_DEFAULT_PORTS[scheme]}")


def refuse_foreign_origin(headers: Headers, *, only_https: bool) -> None:
    """For what changes something. Browsers name the site that asked in `Origin`, and newer ones in `Sec-Fetch-Site`
    what it is to this one; programs send neither. The host has been checked. `only_https`: the installation is
    reached by TLS alone, so a page of its name that came without is somebody else's."""
    host = values(headers, b"host")[0]
    for origin in values(headers, b"origin"):
        try:
            parts = urlsplit(origin)
        except ValueError:
            parts = urlsplit("")
        same = (
            parts.scheme in _DEFAULT_PORTS
            and origin.lower() == f"{parts.scheme}://{parts.netloc}".lower()
            and _without_default_port(parts.netloc, parts.scheme) == _without_default_port(host, parts.scheme)
        )
        if not same or (only_https and parts.scheme != "https"):
            raise ForbiddenError(
                f"a page of {shown(origin)} may change nothing here; only the console's own pages may, and programs, "
                "which send no Origin"
            )
    for site in values(headers, b"sec-fetch-site"):
        if site not in {"same-origin", "none"}:
            raise ForbiddenError(
                f"a page that is {shown(site)} to this installation may change nothing here; only the console's own "
                "pages may, and programs, which send no Sec-Fetch-Site"
            )


# What some HTTP clients (Python's aiohttp) call a body that is not there. No form can say it.
_NO_TYPE_KNOWN = "application/octet-stream"


def has_body(headers: Headers) -> bool:
    """Whether the request says that it has a body, of whatever length."""
    lengths = values(headers, b"content-length")
    return bool(values(headers, b"transfer-encoding")) or any(length.strip() != "0" for length in lengths)


def refuse_other_media(headers: Headers, *, form: bool = False) -> None:
    """JSON alone: what forms, and scripts of other sites, can send without asking first is none. `form`: of a route
    that programs send forms to, a form alone."""
    types = values(headers, b"content-type")
    essence, _, parameters = (types[0] if len(types) == 1 else "").partition(";")
    if not has_body(headers) and (not types or essence.strip().lower() == _NO_TYPE_KNOWN):
        return
    known = {"", "charset=utf-8", 'charset="utf-8"'}
    wanted, name = ("application/x-www-form-urlencoded", "a form") if form else ("application/json", "JSON")
    if essence.strip().lower() != wanted or parameters.strip().lower() not in known:
        raise UnsupportedMediaTypeError(
            f"a body has to be {name}, with `Content-Type: {wanted}`; this one is "
            f"{shown(', '.join(types) or 'of no type')}; a request without a body needs no type"
        )


def refuse_announced_size(headers: Headers, most: int) -> None:
    """By what the request says of itself; what it says nothing of is counted as it comes."""
    for length in values(headers, b"content-length"):
        if not length.strip().isdecimal():
            raise BadRequestError(f"Content-Length {shown(length)} is no number of bytes")
        if int(length) > most:
            raise TooLargeError(too_large(most))


def too_large(most: int) -> str:
    return f"a body has at most {most} bytes here (WEIR_MAX_BODY_BYTES); send less"
