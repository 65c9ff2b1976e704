"""What Weir's servers and clients of HTTP have in common.

How long idle HTTP connections are kept. A server that closes one just as a request is sent on it leaves the client
not knowing whether anything was done, so servers wait far longer than our clients do.
"""

import ipaddress

# Of Weir's own clients. httpx keeps one 5 s; browsers repeat what they sent on one that was closed.
CLIENT_KEEP_ALIVE_SECONDS = 15.0
# Of Weir's own servers; uvicorn's 5 s are as long as httpx keeps one.
SERVER_KEEP_ALIVE_SECONDS = 75
# Of the API, for `uvicorn --http`.
SERVER_PROTOCOL = "weir.front.protocol:BoundedHttp"


def bracketed(host: str) -> str:
    """As a host stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone. What is no address is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
