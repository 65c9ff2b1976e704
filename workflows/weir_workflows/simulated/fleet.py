"""All computes, tenants and timelines of the simulated fleet. Pure: the time comes with each call.

A timeline's log belongs to the compute that writes it; while none runs, the timeline keeps the last state, from which
the next start takes it up. Timelines of branches begin where their parent was.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from weir.endpoints.settings import checkpoint_timeout_seconds
from weir_workflows.simulated.compute import NOTHING, Compute, Plant, version_in
from weir_workflows.simulated.profile import draw

FIRST_LSN = 0x1800000
SAFEKEEPERS = 3
DEFAULT_CONFIG: dict[str, int] = {
    "history_window_seconds": 604_800,
    "image_threshold": 128,
    # Tighter than storage's own default, so that a switch shows in the chains of a simulated fleet.
    "image_threshold_pushdown": 16,
    "checkpoint_distance_bytes": 268_435_456,
    "checkpoint_timeout_ms": 60_000,
    "compaction_threshold": 8,
    "compaction_target_bytes": 67_108_864,
    "wait_lsn_timeout_ms": 30_000,
}


class UnknownError(Exception):
    """No such tenant, timeline or compute."""


class ConflictError(Exception):
    """It exists with other values, or something still depends on it."""


@dataclass(slots=True)
class Tenant:
    config: dict[str, int] = field(default_factory=lambda: dict(DEFAULT_CONFIG))
    timelines: set[str] = field(default_factory=set[str])

    @property
    def thresholds(self) -> tuple[int, int]:
        return self.config["image_threshold"], self.config["image_threshold_pushdown"]


@dataclass(slots=True)
class Timeline:
    tenant_id: str
    timeline_id: str
    pg_version: int
    start_lsn: int
    lsn: int
    system_identifier: str
    ancestor: str | None = None
    ancestor_lsn: int | None = None
    full_page_writes: bool = True
    switch_lsn: int | None = None
    term: int = 0
    writer: Compute | None = None
    # Which safekeepers hold it.
    keepers: set[int] = field(default_factory=lambda: set(range(SAFEKEEPERS)))

    def see(self, now: float) -> "Timeline":
        """The state that storage has ingested by now."""
        writer = self.writer
        if writer is not None:
            writer.advance(now)
            self.lsn = int(writer.lsn)
            self.term = writer.term
            if writer.ingested(now):
                self.full_page_writes, self.switch_lsn = writer.full_page_writes, writer.switch_lsn or self.switch_lsn
        return self


class Fleet:
    def __init__(self, seed: int, regress_share: float = 0.0, regress_ratio: float = 1.5) -> None:
        """`regress_share` of the computes, chosen by the seed, read `regress_ratio` times slower without images."""
        self.seed = seed
        self.regress_share = regress_share
        self.regress_ratio = regress_ratio
        self.tenants: dict[str, Tenant] = {}
        self.timelines: dict[str, Timeline] = {}
        self.computes: dict[str, Compute] = {}

    # Storage.

    def tenant(self, tenant_id: str) -> Tenant:
        found = self.tenants.get(tenant_id)
        if found is None:
            raise UnknownError(f"tenant {tenant_id} is not here")
        return found

    def timeline(self, tenant_id: str, timeline_id: str) -> Timeline:
        found = self.timelines.get(timeline_id)
        if found is None or found.tenant_id != tenant_id:
            raise UnknownError(f"tenant {tenant_id} has no timeline {timeline_id}")
        return found

    def configure(self, tenant_id: str, changes: dict[str, int]) -> Tenant:
        tenant = self.tenant(tenant_id)
        unknown = sorted(set(changes) - set(DEFAULT_CONFIG))
        if unknown:
            raise ConflictError(f"tenant {tenant_id}: {', '.join(unknown)} is no setting of a tenant")
        tenant.config.update(changes)
        for timeline_id in tenant.timelines:
            writer = self.timelines[timeline_id].writer
            if writer is not None:
                writer.thresholds = tenant.thresholds
        return tenant

    def create_timeline(
        self, tenant_id: str, timeline_id: str, pg_version: int, ancestor_id: str | None, at: int | None, now: float
    ) -> tuple[Timeline, bool]:
        """The timeline, and whether it is new."""
        tenant = self.tenant(tenant_id)
        existing = self.timelines.get(timeline_id)
        if existing is not None:
            if (existing.tenant_id, existing.ancestor) != (tenant_id, ancestor_id):
                raise ConflictError(f"timeline {timeline_id} exists with another tenant or ancestor")
            return existing, False
        identifier = str(random.Random(f"{self.seed}/{timeline_id}").getrandbits(62))  # noqa: S311
        made = Timeline(tenant_id, timeline_id, pg_version, FIRST_LSN, FIRST_LSN, identifier)
        if ancestor_id is not None:
            parent = self.timeline(tenant_id, ancestor_id).see(now)
            made.ancestor, made.ancestor_lsn = ancestor_id, min(at or parent.lsn, parent.lsn)
            made.start_lsn = made.lsn = made.ancestor_lsn
            made.full_page_writes, made.switch_lsn = parent.full_page_writes, parent.switch_lsn
        self.timelines[timeline_id] = made
        tenant.timelines.add(timeline_id)
        return made, True

    def delete_timeline(self, tenant_id: str, timeline_id: str) -> None:
        found = self.timelines.get(timeline_id)
        if found is None or found.tenant_id != tenant_id:
            return
        children = [child.timeline_id for child in self.timelines.values() if child.ancestor == timeline_id]
        if children:
            raise ConflictError(f"timeline {timeline_id} has the branch {children[0]}; delete that first")
        del self.timelines[timeline_id]
        self.tenants[tenant_id].timelines.discard(timeline_id)

    def detach(self, timeline: Timeline) -> Timeline:
        """There are no layers to copy."""
        timeline.ancestor = timeline.ancestor_lsn = None
        return timeline

    def delete_tenant(self, tenant_id: str) -> None:
        tenant = self.tenants.pop(tenant_id, None)
        for timeline_id in tenant.timelines if tenant is not None else ():
            del self.timelines[timeline_id]

    # Computes.

    def compute(self, compute_id: str) -> Compute:
        found = self.computes.get(compute_id)
        if found is None:
            raise UnknownError(f"compute {compute_id} does not run")
        return found

    def start(self, spec: dict[str, Any], now: float) -> Compute:
        """Starts what does not run; the same compute when it does."""
        compute_id: str = spec["compute_id"]
        running = self.computes.get(compute_id)
        if running is not None:
            return running
        timeline = self.timeline(spec["tenant_id"], spec["timeline_id"]).see(now)
        if timeline.writer is not None:
            # As with real safekeepers: the newer term wins, the older compute is fenced.
            self.stop(timeline.writer.compute_id, now)
        timeline.term += 1
        made = Compute(
            compute_id=compute_id,
            tenant_id=timeline.tenant_id,
            timeline_id=timeline.timeline_id,
            profile=draw(self.seed, compute_id),
            port=spec["port"],
            checkpoint_seconds=float(checkpoint_timeout_seconds(spec["settings"])),
            full_page_writes=timeline.full_page_writes,
            started_at=now,
            at=now,
            lsn=float(timeline.lsn),
            start_lsn=timeline.lsn,
            thresholds=self.tenant(timeline.tenant_id).thresholds,
            postgres_version=version_in(spec.get("pg_bin_dir", "")),
            term=timeline.term,
            plant=self._planted(compute_id),
            switch_lsn=timeline.switch_lsn,
            noise=random.Random(f"{self.seed}/{compute_id}/noise"),  # noqa: S311
        )
        self.computes[compute_id] = timeline.writer = made
        made.take(spec)
        if spec["full_page_writes"] != made.full_page_writes:
            made.switch(spec["full_page_writes"], now)
        return made

    def _planted(self, compute_id: str) -> Plant:
        chance = random.Random(f"{self.seed}/{compute_id}/plant").random()  # noqa: S311
        return Plant(read_ratio=self.regress_ratio) if chance < self.regress_share else NOTHING

    def stop(self, compute_id: str, now: float) -> None:
        found = self.computes.pop(compute_id, None)
        timeline = None if found is None else self.timelines.get(found.timeline_id)
        if timeline is not None and timeline.writer is found and found is not None:
            timeline.see(now)
            timeline.full_page_writes, timeline.switch_lsn = found.full_page_writes, found.switch_lsn
            timeline.writer = None

    def take_up(self, specs: Iterable[dict[str, Any]], now: float) -> int:
        """Tenants, timelines and running computes of many specs at once; how many computes are new. Of a spec that is
        `suspended` there is no compute. For filling a fleet faster than ten thousand operations would."""
        before = len(self.computes)
        for spec in specs:
            self.tenants.setdefault(spec["tenant_id"], Tenant())
            self.create_timeline(spec["tenant_id"], spec["timeline_id"], spec["pg_version"], None, None, now)
            if not spec.get("suspended", False):
                self.start(spec, now)
        return len(self.computes) - before
