"""Which levels may not be chosen, and what computes are given then.

Two policies add up: the installation's (`[durability] forbid` of weir.toml), set by its operator, and a project's,
set by its owner. They are looked at twice. A request that asks for a forbidden level is refused. What was chosen
before a policy forbade it stays stored, and computes are given the weakest level above it that is allowed.
"""

from dataclasses import dataclass
from typing import Any, Literal

from weir.config import get_settings
from weir.durability.levels import SETTING, Durability, chosen_by_settings
from weir.errors import PreconditionFailedError
from weir.projects.models import Project

Owner = Literal["installation", "project"]
_WHERE: dict[Owner, str] = {
    "installation": "the installation's policy ([durability] forbid in weir.toml)",
    "project": "the project's policy (settings.durability.forbid)",
}


@dataclass(frozen=True)
class Policy:
    """Levels that are forbidden, and by whom; the installation comes first where both do."""

    forbidden: dict[Durability, Owner]

    @classmethod
    def of(cls, installation: frozenset[Durability], project: frozenset[Durability]) -> "Policy":
        return cls(
            {level: "installation" if level in installation else "project" for level in installation | project}
        )

    def allowed(self) -> list[Durability]:
        return [level for level in Durability if level not in self.forbidden]

    def effective(self, level: Durability) -> Durability:
        """The level itself, or the weakest above it that is allowed; `flush` and `apply` always are."""
        return next(each for each in self.allowed() if not each.weaker_than(level))

    def refuse(self, level: Durability | None, what: str) -> None:
        """Raises PreconditionFailedError, which names the policy, when the level is forbidden."""
        owner = None if level is None else self.forbidden.get(level)
        if owner is not None:
            raise PreconditionFailedError(
                f"{what} is the durability level {level}, which {_WHERE[owner]} forbids; choose one of "
                f"{', '.join(self.allowed())}"
            )

    def refuse_settings(self, settings: dict[str, Any] | None) -> None:
        value = (settings or {}).get(SETTING)
        if settings is not None and value is not None:
            self.refuse(chosen_by_settings(settings), f"pg_settings: {SETTING} = {value}")


@dataclass(frozen=True)
class Wanted:
    """What a compute is to be given: `durability` and `settings` of its spec, and the level that sessions begin with
    by both together (None when Postgres does not know the value among the settings)."""

    durability: Durability
    settings: dict[str, Any]
    level: Durability | None


def wanted(policy: Policy, branch: Durability, settings: dict[str, Any]) -> Wanted:
    durability = policy.effective(branch)
    if SETTING not in settings:
        return Wanted(durability, settings, durability)
    level = chosen_by_settings(settings)
    if level in policy.forbidden:
        kept = {name: value for name, value in settings.items() if name != SETTING}
        return Wanted(durability, kept, durability)
    return Wanted(durability, settings, level)


def policy_of(project: Project) -> Policy:
    return Policy.of(get_settings().forbidden_durability, project.forbidden_durability)
