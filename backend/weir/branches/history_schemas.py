from datetime import datetime

from weir.kit.schemas import View


class HistoryPoint(View):
    """A state of a branch: all that was committed up to an LSN."""

    lsn: str
    # Of its newest commit. Absent before the first one, and while storage has not ingested that far.
    timestamp: datetime | None = None


class BranchPoint(HistoryPoint):
    """Where a branch was made from this one. It stays, however short the history."""

    branch_id: str
    name: str


class BranchHistory(View):
    """The states a branch can be branched from or restored to: from the oldest to the newest, ancestors' included."""

    branch_id: str
    oldest_lsn: str
    # Absent while the history goes back to before the first commit.
    oldest_timestamp: datetime | None = None
    newest_lsn: str
    newest_timestamp: datetime | None = None
    # By LSN; of many the newest 100.
    branch_points: list[BranchPoint]
