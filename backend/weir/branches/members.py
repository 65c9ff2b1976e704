"""Which safekeepers hold a timeline's log, as far as the control plane has asked them to."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from weir.kit.models import Base


class TimelineMember(Base):
    """One safekeeper of one timeline. A log is founded there once: a safekeeper that lacks it later has lost it, and
    an empty log in its place would vote as if it had never held anything.

    `asked_at`: when the safekeeper was first asked to found the log; without `founded_at` nobody knows whether it
    did. `lost_at`: since when it has been seen without the log; null again once it shows it."""

    __tablename__ = "timeline_members"

    timeline_id: Mapped[str] = mapped_column(primary_key=True)
    # The safekeeper's number in the installation, from 1; its `--id`.
    safekeeper_id: Mapped[int] = mapped_column(primary_key=True)
    asked_at: Mapped[datetime]
    founded_at: Mapped[datetime | None]
    lost_at: Mapped[datetime | None]
