"""How much branches hold, as storage counts it: one call for a whole project."""

import structlog

from weir.branches.schemas import Sizes
from weir.clients.http import RemoteError
from weir.clients.pageserver import Pageserver
from weir.projects.models import Project

log = structlog.get_logger()


async def sizes(pageserver: Pageserver, project: Project) -> Sizes:
    """By timeline; empty when storage does not answer, since a list of branches is worth having without."""
    try:
        timelines = await pageserver.timelines(project.tenant_id)
    except RemoteError as error:
        log.warning("sizes_not_known", project_id=project.id, error=str(error))
        return {}
    return {timeline.timeline_id: (timeline.logical_size, timeline.history_bytes) for timeline in timelines}
