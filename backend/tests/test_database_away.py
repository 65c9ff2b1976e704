"""A metadata database that is away is no unexpected error: the answer says so, and that it may be asked again."""

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

from weir import errors

NOBODY = "postgresql+psycopg://weir@127.0.0.1:1/weir"


async def test_a_database_that_does_not_answer_is_a_503() -> None:
    app = FastAPI()
    errors.install(app)

    @app.get("/thing")
    async def thing() -> None:
        async with create_async_engine(NOBODY).connect():
            pytest.fail("somebody listens on port 1")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weir") as client:
        answer = await client.get("/thing")
    assert (answer.status_code, answer.json()["code"]) == (503, "DEPENDENCY_UNAVAILABLE")
    assert "the metadata database did not answer" in answer.json()["message"]
