from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from weir.kit.schemas import Body, Id, View

DAY_SECONDS = 86_400
MOST_SECONDS = 30 * DAY_SECONDS


class TransferRequestCreate(Body):
    """For how long the project is offered; a day unless given."""

    ttl_seconds: Annotated[int, Field(ge=1, le=MOST_SECONDS)] = DAY_SECONDS


class TransferRequestView(View):
    """Whoever is told `id` may take the project, until it expires."""

    id: UUID
    project_id: str
    created_at: datetime
    expires_at: datetime


class TransferRequestAccept(Body):
    """Into which of the caller's organizations; the one that the request acts in unless given."""

    org_id: UUID | None = None


class ProjectsTransfer(Body):
    destination_org_id: UUID
    project_ids: Annotated[list[Id], Field(min_length=1, max_length=400)]


class Transferred(View):
    """Empty, as in the published API."""
