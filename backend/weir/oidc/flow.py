"""One sign-in on its way: what a browser carries in a cookie while the person is at the provider.

The cookie is sealed with the installation's key. It binds the answer to the browser that began: `state` comes back by
the URL and has to be the cookie's, the code is of use with the cookie's `verifier` alone (PKCE), and the id_token has
to have the cookie's `nonce`. Nothing of it is stored, so that nobody fills the database by beginning.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from weir.errors import BadRequestError
from weir.kit.crypto import SecretBox
from weir.oidc.settings import ProviderSettings

# From beginning to the provider's answer.
LASTS = timedelta(minutes=10)
# So that nothing else that is sealed with the same key passes for one.
_USE = "oidc-sign-in"
# A page of this console: one slash, and neither a second one nor what browsers take for one.
_NEXT = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,1023}")


@dataclass(frozen=True)
class Begun:
    """`began_at`: seconds since the Unix epoch. `next_path`: the page that the browser goes to in the end. `link_in`:
    id of the session whose person is to be linked with whoever the provider names; None where somebody signs in."""

    provider_id: str
    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    next_path: str
    began_at: int
    link_in: str | None = None


def begin(provider_id: str, redirect_uri: str, next_path: str, at: datetime, link_in: UUID | None = None) -> Begun:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    began_at, linking = int(at.timestamp()), None if link_in is None else str(link_in)
    return Begun(provider_id, state, nonce, verifier, redirect_uri, next_path, began_at, linking)


def checked_next(text: str) -> str:
    """Raises BadRequestError for what is no page of this console."""
    if not _NEXT.fullmatch(text) or text.startswith("/api/"):
        raise BadRequestError("`next` has to be the path of a page of this console, such as /projects; leave it out")
    return text


def seal(box: SecretBox, begun: Begun) -> str:
    return box.seal(json.dumps({"use": _USE} | asdict(begun))).decode()


def unseal(box: SecretBox, sealed: str | None, at: datetime) -> Begun | None:
    """None for what is no such cookie of this installation, or one that is over."""
    try:
        content = json.loads(box.unseal((sealed or "").encode()))
        if content.pop("use", None) != _USE:
            return None
        begun = Begun(**content)
    except (ValueError, TypeError, AttributeError):
        return None
    began = begun.began_at
    return begun if began <= at.timestamp() + 1 and at.timestamp() < began + LASTS.total_seconds() else None


def is_state(begun: Begun, given: str) -> bool:
    return hmac.compare_digest(begun.state.encode(), given.encode())


def authorization_url(endpoint: str, settings: ProviderSettings, begun: Begun) -> str:
    """Where the person is asked who they are; for a link even where the browser is signed in there, perhaps as
    somebody who used it before."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).decode().rstrip("=")
    return with_query(
        endpoint,
        {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": begun.redirect_uri,
            "scope": " ".join(settings.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        | ({} if begun.link_in is None else {"prompt": "login"}),
    )


def with_query(endpoint: str, parameters: dict[str, str]) -> str:
    """The endpoint's own query stays."""
    plain = endpoint.partition("#")[0]
    return f"{plain}{'&' if urlsplit(plain).query else '?'}{urlencode(parameters)}"
