"""What a branch's commits wait for, and what roles and databases of its compute have chosen instead."""

from typing import Any

from weir.branches.models import Branch
from weir.clients.compute import agent_of
from weir.clients.http import HttpClient, RemoteError
from weir.computes.repository import ComputeRow
from weir.durability.levels import Durability, level_of
from weir.durability.policy import Policy, policy_of, wanted
from weir.durability.schemas import BranchDurability, ChosenLevel, ComputeDurability, LevelView
from weir.endpoints.models import EndpointState
from weir.errors import ConflictError, UnavailableError
from weir.projects.models import Project


def of_branch(project: Project, branch: Branch) -> BranchDurability:
    policy = policy_of(project)
    return BranchDurability(
        branch_id=branch.id,
        level=branch.durability,
        effective=policy.effective(branch.durability),
        levels=[
            LevelView(
                level=level,
                synchronous_commit=level.synchronous_commit,
                forbidden_by=policy.forbidden.get(level),
            )
            for level in Durability
        ],
    )


async def of_compute(row: ComputeRow, http: HttpClient) -> ComputeDurability:
    """Raises ConflictError while the compute is not wanted to run, UnavailableError when it does not answer."""
    endpoint = row.endpoint
    if endpoint.desired_state == EndpointState.IDLE:
        raise ConflictError(f"compute {endpoint.id} does not run: what its roles have chosen is known while it does")
    policy = policy_of(row.project)
    begins_with = wanted(policy, row.branch.durability, endpoint.pg_settings).level or Durability.FLUSH

    def parse(body: dict[str, Any]) -> ComputeDurability:
        chosen = [_chosen(item, policy, begins_with) for item in body["chosen"]]
        return ComputeDurability(compute_id=endpoint.id, chosen=chosen, more=body["more"])

    try:
        return await agent_of(endpoint.id, endpoint.host, endpoint.port, http).synchronous_commit(parse)
    except RemoteError as error:
        raise UnavailableError(
            f"what the roles of compute {endpoint.id} have chosen is not known now: {error}; try again"
        ) from error


def _chosen(item: dict[str, Any], policy: Policy, begins_with: Durability) -> ChosenLevel:
    level = level_of(item["synchronous_commit"])
    return ChosenLevel(
        role=item["role"],
        database=item["database"],
        synchronous_commit=item["synchronous_commit"],
        level=level,
        weaker=level is not None and level.weaker_than(begins_with),
        forbidden=level in policy.forbidden,
    )
