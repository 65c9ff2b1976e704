"""The fleet's state as the JSON of the real programs (docs/interfaces.md)."""

from datetime import UTC, datetime
from typing import Any

from weir.kit.ids import format_lsn
from weir_workflows.simulated.compute import Compute
from weir_workflows.simulated.fleet import Tenant, Timeline

_START = ("total_ms", "elect_ms", "bundle_ms", "postgres_ms", "pages_fetched", "bytes_fetched")


def _lsn(value: float | None) -> str | None:
    return None if value is None else format_lsn(int(value))


def compute_status(compute: Compute, now: float) -> dict[str, Any]:
    compute.advance(now)
    lsn = _lsn(compute.lsn)
    return {
        "compute_id": compute.compute_id,
        "state": "running",
        "reason": None,
        "term": compute.term,
        "start_lsn": _lsn(compute.start_lsn),
        "commit_lsn": lsn,
        "ingested_lsn": lsn,
        "full_page_writes": {"enabled": compute.full_page_writes, "lsn": _lsn(compute.switch_lsn)},
        "started_at": datetime.fromtimestamp(compute.started_at, UTC).isoformat().replace("+00:00", "Z"),
        "start": dict.fromkeys(_START, 0),
        "port": compute.port,
        "active_connections": 0,
        "restarts": compute.restarts,
        "postgres_version": compute.postgres_version,
        "synchronous_commit": compute.synchronous_commit,
        "simulated": True,
    }


def tenant(tenant_id: str, held: Tenant) -> dict[str, Any]:
    return {"id": tenant_id, "timelines": sorted(held.timelines), "config": held.config}


def timeline_at_pageserver(timeline: Timeline, held: Tenant, now: float) -> dict[str, Any]:
    timeline.see(now)
    lsn = _lsn(timeline.lsn)
    threshold = held.thresholds[0 if timeline.full_page_writes else 1]
    size = 0 if timeline.writer is None else timeline.writer.profile.size_bytes
    return {
        "timeline_id": timeline.timeline_id,
        "tenant_id": timeline.tenant_id,
        "state": "active",
        "reason": None,
        "pg_version": timeline.pg_version,
        "system_identifier": timeline.system_identifier,
        "start_lsn": _lsn(timeline.start_lsn),
        "last_record_lsn": lsn,
        "disk_consistent_lsn": lsn,
        "remote_consistent_lsn": lsn,
        "prev_record_lsn": lsn,
        "ancestor_timeline_id": timeline.ancestor,
        "ancestor_lsn": _lsn(timeline.ancestor_lsn),
        "current_logical_size": size,
        "full_page_writes": {"enabled": timeline.full_page_writes, "lsn": _lsn(timeline.switch_lsn or 0)},
        "image_threshold": threshold,
        "max_term": timeline.term,
        "layers": {"delta": 1, "image": 1, "bytes": size},
        "safekeepers": [],
        "simulated": True,
    }


def detached(timeline: Timeline) -> dict[str, Any]:
    state = "detached" if timeline.ancestor is None else "attached"
    counts = dict.fromkeys(("layers", "layers_copied", "bytes", "bytes_copied"), 0)
    return {"state": state, "reason": None, **counts, "simulated": True}


def timeline_at_safekeeper(timeline: Timeline, now: float) -> dict[str, Any]:
    timeline.see(now)
    lsn = _lsn(timeline.lsn)
    return {
        "tenant_id": timeline.tenant_id,
        "timeline_id": timeline.timeline_id,
        "term": timeline.term,
        "term_history": [{"term": timeline.term, "start_lsn": _lsn(timeline.start_lsn)}],
        "flush_lsn": lsn,
        "commit_lsn": lsn,
        "remote_consistent_lsn": lsn,
        "oldest_lsn": _lsn(timeline.start_lsn),
        "state": "active",
        "reason": None,
        "simulated": True,
    }
