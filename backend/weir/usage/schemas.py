from datetime import datetime
from enum import StrEnum
from uuid import NAMESPACE_URL, UUID, uuid5

from pydantic import Field

from weir.kit.pagination import Pagination
from weir.kit.schemas import View
from weir.usage.reading import Timeframe, month_after, month_of

# Nobody is billed here: what there is of a plan is its name.
PLAN = "self_hosted"


class Metric(StrEnum):
    """What the second version of the published API can be asked for."""

    COMPUTE_UNIT_SECONDS = "compute_unit_seconds"
    ROOT_BRANCH_BYTES_MONTH = "root_branch_bytes_month"
    CHILD_BRANCH_BYTES_MONTH = "child_branch_bytes_month"
    INSTANT_RESTORE_BYTES_MONTH = "instant_restore_bytes_month"
    SNAPSHOT_STORAGE_BYTES_MONTH = "snapshot_storage_bytes_month"
    PUBLIC_NETWORK_TRANSFER_BYTES = "public_network_transfer_bytes"
    PRIVATE_NETWORK_TRANSFER_BYTES = "private_network_transfer_bytes"
    EXTRA_BRANCHES_MONTH = "extra_branches_month"


# By which amount each is answered. What is not here nobody measures.
MEASURED = {
    Metric.COMPUTE_UNIT_SECONDS: "unit_seconds",
    Metric.ROOT_BRANCH_BYTES_MONTH: "root_byte_hours",
    Metric.CHILD_BRANCH_BYTES_MONTH: "child_byte_hours",
    Metric.INSTANT_RESTORE_BYTES_MONTH: "history_byte_hours",
    Metric.SNAPSHOT_STORAGE_BYTES_MONTH: "snapshot_byte_hours",
}

# What is told of branches. A snapshot is no branch: its storage counts with its project alone.
MEASURED_OF_BRANCHES = [metric for metric in MEASURED if metric is not Metric.SNAPSHOT_STORAGE_BYTES_MONTH]


class ConsumptionTimeframe(View):
    """What was used from `timeframe_start` on and before `timeframe_end`. `active_time_seconds`: that computes ran;
    `compute_time_seconds`: the same, each second counted with the compute's size. `written_data_bytes`: WAL.
    `synthetic_storage_size_bytes`: held when storage was asked last in the timeframe, the data of all branches and
    the WAL of their history; `logical_size_bytes`: of it the data. Byte-hours are bytes times hours held."""

    timeframe_start: datetime
    timeframe_end: datetime
    active_time_seconds: int
    compute_time_seconds: int
    # Weir's own: of processors that computes kept busy.
    cpu_time_seconds: int
    written_data_bytes: int
    synthetic_storage_size_bytes: int
    data_storage_bytes_hour: int
    logical_size_bytes: int
    logical_size_bytes_hour: int

    @classmethod
    def of(cls, frame: Timeframe) -> "ConsumptionTimeframe":
        amounts = frame.amounts
        data = amounts.root_byte_hours + amounts.child_byte_hours + amounts.snapshot_byte_hours
        return cls(
            timeframe_start=frame.start,
            timeframe_end=frame.end,
            active_time_seconds=round(amounts.active_seconds),
            compute_time_seconds=round(amounts.unit_seconds),
            cpu_time_seconds=round(amounts.processor_seconds),
            written_data_bytes=amounts.written_bytes,
            synthetic_storage_size_bytes=(amounts.logical_bytes or 0) + (amounts.history_bytes or 0),
            data_storage_bytes_hour=round(data + amounts.history_byte_hours),
            logical_size_bytes=amounts.logical_bytes or 0,
            logical_size_bytes_hour=round(data),
        )


class ConsumptionPeriod(View):
    """A month (UTC) of an organisation; `period_end` is absent of the current one."""

    period_id: UUID
    period_plan: str = PLAN
    period_start: datetime
    period_end: datetime | None = None
    consumption: list[ConsumptionTimeframe]


class AccountConsumption(View):
    periods: list[ConsumptionPeriod]


class ProjectConsumption(View):
    project_id: str
    # Weir's own, as is the next.
    project_name: str
    deleted: bool = Field(description="Whether the project is gone, or another organization's by now")
    periods: list[ConsumptionPeriod]


class ProjectsConsumption(View):
    projects: list[ProjectConsumption]
    pagination: Pagination


class ConsumptionMetricValue(View):
    metric_name: Metric
    value: int


class ConsumptionTimeframeV2(View):
    timeframe_start: datetime
    timeframe_end: datetime
    metrics: list[ConsumptionMetricValue]


class ConsumptionPeriodV2(View):
    period_id: UUID
    period_plan: str = PLAN
    period_start: datetime
    period_end: datetime | None = None
    consumption: list[ConsumptionTimeframeV2]


class ProjectConsumptionV2(View):
    project_id: str
    periods: list[ConsumptionPeriodV2]


class ProjectsConsumptionV2(View):
    projects: list[ProjectConsumptionV2]
    pagination: Pagination


class BranchConsumptionV2(View):
    project_id: str
    branch_id: str
    periods: list[ConsumptionPeriodV2]


class BranchesConsumptionV2(View):
    branches: list[BranchConsumptionV2]
    pagination: Pagination


def periods(account_id: UUID, frames: list[Timeframe], at: datetime) -> list[ConsumptionPeriod]:
    return [
        ConsumptionPeriod(
            period_id=period_id(account_id, month),
            period_start=month,
            period_end=_end(month, at),
            consumption=[ConsumptionTimeframe.of(frame) for frame in inside],
        )
        for month, inside in _by_month(frames).items()
    ]


def periods_v2(
    account_id: UUID, frames: list[Timeframe], metrics: list[Metric], at: datetime
) -> list[ConsumptionPeriodV2]:
    """The metrics must be MEASURED."""
    return [
        ConsumptionPeriodV2(
            period_id=period_id(account_id, month),
            period_start=month,
            period_end=_end(month, at),
            consumption=[
                ConsumptionTimeframeV2(
                    timeframe_start=frame.start,
                    timeframe_end=frame.end,
                    metrics=[
                        ConsumptionMetricValue(
                            metric_name=metric, value=round(getattr(frame.amounts, MEASURED[metric]))
                        )
                        for metric in metrics
                    ],
                )
                for frame in inside
            ],
        )
        for month, inside in _by_month(frames).items()
    ]


def period_id(account_id: UUID, month: datetime) -> UUID:
    """The same at each request."""
    return uuid5(NAMESPACE_URL, f"weir:{account_id}:{month:%Y-%m}")


def _end(month: datetime, at: datetime) -> datetime | None:
    after = month_after(month)
    return after if after <= at else None


def _by_month(frames: list[Timeframe]) -> dict[datetime, list[Timeframe]]:
    found: dict[datetime, list[Timeframe]] = {}
    for frame in frames:
        found.setdefault(month_of(frame.start), []).append(frame)
    return found
