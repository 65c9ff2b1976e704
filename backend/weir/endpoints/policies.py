"""Policies that say how a new compute starts. Each is asked when an endpoint is created.

A package that has such a policy registers it when the application is assembled (`weir.main`); this package knows none
of them by name."""

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession

from weir.projects.models import Project

# (session, project, id of the new compute) -> whether the policy wants the compute to start without page images.
WithoutPageImages = Callable[[AsyncSession, Project, str], Awaitable[bool]]

_WITHOUT_PAGE_IMAGES: dict[str, WithoutPageImages] = {}


def register_without_page_images(name: str, policy: WithoutPageImages) -> None:
    """A second registration under a name replaces the first."""
    _WITHOUT_PAGE_IMAGES[name] = policy


async def starts_without_page_images(session: AsyncSession, project: Project, compute_id: str) -> bool:
    """Whether any registered policy wants the new compute to start with `full_page_writes` off."""
    for name in sorted(_WITHOUT_PAGE_IMAGES):
        if await _WITHOUT_PAGE_IMAGES[name](session, project, compute_id):
            return True
    return False
