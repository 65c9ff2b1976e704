"""The HTTP connections of one process, kept open between calls.

A process that looks after thousands of computes makes hundreds of small calls a second, and what a call costs is then
most of its work. aiohttp sends one for a fraction of the CPU that httpx needs; answers and errors stay httpx's, so
that everything that speaks HTTP here is spoken to in one way (`weir.clients.http.HttpClient`).
"""

import ssl
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import httpx
from opentelemetry.instrumentation.aiohttp_client import create_trace_config

from weir.config import get_settings
from weir.kit.http import CLIENT_KEEP_ALIVE_SECONDS
from weir.tls.client import UnprovenError, caller

MAX_CONNECTIONS = 200


class Connections:
    """To be made inside a running event loop, and closed with `aclose`."""

    def __init__(self, *, traced: bool = False, proof: Path | None = None) -> None:
        """`traced`: each call is a span, and carries the trace on. `proof`: the file by which this process proves
        itself to parts that ask for it (`weir.tls.parts`), where that is not what the settings say."""
        self._proof = proof
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=CLIENT_KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[create_trace_config()] if traced else None,
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        params: dict[str, str] | None = None,
        data: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
        extensions: dict[str, Any] | None = None,
    ) -> httpx.Response:
        """Raises httpx.TransportError when there is no answer within `timeout` seconds in all, or none of whoever has
        to prove the name `sni_hostname` of `extensions`."""
        # As httpx writes a query: aiohttp would read it anew.
        address = f"{url}?{urlencode(params)}" if params else url
        limit = aiohttp.ClientTimeout(total=timeout)
        part = None if extensions is None else extensions.get("sni_hostname")
        try:
            proving: dict[str, Any] = {} if part is None else {"ssl": self._context(), "server_hostname": part}
            async with self._session.request(
                method,
                address,
                json=json,
                data=data,
                headers=headers,
                timeout=limit,
                allow_redirects=False,
                **proving,
            ) as answer:
                content = await answer.read()
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {timeout:g} s") from error
        except aiohttp.ClientSSLError as error:
            # Somebody listens, and that is not who was meant.
            raise httpx.NetworkError(f"it is not proven to be {part or 'who it should be'}: {error}") from error
        except aiohttp.ClientConnectorError as error:
            raise httpx.ConnectError(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise httpx.NetworkError(str(error) or type(error).__name__) from error
        kind = answer.headers.get("Content-Type")
        return httpx.Response(
            answer.status, headers=None if kind is None else {"content-type": kind}, content=content
        )

    def _context(self) -> ssl.SSLContext:
        file = self._proof or get_settings().tls_file
        if file is None:
            raise UnprovenError("the address says https, and WEIR_TLS_FILE does not name a certificate for it")
        return caller(file).context()

    async def aclose(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
