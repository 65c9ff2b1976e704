"""What keeps a project with its organisation for now. Each is asked before a project changes hands.

A package that knows of such things registers them when the application is assembled (`weir.main`); this package knows
none of them by name."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession

from weir.projects.models import Project

# (session, project) -> why it cannot go now and what to do, or None.
Block = Callable[[AsyncSession, Project], Awaitable[str | None]]

_BLOCKS: dict[str, Block] = {}


def register(name: str, block: Block) -> None:
    """A second registration under a name replaces the first."""
    _BLOCKS[name] = block


async def found(session: AsyncSession, project: Project) -> str | None:
    """The first reason there is."""
    for name in sorted(_BLOCKS):
        why = await _BLOCKS[name](session, project)
        if why is not None:
            return why
    return None
