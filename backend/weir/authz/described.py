"""What the OpenAPI document says of who may come in: by a key or by the console's session, wherever not anybody may.

FastAPI would find that out by dependencies that read both headers at each request; `weir.authz.principal.guard` reads
them anyway.
"""

from typing import Any

from weir.authz.principal import SESSION_COOKIE
from weir.authz.rules import RULES, Reach

_SCHEMES: dict[str, dict[str, str]] = {
    "HTTPBearer": {"type": "http", "description": "An API key", "scheme": "bearer"},
    "APIKeyCookie": {
        "type": "apiKey",
        "description": "The console's session",
        "in": "cookie",
        "name": SESSION_COOKIE,
    },
}


def describe(schema: dict[str, Any]) -> None:
    """Adds to a document the ways to come in, and to each operation whether it asks for one."""
    for methods in schema["paths"].values():
        for method, operation in methods.items():
            if RULES[operation["operationId"]].reach is Reach.OPEN:
                continue
            said: dict[str, Any] = {}
            for name, value in operation.items():
                said[name] = value
                if name == "operationId":
                    said["security"] = [{scheme: []} for scheme in _SCHEMES]
            methods[method] = said
    schema["components"]["securitySchemes"] = _SCHEMES
