"""How a rollout stores the desired state of endpoints: the same for every feature."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.endpoints.models import Endpoint
from weir.identity import audit
from weir_workflows.rollout import members


async def store(
    session: AsyncSession,
    rollout_id: str,
    ids: Sequence[str],
    only: ColumnElement[bool],
    values: Mapping[str, Any],
    action: str,
    **detail: Any,
) -> None:
    """Writes `values` to those of the endpoints for which `only` holds, and to the audit log, for each that changed,
    the action with its detail."""
    if not ids:
        return
    # Locked in one order: two that wish at once wait for each other, and not for ever.
    others = select(Endpoint.id).where(members.among(Endpoint.id, ids), only).order_by(Endpoint.id)
    chosen = list((await session.scalars(others.with_for_update())).all())
    if not chosen:
        return
    changed = await session.execute(
        update(Endpoint)
        .where(members.among(Endpoint.id, chosen))
        .values(values)
        .returning(Endpoint.id, Endpoint.project_id)
        .execution_options(synchronize_session=False)
    )
    for ident, project_id in changed.all():
        audit.record_system(
            session, members.ACTOR, action, f"endpoint/{ident}", project_id, **detail, rollout=rollout_id
        )
