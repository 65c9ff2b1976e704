"""What the API hands to Temporal. Both sides import these, so that they cannot disagree.

Inputs name things and carry no wishes: a workflow reads what is wanted from the database.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperationInput:
    operation_id: str
    project_id: str
    branch_id: str | None
    endpoint_id: str | None
    origin: str


def operation_workflow_id(operation_id: object) -> str:
    return f"operation/{operation_id}"


# The signal that asks an operation's workflow to stop and to undo what it has done.
CANCEL_SIGNAL = "cancel"

RECONCILER_WORKFLOW = "reconciler"
RECONCILER_WORKFLOW_ID = "reconciler"
