"""How short storage keeps the chains of a project's pages once Postgres sends no images: a setting of the tenant, and
so shared by all computes of a project. Reading and arming raise RemoteError when storage refuses or is silent."""

import asyncio
from collections.abc import Iterable

from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.http import RemoteError
from weir.endpoints.models import Endpoint
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState, Rollout, RolloutMember
from weir_workflows.common.resources import Resources
from weir_workflows.rollout.members import Member, among
from weir_workflows.rollout.probes import RETRY_SECONDS, Probes, retrying

THRESHOLD = "image_threshold_pushdown"
DEFAULT_PUSHDOWN_THRESHOLD = 128


async def current(resources: Resources, item: Member) -> int:
    config = (await resources.pageserver.tenant(item.row.project.tenant_id)).get("config") or {}
    return int(config.get(THRESHOLD) or DEFAULT_PUSHDOWN_THRESHOLD)


async def stored(session: AsyncSession, rollout_id: str, project_ids: list[str]) -> dict[str, int]:
    """By project, the threshold from before this rollout, where one of its computes has been armed already."""
    rows = await session.execute(
        select(RolloutMember.project_id, RolloutMember.previous_threshold).where(
            RolloutMember.rollout_id == rollout_id,
            among(RolloutMember.project_id, project_ids),
            RolloutMember.previous_threshold.is_not(None),
        )
    )
    return {project: threshold for project, threshold in rows.all() if threshold is not None}


async def arm(resources: Resources, item: Member, strategy: Strategy, before: int) -> None:
    """`before`: the threshold there is, which the caller has kept."""
    wanted = strategy.image_threshold or before
    if wanted != before:
        await resources.pageserver.configure_tenant(item.row.project.tenant_id, {THRESHOLD: wanted})


async def disarm(
    resources: Resources, probes: Probes, items: Iterable[Member], patience: float = RETRY_SECONDS
) -> dict[str, str]:
    """Puts the old thresholds back, unless another compute of the project relies on the present one or is about to.
    Answers with what storage refused, by compute."""
    found = [item for item in items if item.member.previous_threshold is not None]
    found = [item for item in found if item.row.project.deleted_at is None]
    if not found:
        return {}
    relying = await _relying(resources, {item.row.project.id for item in found})
    free = [
        item
        for item in found
        if not relying.get(item.row.project.id, set()) - {("", item.id), (item.member.rollout_id, item.id)}
    ]
    errors: dict[str, str] = {}

    async def one(item: Member) -> None:
        config = {THRESHOLD: item.member.previous_threshold}
        async with probes.slot():
            try:
                tenant = item.row.project.tenant_id
                await retrying(lambda: resources.pageserver.configure_tenant(tenant, config), patience)
            except RemoteError as error:
                errors[item.id] = str(error)

    await asyncio.gather(*(one(item) for item in free))
    return errors


async def _relying(resources: Resources, project_ids: set[str]) -> dict[str, set[tuple[str, str]]]:
    """By project: computes that run without images, or for which a rollout has just armed storage."""
    switched = select(Endpoint.project_id, literal(""), Endpoint.id).where(
        among(Endpoint.project_id, project_ids), Endpoint.full_page_writes.is_(False), Endpoint.deleted_at.is_(None)
    )
    arming = (
        select(RolloutMember.project_id, RolloutMember.rollout_id, RolloutMember.endpoint_id)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(
            among(RolloutMember.project_id, project_ids),
            RolloutMember.state == MemberState.ARMING,
            Rollout.feature == "image_pushdown",
        )
    )
    async with resources.database.transaction() as session:
        rows = await session.execute(switched.union_all(arming))
    found: dict[str, set[tuple[str, str]]] = {}
    for project, rollout, ident in rows.all():
        found.setdefault(project, set()).add((rollout, ident))
    return found
