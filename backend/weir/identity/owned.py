"""Resources beyond projects whose audit entries their owner may read.

A package that has such resources registers them when the application is assembled (`weir.main`); this package knows
none of them by name."""

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import Select

# From an account's id to the names of its resources, each with the kind before it: `rollout/ro-1`.
OwnedNames = Callable[[UUID], Select[str]]

_KINDS: dict[str, OwnedNames] = {}


def register(kind: str, names: OwnedNames) -> None:
    """`kind` is what the audit log writes before the slash. A second registration of a kind replaces the first."""
    _KINDS[kind] = names


def kinds() -> list[str]:
    return sorted(_KINDS)


def names_of(account_id: UUID) -> list[Select[str]]:
    """One query for each kind."""
    return [_KINDS[kind](account_id) for kind in kinds()]
