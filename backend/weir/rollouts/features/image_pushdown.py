"""Image pushdown: computes stop writing page images to their WAL, and storage makes those that reads need."""

from sqlalchemy import ColumnElement, func

from weir.endpoints.models import Endpoint
from weir.rollouts.features.protocol import Candidate
from weir.rollouts.schemas import ExclusionCode


class ImagePushdown:
    name = "image_pushdown"
    in_words = (
        "Image pushdown: Postgres stops writing page images to its WAL (full_page_writes off); storage makes the "
        "images that reads need."
    )

    def exclusion(self, candidate: Candidate) -> tuple[ExclusionCode, str] | None:
        if not candidate.row.endpoint.full_page_writes:
            return "already_on", "full_page_writes is off already"
        return None

    def wal_saved(self, candidate: Candidate) -> float | None:
        """All of today's images."""
        return candidate.image_rate

    @property
    def has(self) -> ColumnElement[bool]:
        return Endpoint.full_page_writes.is_(False)

    @property
    def since(self) -> ColumnElement[object]:
        return func.coalesce(Endpoint.full_page_writes_since, Endpoint.created_at)
