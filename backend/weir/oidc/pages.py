"""What a browser is shown where signing in by a provider, or linking with one, fails: it came by a link, so no script
reads an answer."""

from html import escape

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from weir.errors import WeirError, error_response

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{what} has failed</title></head>
<body>
<h1>{what} has failed</h1>
<p>{message}</p>
<p><a href="/">To the console</a></p>
<p><small>Request {request_id}</small></p>
</body>
</html>
"""


def failure(request: Request, error: WeirError, what: str = "Signing in") -> Response:
    """A page for a browser, and for programs the body that every error has."""
    if "text/html" not in request.headers.get("accept", ""):
        return error_response(request, error.status, error.code, error.message, error.headers)
    request_id = getattr(request.state, "request_id", "")
    content = _PAGE.format(what=escape(what), message=escape(error.message), request_id=escape(request_id))
    return HTMLResponse(content, status_code=error.status, headers=error.headers)
