"""The spec a compute is given: read whole from the database each time, so that it can never be stale."""

from pathlib import Path
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.members import members_of
from weir.branches.models import Branch
from weir.config import Settings
from weir.databases.models import DroppedKind
from weir.databases.repository import DatabaseRepository
from weir.durability.policy import Policy, wanted
from weir.endpoints.models import Endpoint
from weir.projects.models import Project

QUORUM_TIMEOUT_MS = 10_000
AUDIT_READS_PER_SECOND = 20


async def load_spec(
    session: AsyncSession, settings: Settings, endpoint: Endpoint, pg_bin_dir: Path
) -> dict[str, Any]:
    """`pg_bin_dir`: the programs of the minor it runs, or is to run."""
    branch = await session.get_one(Branch, endpoint.branch_id)
    project = await session.get_one(Project, branch.project_id)
    repository = DatabaseRepository(session)
    policy = Policy.of(settings.forbidden_durability, project.forbidden_durability)
    commits = wanted(policy, branch.durability, endpoint.pg_settings)
    safekeepers = await members_of(session, branch.timeline_id, len(settings.safekeeper_wal_addresses))
    dropped = await repository.to_drop(branch.id)
    return {
        "compute_id": endpoint.id,
        "tenant_id": project.tenant_id,
        "timeline_id": branch.timeline_id,
        "pg_version": project.pg_version,
        "pg_bin_dir": str(pg_bin_dir),
        "pg_user": settings.pg_user,
        "listen": endpoint.host,
        "port": endpoint.port,
        "safekeepers": settings.wal_addresses(safekeepers),
        "pageserver": {"pages": settings.pageserver_pages, "http": settings.pageserver_http_url},
        "full_page_writes": endpoint.full_page_writes,
        "roles": [
            {"name": role.name, "password": role.scram_verifier, "keep_password": role.scram_verifier is None}
            for role in await repository.roles(branch.id)
        ],
        "databases": [
            {"name": database.name, "owner": database.owner_name}
            for database in await repository.databases(branch.id)
        ],
        "dropped_roles": [row.name for row in dropped if row.kind == DroppedKind.ROLE],
        "dropped_databases": [row.name for row in dropped if row.kind == DroppedKind.DATABASE],
        # For agents of before the two: they drop what is not listed.
        "keep_unlisted": project.keeps_unlisted,
        "settings": commits.settings,
        "compute_units": endpoint.current_cu,
        "prewarm": endpoint.prewarm,
        "durability": commits.durability.value,
        "storage_quota_bytes": project.logical_size_limit,
        "wal_bytes_per_second": project.wal_rate_limit,
        "audit_reads_per_second": AUDIT_READS_PER_SECOND,
        "quorum_timeout_ms": QUORUM_TIMEOUT_MS,
    }
