from typing import Annotated, Literal

from pydantic import AfterValidator

from weir.durability.levels import WEAK, Durability
from weir.kit.schemas import Body, View


def _weak(level: Durability) -> Durability:
    if level not in WEAK:
        raise ValueError(f"{level} cannot be forbidden; of the levels only {' and '.join(WEAK)} can")
    return level


class DurabilityPolicy(Body):
    """Levels that may not be chosen: of the weak ones, `off` and `receive`, alone. Sessions may choose them all the
    same, by `synchronous_commit`: Postgres lets every session."""

    forbid: list[Annotated[Durability, AfterValidator(_weak)]]


class LevelView(View):
    """`synchronous_commit` is the value by which a session chooses the level."""

    level: Durability
    synchronous_commit: str
    forbidden_by: Literal["installation", "project"] | None = None


class BranchDurability(View):
    """`level` is what was chosen for the branch. `effective` is what its computes are given: the same, or the weakest
    level above it that the policies allow. An endpoint's own setting `synchronous_commit` wins where allowed."""

    branch_id: str
    level: Durability
    effective: Durability
    # All levels, from the weakest.
    levels: list[LevelView]


class ChosenLevel(View):
    """What `ALTER ROLE` or `ALTER DATABASE ... SET synchronous_commit` has chosen for the sessions of a role (null:
    of all roles) in a database (null: in all)."""

    role: str | None = None
    database: str | None = None
    synchronous_commit: str
    # Null for a value that Postgres does not know, which it then ignores.
    level: Durability | None = None
    # Weaker than what sessions of the compute begin with.
    weaker: bool
    # One that a policy forbids to branches. Postgres lets roles and sessions choose it all the same.
    forbidden: bool


class ComputeDurability(View):
    """What roles and databases of a compute have chosen for their sessions. What a session chooses for itself only
    that session knows."""

    compute_id: str
    chosen: list[ChosenLevel]
    # There are more than are listed.
    more: bool
