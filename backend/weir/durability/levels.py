"""The levels of durability (docs/durability.md), and Postgres's words for them."""

from enum import StrEnum
from typing import Any

# The setting by which sessions, roles, databases and endpoints choose a level of their own.
SETTING = "synchronous_commit"


class Durability(StrEnum):
    """What a commit waits for. From least to most, in this order."""

    OFF = "off"
    RECEIVE = "receive"
    FLUSH = "flush"
    APPLY = "apply"

    @property
    def synchronous_commit(self) -> str:
        return _WORDS[self]

    def weaker_than(self, other: "Durability") -> bool:
        return _ORDER.index(self) < _ORDER.index(other)


_ORDER = tuple(Durability)
_WORDS = {
    Durability.OFF: "off",
    Durability.RECEIVE: "remote_write",
    Durability.FLUSH: "on",
    Durability.APPLY: "remote_apply",
}
# As Postgres reads them. `local` waits for the compute's disk alone, which no start looks at again.
_LEVELS = {word: level for level, word in _WORDS.items()} | {
    **dict.fromkeys(("local", "false", "no", "0"), Durability.OFF),
    **dict.fromkeys(("true", "yes", "1"), Durability.FLUSH),
}


# Commits at these can be lost by what the others survive; a policy can forbid them.
WEAK = (Durability.OFF, Durability.RECEIVE)


def level_of(synchronous_commit: str) -> Durability | None:
    """The level that a value of the setting is; None for a value that Postgres does not know."""
    return _LEVELS.get(synchronous_commit.strip().lower())


def chosen_by_settings(settings: dict[str, Any]) -> Durability | None:
    """The level that an endpoint's own settings ask for, which wins over its branch's."""
    value = settings.get(SETTING)
    return None if value is None else level_of(str(value))
