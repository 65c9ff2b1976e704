"""Serves the built console; paths it routes itself get its index page."""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles

from weir.errors import NotFoundError
from weir.front.headers import PLACEHOLDER, console_policy, new_nonce

_API_PREFIXES = ("/api", "/internal", "/metrics", "/healthz", "/assets")
_NEVER_STALE = {"Cache-Control": "no-cache"}


def install(app: FastAPI, directory: Path) -> None:
    app.mount("/assets", StaticFiles(directory=directory / "assets", check_dir=False), name="assets")
    router = APIRouter(include_in_schema=False)

    @router.get("/{path:path}")
    async def console(request: Request, path: str) -> Response:
        if request.url.path.startswith(_API_PREFIXES):
            raise NotFoundError(f"{request.method} {request.url.path} is not part of this API")
        return _file(directory, path)

    app.include_router(router)


def _file(directory: Path, path: str) -> Response:
    wanted = (directory / path).resolve()
    index = directory / "index.html"
    if path and wanted != index.resolve() and wanted.is_file() and wanted.is_relative_to(directory.resolve()):
        return FileResponse(wanted)
    if index.is_file():
        nonce = new_nonce()
        headers = _NEVER_STALE | {"Content-Security-Policy": console_policy(nonce)}
        return HTMLResponse(index.read_text().replace(PLACEHOLDER, nonce), headers=headers)
    return PlainTextResponse(
        f"The console is not built: {index} is missing. Build it with `make console`. The API is below /api/v2.\n",
        status_code=404,
    )
