"""Which of a comparison's controls a reader may know. Controls are the computes most like the switched one, whosever
they are: their figures count for everyone, their names are told to those who see the computes."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.endpoints.models import Endpoint
from weir.projects.models import Project

Analysis = dict[str, Any]


async def for_reader(session: AsyncSession, fleet: UUID | None, analyses: Iterable[Analysis]) -> list[Analysis]:
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
