"""Headers that tell browsers what pages and answers of this installation may not be used for.

Answers of the API are data: nothing may be loaded by them, and no page may frame them. The console's page may load
its own files and ask its own API. Scripts come from files alone. Style sheets come from files, and from elements that
carry the answer's nonce: the library of the dialogs makes one that keeps the page behind them from scrolling. Styles
that scripts set on elements are not inline styles to a browser.
"""

import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Where the console's page has its nonce; the build leaves it as it is.
PLACEHOLDER = "WEIR_CSP_NONCE"
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_YEAR_SECONDS = 31_536_000
_REFUSED_FEATURES = (
    "accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "magnetometer", "microphone", "midi",
    "payment", "publickey-credentials-get", "screen-wake-lock", "serial", "usb", "xr-spatial-tracking",
)  # fmt: skip
_ALWAYS = {
    "content-security-policy": _NOTHING,
    "x-content-type-options": "nosniff",
    # What requests to other sites say of where they come from: nothing. Requests to this one keep their Origin.
    "referrer-policy": "same-origin",
    "permissions-policy": ", ".join(f"{feature}=()" for feature in _REFUSED_FEATURES),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # For browsers that do not know frame-ancestors.
    "x-frame-options": "DENY",
}


def new_nonce() -> str:
    return secrets.token_urlsafe(18)


def console_policy(nonce: str) -> str:
    """The Content-Security-Policy of the console's page."""
    return (
        "default-src 'none'; script-src 'self'; "
        f"style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


class SecurityHeaders:
    """Around everything, so that answers to unexpected errors have them too. What an answer has set stays."""

    def __init__(self, app: ASGIApp, *, behind_tls: bool) -> None:
        self._app = app
        headers = dict(_ALWAYS)
        if behind_tls:
            headers["strict-transport-security"] = f"max-age={_YEAR_SECONDS}"
        # As ASGI has them, so that no answer has to make them anew.
        self._headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        # Passwords and keys are among what is data.
        self._headers_of_data = [*self._headers, (b"cache-control", b"no-store")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_data = scope["path"].startswith(("/api", "/internal"))
        wanted = self._headers_of_data if is_data else self._headers

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                message["headers"] = [*given, *(header for header in wanted if header[0] not in names)]
            await send(message)

        await self._app(scope, receive, with_headers)
