"""What an operator says of the API's front, checked once as the settings are read.

Each function takes the text of one setting and raises ValueError that says what it should be.
"""

import re
from ipaddress import ip_address

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_MOST_NAME = 253


def normal_host(host: str) -> str:
    """A host as names are compared: small letters, no dot at the end, addresses in their usual form."""
    plain = host.lower().removesuffix(".")
    try:
        return str(ip_address(plain))
    except ValueError:
        return plain


def host_names(written: str) -> frozenset[str]:
    """Names and addresses, comma-separated, without scheme and port."""
    found: set[str] = set()
    for part in (word.strip() for word in written.split(",")):
        if not part:
            continue
        bracketed = part.startswith("[") and part.endswith("]")
        name = normal_host(part[1:-1] if bracketed else part)
        if ":" not in name and (len(name) > _MOST_NAME or not _NAME.fullmatch(name)):
            raise ValueError(
                f"{part!r} is no host: write names or addresses without scheme and port, such as weir.example.org"
            )
        if ":" in name and not is_address(name):
            raise ValueError(f"{part!r} is no host: leave its port out")
        found.add(name)
    return frozenset(found)


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
