"""What `weir-pageserver inventory` found in an object store, as the recovery reads it."""

from dataclasses import dataclass
from typing import Any

from weir.errors import BadRequestError
from weir.recovery.description import VERSION


@dataclass(frozen=True)
class FoundTimeline:
    """`state`: `whole`, `deleting`, or `damaged` with the reason."""

    id: str
    state: str
    reason: str | None
    pg_version: int
    ancestor_id: str | None
    ancestor_lsn: str | None


@dataclass(frozen=True)
class FoundTenant:
    id: str
    description: dict[str, Any] | None
    # Why there is no description although there should be one.
    reason: str | None
    timelines: tuple[FoundTimeline, ...]


def parse(document: dict[str, Any]) -> list[FoundTenant]:
    return [_tenant(item) for item in document["tenants"]]


def _tenant(item: dict[str, Any]) -> FoundTenant:
    about = item.get("about")
    if about is not None and about.get("version", 0) > VERSION:
        raise BadRequestError(
            f"tenant {item['tenant_id']} was described by a newer Weir (version {about['version']}, this one knows "
            f"{VERSION}); recover with that one"
        )
    return FoundTenant(
        id=item["tenant_id"],
        description=about,
        reason=item.get("about_error"),
        timelines=tuple(
            FoundTimeline(
                id=timeline["timeline_id"],
                state=timeline["state"],
                reason=timeline.get("reason"),
                pg_version=timeline.get("pg_version") or 15,
                ancestor_id=timeline.get("ancestor_timeline_id"),
                ancestor_lsn=timeline.get("ancestor_lsn"),
            )
            for timeline in item["timelines"]
        ),
    )
