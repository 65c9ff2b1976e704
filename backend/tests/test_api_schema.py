"""Whatever is sent to the API, it answers as its OpenAPI description says: with no status, no body and no media type
that is not in it, and never with a failure of its own (5xx).

What is sent is made of the description by schemathesis, with a fixed seed. `make test-api-schema` sends more: the
bounds of each field one by one, more of what is random, and chains of requests in which one takes what another gave.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from weir_testing.fixtures import Weir, serve

LONG = bool(os.environ.get("WEIR_TEST_LONG"))
SEED = 1
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
HOW = ("--phases", "coverage,fuzzing,stateful", "-n", "20") if LONG else ("--phases", "fuzzing", "-n", "3")
# What would take away from all others what they work with: it is sent last.
ENDING = ("delete_project", "revoke_api_key", "delete_session")
# They run pg_dump, and a compute of these tests is a double without a Postgres: 503 is the right answer then.
OF_POSTGRES = ("get_project_branch_schema", "get_project_branch_schema_comparison")


@dataclass(frozen=True)
class Sent:
    code: int
    out: str
    report: dict[str, Any]


def _configuration(url: str, known: dict[str, list[str]]) -> str:
    """Where to send what, with names of things that exist: made up ones are answered 404 and reach little."""
    lines = [
        f'base-url = "{url}"',
        'headers = { Authorization = "Bearer ${WEIR_API_KEY}" }',
        "[parameters]",
        *(f'"{place}" = {{ dictionary = "known-{place}", probability = 0.8 }}' for place in known),
    ]
    for place, values in known.items():
        lines += [f'[dictionaries."known-{place}"]', f"values = {json.dumps(values)}"]
    return "\n".join(lines) + "\n"


async def _sent(
    url: str, description: str, key: str, folder: Path, known: dict[str, list[str]], *options: str
) -> Sent:
    """Sends requests made of the description; `code` is 0 when every answer was as described."""
    (folder / "schemathesis.toml").write_text(_configuration(url, known))
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", url + description,
        "--checks", CHECKS, "--seed", str(SEED), "--continue-on-failure", "--no-shrink", "--no-color",
        "--generation-database", "none", "--request-timeout", "60", "--report-json-path", str(report), *options,
        cwd=folder,
        env=os.environ | {"WEIR_API_KEY": key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(1500):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = json.loads(report.read_text()) if report.exists() else {}
    return Sent(process.returncode or 0, out.decode(), found)


async def _things(weir: Weir) -> dict[str, list[str]]:
    """A project with two branches and a snapshot, and a rollout that waits for a word, by where their names are
    sent."""
    made = await weir.project(name="schema")
    project, main = made["project"]["id"], made["branch"]
    weir.storage.advance(main["timeline_id"], "0/2000000")
    other = await weir.call("POST", f"/projects/{project}/branches", 201, json={"branch": {"name": "dev"}})
    await weir.finish(other)
    taken = await weir.call("POST", f"/projects/{project}/branches/{main['id']}/snapshot")
    await weir.finish(taken)
    held = await weir.call("POST", "/rollouts", 201, json={"strategy": {"plan_approval_required": True}})
    compute, role, database = made["endpoints"][0]["id"], made["roles"][0]["name"], made["databases"][0]["name"]
    return {
        "path.project_id": [project],
        "path.branch_id": [main["id"], other["branch"]["id"]],
        "path.snapshot_id": [taken["snapshot"]["id"]],
        "path.endpoint_id": [compute],
        "path.compute_id": [compute],
        "path.rollout_id": [held["rollout"]["id"]],
        "path.role_name": [role],
        "path.database_name": [database],
        "query.db_name": [database],
        "query.database_name": [database],
        "query.role_name": [role],
        "query.branch_id": [main["id"]],
    }


async def _end(weir: Weir) -> None:
    """Ends what the requests have begun, which would cost later tests processor time."""
    for rollout in (await weir.call("GET", "/rollouts", params={"limit": 400}))["rollouts"]:
        await weir.client.post(f"/api/v2/rollouts/{rollout['id']}/abort")
    await asyncio.gather(*(weir.delete(project["id"]) for project in await weir.projects()))


@pytest.mark.timeout(3600 if LONG else 600)
async def test_every_answer_is_described(measured: Weir, tmp_path: Path) -> None:
    async with measured.as_account("schema") as mine, measured.as_account("schema-end") as ending:
        try:
            known = await _things(mine)
            last = {"path.project_id": [(await ending.project(name="schema-end"))["project"]["id"]]}
            described = (await mine.client.get("/api/v2/openapi.json")).json()["paths"]
            operations = sum(len(methods) for methods in described.values())
            most = [f"--exclude-operation-id={name}" for name in (*ENDING, *OF_POSTGRES)]
            rest = [f"--include-operation-id={name}" for name in ENDING]
            for of, names, chosen, count in (
                (mine, known, most, operations - len(ENDING) - len(OF_POSTGRES)),
                (ending, last, rest, len(ENDING)),
            ):
                sent = await _sent(of.url, "/api/v2/openapi.json", of.api_key, tmp_path, names, *HOW, *chosen)
                assert sent.code == 0, sent.out
                # It was all of them, and with a key that the API knew.
                assert sent.report["operations"]["tested"] == count, sent.out
            assert (await mine.client.get("/api/v2/users/me")).status_code == 200
        finally:
            await _end(mine)


async def test_an_answer_that_is_not_described_is_found(tmp_path: Path) -> None:
    """What the test above would say of an API that fails, and of one that answers what it has not said."""
    app = FastAPI()

    @app.get("/fine")
    async def fine() -> dict[str, int]:
        return {"n": 1}

    @app.get("/fails")
    async def fails() -> dict[str, int]:
        raise httpx.HTTPError("as a defect would")

    @app.get("/odd", response_model=None)
    async def odd() -> Any:
        return JSONResponse({}, 418)

    server, task, url = await serve(app)
    try:
        sent = await _sent(url, "/openapi.json", "none", tmp_path, {}, "--phases", "fuzzing", "-n", "1")
    finally:
        server.should_exit = True
        await task
    assert sent.code == 1, sent.out
    found = {(failure["code"], *failure["operations"]) for failure in sent.report["failures"]}
    assert found == {("ST101", "GET /fails"), ("ST103", "GET /fails", "GET /odd")}, sent.out
