"""Image pushdown: computes stop writing page images to their WAL, and storage makes the images that reads need."""

from datetime import datetime

from sqlalchemy import ColumnElement, func

from weir.endpoints.models import Endpoint
from weir.errors import BadRequestError
from weir.rollouts.features.protocol import Candidate
from weir.rollouts.intent import Strategy
from weir.rollouts.models import ExclusionCode


class ImagePushdown:
    name = "image_pushdown"
    in_words = (
        "Image pushdown: Postgres stops writing page images to its WAL (full_page_writes off); storage makes the "
        "images that reads need."
    )

    done_in_words = (
        "A switch counts as done when its XLOG_FPW_CHANGE record was fsynced by a majority of safekeepers and "
        "ingested by the storage of the branch; its position in the WAL is given for every compute."
    )

    def resolved(self, strategy: Strategy) -> Strategy:
        if strategy.target_version is not None:
            raise BadRequestError("target_version is for rollouts of postgres_minor")
        return strategy

    def exclusion(self, candidate: Candidate, strategy: Strategy) -> tuple[ExclusionCode, str] | None:
        del strategy
        if not candidate.row.endpoint.full_page_writes:
            return "already_on", "full_page_writes is off already"
        return None

    def wal_saved(self, candidate: Candidate) -> float | None:
        """All of today's images."""
        return candidate.image_rate

    def versions(self, candidate: Candidate, strategy: Strategy) -> tuple[str | None, str | None]:
        del candidate, strategy
        return None, None

    @property
    def has(self) -> ColumnElement[bool]:
        return Endpoint.full_page_writes.is_(False)

    @property
    def since(self) -> ColumnElement[datetime | None]:
        return func.coalesce(Endpoint.full_page_writes_since, Endpoint.created_at)
