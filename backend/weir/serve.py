"""`python -m weir.serve`: the API, answered by one process or by several that share its port.

Several take connections from one listening socket, as the kernel hands them out. Each has its own connections to the
metadata database, its own rates (`weir.front.limiter`) and its own dispatcher, which takes operations with
`SKIP LOCKED`; the audit log is sealed by whichever has the lock. Their metrics are answered together, from files that
each keeps in a folder of this start (`weir.kit.metrics`). A process that ends is replaced.
"""

import argparse
import gc
import os
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI
from sqlalchemy.orm import configure_mappers

from weir.config import get_settings
from weir.kit.http import SERVER_KEEP_ALIVE_SECONDS, SERVER_PROTOCOL
from weir.kit.metrics import FOLDER

GRACE_SECONDS = 5
# New objects that are not freed by themselves, and rounds over younger objects, after which Python looks for cycles.
# By itself it does after 700, 10 and 10.
_NEW_OBJECTS, _ROUNDS, _OLD_ROUNDS = 20_000, 20, 20


def application() -> FastAPI:
    """The API as a process of its own serves it. What is there before the first request stays to the end, modules,
    routes and models, a few hundred thousand objects: the collector of cycles is told to leave them out."""
    from weir.main import app  # noqa: PLC0415  it reads the settings, and this module is that of the command too

    configure_mappers()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _ROUNDS, _OLD_ROUNDS)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m weir.serve", description="Serves Weir's API and console.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    processes = get_settings().api_processes
    with ExitStack() as stack:
        if processes > 1:
            os.environ[FOLDER] = stack.enter_context(TemporaryDirectory(prefix="weir-api-metrics-"))
        uvicorn.run(
            "weir.serve:application",
            factory=True,
            host=arguments.host,
            port=arguments.port,
            workers=processes,
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=SERVER_KEEP_ALIVE_SECONDS,
            http=SERVER_PROTOCOL,
        )


if __name__ == "__main__":
    main()
