"""One line of the audit log for every change, every secret shown and every sign-in, in the transaction of it."""

from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from weir.identity.models import NOWHERE, AuditEntry


class Actor(Protocol):
    @property
    def account_id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def api_key_id(self) -> int | None: ...


def record(
    session: AsyncSession,
    actor: Actor,
    action: str,
    resource: str,
    project_id: str | None = None,
    **detail: Any,
) -> None:
    session.add(
        AuditEntry(
            account_id=None if actor.account_id == NOWHERE else actor.account_id,
            actor=actor.name,
            request_id=actor.request_id,
            address=actor.address,
            api_key_id=actor.api_key_id,
            action=action,
            resource=resource,
            project_id=project_id,
            detail=detail,
        )
    )


def record_system(
    session: AsyncSession,
    actor: str,
    action: str,
    resource: str,
    project_id: str | None = None,
    **detail: Any,
) -> None:
    """A change that no person asked for at that moment: the reconciler, a rollout's step."""
    session.add(
        AuditEntry(
            account_id=None,
            actor=actor,
            request_id="",
            action=action,
            resource=resource,
            project_id=project_id,
            detail=detail,
        )
    )
