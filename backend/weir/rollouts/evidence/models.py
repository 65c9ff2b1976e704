from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base


class RolloutMeasurement(Base):
    """What was counted of one member in both windows, and the course of its figures across the switch. One row a
    member, the newest; the shapes are those of `weir.rollouts.evidence.collect`. Apart from the verdicts in
    `rollout_evidence`, since pages list those and seldom read these."""

    __tablename__ = "rollout_measurements"

    rollout_id: Mapped[str] = mapped_column(ForeignKey("rollouts.id"), primary_key=True)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("endpoints.id"), primary_key=True)
    before: Mapped[dict[str, Any]]
    after: Mapped[dict[str, Any]]
    series: Mapped[dict[str, Any]] = mapped_column(default=dict, deferred=True)
    measured_at: Mapped[datetime]
