from datetime import datetime
from enum import StrEnum

from sqlalchemy import ForeignKey, Index, false, func
from sqlalchemy.orm import Mapped, mapped_column

from weir.durability.levels import Durability
from weir.kit.models import Base, Timestamps


class BranchState(StrEnum):
    INIT = "init"
    READY = "ready"


class Branch(Timestamps, Base):
    __tablename__ = "branches"
    __table_args__ = (
        Index(
            "uq_branches_project_name",
            "project_id",
            "name",
            unique=True,
            postgresql_where="deleted_at IS NULL",
        ),
        Index(
            "uq_branches_one_default",
            "project_id",
            unique=True,
            postgresql_where="is_default AND deleted_at IS NULL",
        ),
        Index("ix_branches_parent", "parent_id"),
        Index(
            "ix_branches_expiring",
            "expires_at",
            postgresql_where="expires_at IS NOT NULL AND deleted_at IS NULL",
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("branches.id"))
    name: Mapped[str]
    timeline_id: Mapped[str] = mapped_column(unique=True)
    # What was asked for; once the branch is ready `parent_lsn` is where it really left its parent.
    parent_lsn: Mapped[str | None]
    parent_timestamp: Mapped[datetime | None]
    state: Mapped[BranchState] = mapped_column(default=BranchState.INIT)
    state_changed_at: Mapped[datetime] = mapped_column(server_default=func.now())
    is_default: Mapped[bool] = mapped_column(default=False)
    protected: Mapped[bool] = mapped_column(default=False)
    # What commits of its computes wait for unless their session says otherwise; a policy may have them wait for more.
    durability: Mapped[Durability] = mapped_column(default=Durability.FLUSH, server_default=Durability.FLUSH)
    # Holds a snapshot's state and has the snapshot's id as its name: no branch to whoever asks for branches.
    is_snapshot: Mapped[bool] = mapped_column(default=False, server_default=false())
    # The snapshot its state is of, until another state is given to it; the snapshot may be gone since.
    restored_from: Mapped[str | None]
    # The branch that is to have this one's state once the restore is finalized.
    restored_as: Mapped[str | None]
    # The reconciler deletes it then; never without.
    expires_at: Mapped[datetime | None]
    # When a restore last gave it another state.
    last_reset_at: Mapped[datetime | None]
    delete_requested_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
