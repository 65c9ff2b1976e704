"""Keeping the object store's description of a project what the database says.

Operations on several endpoints of a project, and the reconciler, describe it at the same time. What one has read must
not be written after what another has read later: a role that the other's compute was given would be missing in the
object store. So all of them take turns, a project at a time. Of several workers each has turns of its own; the
reconciler puts right what they leave wrong.
"""

import asyncio
from weakref import WeakValueDictionary

from weir.projects.models import Project
from weir.recovery.description import describe, revision
from weir_workflows.common.errors import missing
from weir_workflows.common.resources import Resources


async def ensure_described(resources: Resources, project_id: str) -> None:
    """Durable on return. Costs one look when nothing has changed."""
    if resources.settings.compute_runtime == "simulated":
        # A model of storage holds nothing that could be recovered.
        return
    async with _turn(project_id):
        async with resources.database.transaction() as session:
            project = await session.get(Project, project_id)
            if project is None:
                raise missing("project", project_id)
            document = (await describe(session, [project]))[project_id]
        wanted = revision(document)
        if await resources.pageserver.about_revision(project.tenant_id) != wanted:
            await resources.pageserver.put_about(project.tenant_id, wanted, document)


# Of projects that are being described now.
_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def _turn(project_id: str) -> asyncio.Lock:
    return _turns.setdefault(project_id, asyncio.Lock())
