"""What of rollouts a principal may see: its account's rollouts (an operator: every rollout), and of a comparison's
controls the names of its own computes.

Controls are the computes that are most like the switched one, and may belong to other accounts. Their figures count
in every comparison; their names are shown only to a principal who sees the computes."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.endpoints.models import Endpoint
from weir.errors import NotFoundError
from weir.projects.models import Project
from weir.rollouts.models import Rollout

Analysis = dict[str, Any]


async def rollout_of(access: ProjectAccess, rollout_id: str) -> Rollout:
    """The rollout as it is stored now. Raises NotFoundError where the principal may not see it."""
    rollout = await access.session.get(Rollout, rollout_id, populate_existing=True)
    if rollout is None or access.principal.fleet not in {None, rollout.account_id}:
        raise NotFoundError.of("rollout", rollout_id)
    return rollout


async def analyses_for_reader(
    session: AsyncSession, fleet: UUID | None, analyses: Iterable[Analysis]
) -> list[Analysis]:
    """The analyses as a reader of this fleet (`Principal.fleet`) may see them: names of other accounts' controls are
    left out, and `controls_hidden` says how many those were."""
    found = list(analyses)
    if fleet is None:
        return found
    named = {ident for analysis in found for ident in analysis.get("controls", [])}
    if not named:
        return found
    statement = (
        select(Endpoint.id)
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.id.in_(named), Project.account_id == fleet)
    )
    own = set((await session.scalars(statement)).all())
    return [_without_strangers(analysis, own) for analysis in found]


def _without_strangers(analysis: Analysis, own: set[str]) -> Analysis:
    controls = analysis.get("controls", [])
    kept = [ident for ident in controls if ident in own]
    if len(kept) == len(controls):
        return analysis
    return analysis | {"controls": kept, "controls_hidden": len(controls) - len(kept)}
