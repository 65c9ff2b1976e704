"""Workflows replay: the histories recorded here, and the ones of this session (its name makes this file run last).

When a change breaks the recorded ones, workflows that were begun before it would break in the same way: use
`workflow.patched`. To record new ones: WEIR_RECORD_HISTORIES=1 pytest workflows/tests
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Replayer
from weir_testing.fixtures import Weir

from weir_workflows.operations.workflows import WORKFLOWS
from weir_workflows.worker import ALL_WORKFLOWS

RECORDED = Path(__file__).parent / "histories"
LONGEST = 3


def _replayer() -> Replayer:
    return Replayer(workflows=ALL_WORKFLOWS, interceptors=[TracingInterceptor()])


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
async def test_recorded_histories_replay(path: Path) -> None:
    await _replayer().replay_workflow(WorkflowHistory.from_json(path.stem, path.read_text()))


def test_every_kind_of_operation_has_a_recorded_history() -> None:
    kinds = {path.stem.split(".")[0] for path in RECORDED.glob("*.json")}
    operations = {workflow.__temporal_workflow_definition.name for workflow in WORKFLOWS}  # type: ignore[attr-defined]
    assert kinds >= operations | {"fleet_rollout", "rollout_batch", "fleet_rollback"}


async def test_histories_of_this_session_replay(weir: Weir) -> None:
    created = await weir.project(name="replayed")
    await weir.finish(await weir.call("DELETE", f"/projects/{created['project']['id']}"))
    await _until_listed(weir, "delete_project")
    seen: dict[str, int] = {}
    async for execution in weir.temporal.list_workflows("ExecutionStatus != 'Running'"):
        kind = execution.workflow_type
        if seen.get(kind, 0) >= LONGEST:
            continue
        seen[kind] = seen.get(kind, 0) + 1
        handle = weir.temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
        history = await handle.fetch_history()
        await _replayer().replay_workflow(history)
        if os.environ.get("WEIR_RECORD_HISTORIES") and seen[kind] <= 2:
            RECORDED.mkdir(exist_ok=True)
            (RECORDED / f"{kind}.{seen[kind]}.json").write_text(_anonymous(history.to_json()))
    assert {"create_project", "start_compute", "delete_project"} <= set(seen)


async def _until_listed(weir: Weir, kind: str) -> None:
    """An operation is reported from within its workflow, which ends, and is listed as ended, a moment later."""
    async with asyncio.timeout(30):
        while True:
            async for _ in weir.temporal.list_workflows(f"WorkflowType = '{kind}' AND ExecutionStatus != 'Running'"):
                return
            await asyncio.sleep(0.1)


def _anonymous(text: str) -> str:
    """Without the names of the machine and its processes."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: "worker" if key == "identity" else "" if key == "stackTrace" else clean(item)
            for key, item in value.items()
            if key != "binaryChecksum"
        }

    return json.dumps(clean(json.loads(text)), indent=1) + "\n"
