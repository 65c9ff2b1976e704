"""A minor of Postgres: computes are restarted onto it; a rollback restarts them onto the minor that ran before."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, DateTime, false, func, null, type_coerce

from weir import postgres_versions
from weir.config import get_settings
from weir.endpoints.models import Endpoint
from weir.errors import BadRequestError
from weir.rollouts.features.protocol import Candidate
from weir.rollouts.intent import Strategy
from weir.rollouts.models import ExclusionCode

# A compute that has just started reads from storage what it had in memory before. What it does meanwhile says little
# about the minor.
SETTLE_SECONDS = 30


class PostgresMinor:
    name = "postgres_minor"
    in_words = (
        "Another minor of Postgres: each compute is stopped cleanly and started with it; its clients are "
        "disconnected for as long as that takes, and connect again."
    )

    done_in_words = (
        "A switch counts as done when the compute's agent says the new minor and Postgres answers queries. How "
        "long the compute accepted no connections is from the stop until its agent said that it serves queries again."
    )

    def resolved(self, strategy: Strategy) -> Strategy:
        available = postgres_versions.available(get_settings())
        target = strategy.target_version or postgres_versions.newest(available)
        if target is None:
            raise BadRequestError(
                f"target_version: no Postgres is installed in {get_settings().pg_bin_dir}, and none was copied before"
            )
        if target not in available:
            there = ", ".join(available) or "none"
            raise BadRequestError(f"target_version: Postgres {target} is not installed here; there is {there}")
        changes: dict[str, Any] = {"target_version": target}
        if "settle_seconds" not in strategy.model_fields_set:
            changes["settle_seconds"] = SETTLE_SECONDS
        return strategy.model_copy(update=changes)

    def exclusion(self, candidate: Candidate, strategy: Strategy) -> tuple[ExclusionCode, str] | None:
        endpoint, major = candidate.row.endpoint, candidate.row.project.pg_version
        target, current = _target(strategy), _current(endpoint)
        if major != postgres_versions.major_of(target):
            return "other_major", f"is of Postgres {major}, and {target} is not a minor of that"
        if current is None:
            return "never_started", "has not been started yet; its first start takes the newest minor there is"
        if current == target and endpoint.postgres_version in {None, target}:
            return "already_on", f"runs {target} already"
        if current not in postgres_versions.available(get_settings()):
            return "no_way_back", f"runs {current}, whose files are gone: it could not go back"
        return None

    def wal_saved(self, candidate: Candidate) -> float | None:
        del candidate
        return None

    def versions(self, candidate: Candidate, strategy: Strategy) -> tuple[str | None, str | None]:
        return _current(candidate.row.endpoint), _target(strategy)

    @property
    def has(self) -> ColumnElement[bool]:
        """The newest there is, which is also what a compute takes that has no wish yet."""
        newest = postgres_versions.newest(postgres_versions.available(get_settings()))
        return false() if newest is None else func.coalesce(Endpoint.postgres_version, newest) == newest

    @property
    def since(self) -> ColumnElement[datetime | None]:
        """Nobody writes down when a minor was first wanted."""
        return type_coerce(null(), DateTime(timezone=True))


def _target(strategy: Strategy) -> str:
    if strategy.target_version is None:
        raise ValueError("the strategy has no target_version; it is fixed before anything is planned")
    return strategy.target_version


def _current(endpoint: Endpoint) -> str | None:
    return endpoint.running_postgres_version or endpoint.postgres_version
