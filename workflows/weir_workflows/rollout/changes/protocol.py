"""What a rollout asks of its feature: how one compute is switched, how the switch is confirmed, and how the compute
is rolled back.

Everything else (the next computes, pauses, windows, verdicts, waves) is the rollout's, and the same for every
feature. Each step may be repeated, also by another process: the desired state is stored first, sent second and
confirmed last.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.rollouts.intent import Strategy
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.verdict import HardBounds

# Columns of a member, and what is to be written there.
Record = dict[str, Any]
Figures = dict[str, float | None]


class ChangeError(Exception):
    """A compute could not be switched; the message says what happened to it."""


class Change(Protocol):
    @property
    def feature(self) -> str:
        """As rollouts name it."""
        ...

    @property
    def chunk_size(self) -> int:
        """Computes whose wish is stored in one transaction and which are switched at once."""
        ...

    def slot(self) -> AbstractAsyncContextManager[Any]:
        """Held while one compute is switched, so that many batches do not drown the machine."""
        ...

    # Before the switch.

    def moot(self, item: Member) -> str | None:
        """Why there is nothing to switch any more: somebody else has done it since the plan was made."""
        ...

    def unready(self, item: Member, status: ComputeStatus) -> Outcome | None:
        """Why this healthy compute cannot be switched now, or at all."""
        ...

    async def arm(
        self, rollout_id: str, chunk: list[Member], strategy: Strategy, failures: dict[str, Outcome]
    ) -> list[Member]:
        """Makes ready what the switch relies on, and keeps what is needed to go back. Answers with those it worked
        for; the others are in `failures`."""
        ...

    async def blocked(self, session: AsyncSession, items: Sequence[Member]) -> set[str]:
        """Of these, whose switch would be in the way of something else right now; they are looked at again."""
        ...

    async def set_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None:
        """Stores that these computes are to be switched: every start and every repair from here on has them so."""
        ...

    # The switch.

    async def send(self, item: Member) -> Record:
        """Switches a running compute. Raises RemoteError or ChangeError."""
        ...

    async def confirm(self, item: Member, sent: Record) -> Record:
        """Returns once the switch is seen wherever it must be. Raises TimeoutError."""
        ...

    async def faults(self, item: Member, status: ComputeStatus) -> list[str]:
        """What is wrong, beyond what would be wrong with any compute, with one that bakes."""
        ...

    # At the start of a compute that was suspended when its turn came.

    def started_switched(self, item: Member, status: ComputeStatus) -> Record | None:
        """What is written of a compute that runs switched; None when it does not."""
        ...

    async def in_storage(self, item: Member, *, switched: bool) -> bool:
        """Whether storage has seen the compute so."""
        ...

    # Back.

    async def restore_desired(self, session: AsyncSession, rollout_id: str, items: Sequence[Member]) -> None: ...

    async def send_back(self, item: Member) -> str | None:
        """Returns once the compute is as it was: the LSN from which on it is, None of one that does not run. Raises
        RemoteError, ChangeError or TimeoutError."""
        ...

    def back_at(self, item: Member, status: ComputeStatus) -> str | None:
        """The LSN from which on a compute that was to go back is as it was; None when it is not."""
        ...

    async def disarm(self, items: Sequence[Member], *, patient: bool) -> dict[str, str]:
        """Undoes `arm`. Answers with what could not be undone, by compute."""
        ...

    @property
    def is_back(self) -> str:
        """What a member's reason says once the compute is back."""
        ...

    @property
    def not_back(self) -> str:
        """What an alert says of a compute that takes too long to go back."""
        ...

    def has_desired_back(self) -> ColumnElement[bool]:
        """Over members joined with their endpoints: of those taken back, whose wish still is what it was before."""
        ...

    # The verdict.

    def bounds(self, strategy: Strategy) -> HardBounds: ...

    def measured(self, item: Member) -> Figures:
        """Figures of the switch itself, kept with those of the window after it."""
        ...

    def passes(self, item: Member, before: Figures, after: Figures) -> str:
        """Why a compute passes whose every bound holds."""
        ...

    def controls(self, item: Member) -> list[ColumnElement[bool]]:
        """Conditions on endpoints that may serve as this compute's controls, if nothing was done to them."""
        ...
