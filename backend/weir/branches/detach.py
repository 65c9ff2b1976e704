"""Making a branch independent of its parent, so that the parent can go, or let go of its history.

Storage gives the branch layers of its own for all that it reads through its ancestors; computes run on meanwhile.
Only when that is durable the branch loses its parent here. One that fails leaves the branch as it was, and repeating
it goes on.
"""

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch, BranchState
from weir.branches.service import refuse_leaving
from weir.errors import BadRequestError, ConflictError
from weir.identity import audit
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue


async def detach(access: ProjectAccess, project_id: str, ident: str) -> tuple[Branch, list[Operation]]:
    project, branch = await access.branch_to_detach(project_id, ident)
    if branch.state != BranchState.READY:
        raise BadRequestError(f"branch {branch.id} is {branch.state}; only a ready branch can be detached")
    refuse_leaving(branch)
    if branch.parent_id is None:
        raise ConflictError(f"branch {branch.id} has no parent: there is nothing to detach it from")
    operation = await enqueue(
        access.session,
        OperationKind.DETACH_BRANCH,
        project.id,
        branch_id=branch.id,
        request_id=access.principal.request_id,
    )
    audit.record(
        access.session, access.principal, "branch.detach", f"branch/{branch.id}", project.id,
        parent_id=branch.parent_id, parent_lsn=branch.parent_lsn,
    )  # fmt: skip
    return branch, [operation]
