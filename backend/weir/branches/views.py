"""Branches that were changed, as the API shows them, with what they used in the current month."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.branches.schemas import BranchOperations, BranchView
from weir.kit.clock import now
from weir.operations.models import Operation
from weir.operations.schemas import OperationView
from weir.projects.models import Project
from weir.usage import reading


async def view(session: AsyncSession, branch: Branch) -> BranchView:
    project = await session.get_one(Project, branch.project_id)
    used = await reading.branches_this_month(session, project, [branch], now())
    return BranchView.of(branch, used[branch.id])


async def changed(session: AsyncSession, branch: Branch, operations: Sequence[Operation]) -> BranchOperations:
    """The answer to a change of a branch."""
    return BranchOperations(
        branch=await view(session, branch), operations=[OperationView.of(row) for row in operations]
    )
