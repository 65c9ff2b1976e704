"""Keeping the object store's description of a project what the database says."""

from weir.projects.models import Project
from weir.recovery.description import describe, revision
from weir_workflows.common.errors import missing
from weir_workflows.common.resources import Resources


async def ensure_described(resources: Resources, project_id: str) -> None:
    """Durable on return. Costs one look when nothing has changed."""
    if resources.settings.compute_runtime == "simulated":
        # A model of storage holds nothing that could be recovered.
        return
    async with resources.database.transaction() as session:
        project = await session.get(Project, project_id)
        if project is None:
            raise missing("project", project_id)
        document = (await describe(session, [project]))[project_id]
    wanted = revision(document)
    if await resources.pageserver.about_revision(project.tenant_id) != wanted:
        await resources.pageserver.put_about(project.tenant_id, wanted, document)
