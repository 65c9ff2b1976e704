"""Which settings of a compute are in force: what is wanted of it, beside what its Postgres says."""

from typing import Any

from weir.clients.compute import agent_of
from weir.clients.http import HttpClient, RemoteError
from weir.computes.repository import ComputeRow
from weir.computes.schemas import ComputeSetting
from weir.durability.policy import policy_of, wanted

APPLYING = "it has not reached the compute yet"
FORBIDDEN = "a durability policy forbids this level; the branch's own, or the weakest allowed above it, is in force"


async def settings_of(row: ComputeRow, http: HttpClient) -> list[ComputeSetting]:
    """By name. Asks the compute's agent; where it does not answer, nothing is said of what is in force."""
    asked: dict[str, str] = row.endpoint.pg_settings
    given = wanted(policy_of(row.project), row.branch.durability, asked).settings
    try:
        agent = agent_of(row.endpoint.id, row.endpoint.host, row.endpoint.port, http)
        told = await agent.settings(_parse)
    except RemoteError as error:
        return [
            ComputeSetting(name=name, wanted=value, state="unknown", reason=f"{error}; it is tried at the next start")
            for name, value in sorted(asked.items())
        ]
    return [_one(name, asked, given, told.get(name)) for name in sorted({*asked, *told})]


def _parse(body: dict[str, Any]) -> dict[str, ComputeSetting]:
    return {item["name"]: ComputeSetting.model_validate(item) for item in body["settings"]}


def _one(name: str, asked: dict[str, str], given: dict[str, Any], told: ComputeSetting | None) -> ComputeSetting:
    value, now = asked.get(name), None if told is None else told.in_force
    if value is not None and name not in given:
        return ComputeSetting(name=name, wanted=value, in_force=now, state="failed", reason=FORBIDDEN)
    if told is None or told.wanted != value:
        return ComputeSetting(name=name, wanted=value, in_force=now, state="applying", reason=APPLYING)
    return told
