"""The rows of a project, made from what the object store holds of it.

Ancestors, branch points and Postgres versions are those of storage; names, owners and settings those of the project's
description. A timeline that nobody has described becomes a branch with a name made up here, so that no data is out of
reach; nobody knows then which roles and databases it has, so its computes are told to drop none.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from weir.branches.models import Branch, BranchState
from weir.databases.models import BranchDatabase, Role
from weir.durability.levels import Durability
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.sizes import UNIT
from weir.kit.clock import now
from weir.kit.ids import branch_id, project_id
from weir.projects.models import KEEP_UNLISTED, Project
from weir.projects.service import DEFAULT_BRANCH, DEFAULT_RETENTION_SECONDS, PG_VERSIONS
from weir.recovery.inventory import FoundTenant, FoundTimeline
from weir.snapshots.calendar import next_after
from weir.snapshots.models import BackupScheduleItem, Frequency, Snapshot

UNKNOWN_OWNER = ("admin", "admin@localhost")


@dataclass
class Rebuilt:
    """Rows that are in no session yet, parents before children; `lost` says what is described and not there."""

    project: Project
    owner: tuple[str, str]
    branches: list[Branch] = field(default_factory=list[Branch])
    endpoints: list[Endpoint] = field(default_factory=list[Endpoint])
    roles: list[Role] = field(default_factory=list[Role])
    databases: list[BranchDatabase] = field(default_factory=list[BranchDatabase])
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    schedules: list[BackupScheduleItem] = field(default_factory=list[BackupScheduleItem])
    lost: list[str] = field(default_factory=list[str])
    made_up: list[str] = field(default_factory=list[str])


def rebuild(tenant: FoundTenant, region_id: str) -> Rebuilt | None:
    """None when there is nothing to make a project of: no timeline, whatever is described."""
    there = {timeline.id: timeline for timeline in tenant.timelines if timeline.state != "deleting"}
    if not there:
        return None
    description = tenant.description or {}
    known = {item["timeline_id"]: item for item in description.get("branches", [])}
    built = _project(tenant, description.get("project"), region_id, next(iter(there.values())).pg_version)
    built.lost = [_lost(item) for ident, item in known.items() if ident not in there]
    ids: dict[str, str] = {}
    for timeline in _parents_first(there):
        item = known.get(timeline.id)
        branch = _branch(built.project, timeline, item, ids.get(timeline.ancestor_id or ""))
        ids[timeline.id] = branch.id
        built.branches.append(branch)
        if item is None:
            built.made_up.append(branch.name)
        else:
            _contents(built, branch, item)
    if built.made_up or not description:
        built.project.settings = {**built.project.settings, KEEP_UNLISTED: True}
    _sources(built)
    if not any(branch.is_default for branch in built.branches):
        _default(built).is_default = True
    return built


def _lost(item: dict[str, Any]) -> str:
    snapshot = item.get("snapshot")
    return f"snapshot {snapshot['name']}" if snapshot else f"branch {item['name']}"


def _sources(built: Rebuilt) -> None:
    """What a snapshot was taken of may be gone, or not be in the store."""
    there = {branch.id for branch in built.branches}
    for snapshot in built.snapshots:
        if snapshot.source_branch_id not in there:
            snapshot.source_branch_id = None


def _default(built: Rebuilt) -> Branch:
    """The first branch. Where snapshots alone are left, the first of those becomes a branch."""
    for branch in built.branches:
        if not branch.is_snapshot:
            return branch
    chosen = built.branches[0]
    chosen.is_snapshot, chosen.expires_at = False, None
    built.snapshots = [snapshot for snapshot in built.snapshots if snapshot.branch_id != chosen.id]
    return chosen


def _parents_first(there: dict[str, FoundTimeline]) -> list[FoundTimeline]:
    """In the order of ids otherwise, so that the same store makes the same rows. One whose ancestor is gone or can't
    be read comes last, as a branch of nothing."""
    ordered: list[FoundTimeline] = []
    done: set[str | None] = {None}
    waiting = sorted(there.values(), key=lambda timeline: timeline.id)
    while waiting:
        ready = [timeline for timeline in waiting if timeline.ancestor_id in done] or waiting
        ordered += ready
        done |= {timeline.id for timeline in ready}
        waiting = [timeline for timeline in waiting if timeline.id not in done]
    return ordered


def _project(tenant: FoundTenant, item: dict[str, Any] | None, region_id: str, pg_version: int) -> Rebuilt:
    at = now()
    if item is None:
        ident = project_id()
        project = Project(
            id=ident,
            name=f"recovered-{tenant.id[:8]}",
            tenant_id=tenant.id,
            pg_version=pg_version if pg_version in PG_VERSIONS else PG_VERSIONS[0],
            region_id=region_id,
            cell=f"{region_id}-1",
            tags={},
            history_retention_seconds=DEFAULT_RETENTION_SECONDS,
            settings={},
            default_endpoint_settings={},
            created_at=at,
            updated_at=at,
        )
        return Rebuilt(project, UNKNOWN_OWNER, made_up=[project.name])
    account = item["account"]
    project = Project(
        id=item["id"],
        name=item["name"],
        tenant_id=tenant.id,
        pg_version=item["pg_version"],
        region_id=item["region_id"],
        cell=item["cell"],
        tags=item["tags"],
        history_retention_seconds=item["history_retention_seconds"],
        settings=item["settings"],
        default_endpoint_settings=item["default_endpoint_settings"],
        created_at=datetime.fromisoformat(item["created_at"]),
        updated_at=at,
    )
    return Rebuilt(project, (account["name"], account["email"]))


def _branch(project: Project, timeline: FoundTimeline, item: dict[str, Any] | None, parent: str | None) -> Branch:
    at = now()
    described = item or {}
    parent_timestamp = described.get("parent_timestamp")
    return Branch(
        id=described.get("id") or branch_id(),
        project_id=project.id,
        parent_id=parent,
        name=described.get("name") or _made_up(timeline),
        timeline_id=timeline.id,
        parent_lsn=timeline.ancestor_lsn if parent else None,
        parent_timestamp=datetime.fromisoformat(parent_timestamp) if parent and parent_timestamp else None,
        state=BranchState.READY,
        state_changed_at=at,
        is_snapshot="snapshot" in described,
        restored_from=described.get("restored_from"),
        restored_as=described.get("restored_as"),
        expires_at=_time((described.get("snapshot") or {}).get("expires_at")),
        is_default=bool(described.get("is_default")),
        protected=bool(described.get("protected")),
        # Not described by versions that had no levels, and not known of a timeline that nobody described.
        durability=Durability(described.get("durability") or Durability.FLUSH),
        created_at=datetime.fromisoformat(described["created_at"]) if item else at,
        updated_at=at,
    )


def _made_up(timeline: FoundTimeline) -> str:
    return f"recovered-{timeline.id[:8]}" if timeline.ancestor_id else f"{DEFAULT_BRANCH}-{timeline.id[:8]}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _kept(built: Rebuilt, branch: Branch, item: dict[str, Any], at: datetime) -> None:
    """The snapshot that the branch holds, and its schedule, which goes on from now."""
    snapshot = item.get("snapshot")
    if snapshot is not None:
        built.snapshots.append(
            Snapshot(
                id=snapshot["id"],
                project_id=built.project.id,
                branch_id=branch.id,
                source_branch_id=snapshot["source_branch_id"],
                name=snapshot["name"],
                timestamp=_time(snapshot["timestamp"]),
                manual=snapshot["manual"],
                created_by=snapshot["created_by"],
                created_at=datetime.fromisoformat(snapshot["created_at"]),
                updated_at=at,
                delete_requested_at=_time(snapshot["delete_requested_at"]),
            )
        )
    built.schedules += [
        BackupScheduleItem(
            branch_id=branch.id,
            position=position,
            frequency=Frequency(entry["frequency"]),
            hour=entry["hour"],
            day=entry["day"],
            retention_seconds=entry["retention_seconds"],
            next_at=next_after(Frequency(entry["frequency"]), entry["hour"], entry["day"], at),
        )
        for position, entry in enumerate(item.get("backup_schedule", ()))
    ]


def _contents(built: Rebuilt, branch: Branch, item: dict[str, Any]) -> None:
    at = now()
    _kept(built, branch, item, at)
    # Passwords are known to Postgres alone: they go on as they are until somebody resets them.
    built.roles += [
        Role(branch_id=branch.id, name=name, password_sealed=None, scram_verifier=None, created_at=at, updated_at=at)
        for name in item["roles"]
    ]
    built.databases += [
        BranchDatabase(branch_id=branch.id, name=held["name"], owner_name=held["owner"], created_at=at, updated_at=at)
        for held in item["databases"]
    ]
    built.endpoints += [
        Endpoint(
            id=held["id"],
            project_id=built.project.id,
            branch_id=branch.id,
            name=held["name"],
            type=held["type"],
            port=held["port"],
            desired_state=EndpointState.IDLE,
            state=EndpointState.IDLE,
            pg_settings=held["pg_settings"],
            full_page_writes=held["full_page_writes"],
            full_page_writes_since=None if held["full_page_writes"] else at,
            disabled=held["disabled"],
            suspend_timeout_seconds=held["suspend_timeout_seconds"],
            # Absent from what a Weir wrote that had no such settings.
            prewarm=held.get("prewarm", True),
            min_cu=held.get("min_cu", UNIT),
            max_cu=held.get("max_cu", UNIT),
            current_cu=held.get("min_cu", UNIT),
            created_at=datetime.fromisoformat(held["created_at"]),
            updated_at=at,
        )
        for held in item["endpoints"]
    ]
