"""What an operation holds while it is open, and which two of them may not be open together (ADR 65). Pure.

A scope is a path. `P/` is a project with all that is in it, `P/B/` a branch of it, and below a branch lie its
endpoints and its other parts. Two scopes overlap if the path of one begins the path of the other. The exclusion
constraint of `operation_locks` says the same to the database: the paths that begin with `P/B/` are the texts from
`P/B/` up to `P/B0`, since `0` follows `/`.
"""

from collections.abc import Iterable, Sequence

# Below a branch, beside its endpoints, whose ids never read so.
_HISTORY, _LOG, _RECORD = "history", "log", "record"


def _path(*names: str) -> str:
    for name in names:
        if not name or "/" in name:
            raise ValueError(f"{name!r} cannot be part of a scope: it is empty or has a slash")
    return "".join(f"{name}/" for name in names)


def of_project(project_id: str) -> str:
    """Everything in the project."""
    return _path(project_id)


def record_of_project(project_id: str) -> str:
    """What the database alone has of a project: its name, tags and settings. Only what holds the whole project
    overlaps with it."""
    return _path(project_id, _RECORD)


def of_branch(project_id: str, branch_id: str) -> str:
    """A branch's storage, its log, and its endpoints, those too that are yet to be made."""
    return _path(project_id, branch_id)


def of_endpoint(project_id: str, branch_id: str, endpoint_id: str) -> str:
    """One endpoint and its compute."""
    return _path(project_id, branch_id, endpoint_id)


def history_of(project_id: str, branch_id: str) -> str:
    """What a branch's pages are made of, its ancestry included. Computes of the branch may start and stop
    meanwhile."""
    return _path(project_id, branch_id, _HISTORY)


def log_of(project_id: str, branch_id: str) -> str:
    """Which safekeepers have the branch's log."""
    return _path(project_id, branch_id, _LOG)


def record_of(project_id: str, branch_id: str) -> str:
    """What the database alone has of a branch: its name and flags, its lists of roles, databases and endpoints. Only
    what holds the whole branch or the project overlaps with it."""
    return _path(project_id, branch_id, _RECORD)


def project_of(scope: str) -> str:
    """The project's id."""
    return scope.split("/", 1)[0]


def overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def overlaps_any(scopes: Iterable[str], others: Sequence[str]) -> bool:
    return any(overlap(one, other) for one in scopes for other in others)


def cover(scopes: Iterable[str]) -> list[str]:
    """The fewest scopes that hold the same: no two of them overlap. Sorted."""
    found: list[str] = []
    for scope in sorted(set(scopes)):
        if not found or not scope.startswith(found[-1]):
            found.append(scope)
    return found


def named(scope: str) -> str:
    """What the scope is, in words for a message."""
    names = scope.rstrip("/").split("/")
    if len(names) == 1 or names[1] == _RECORD:
        return f"project {names[0]}"
    if len(names) == 2 or names[2] in {_HISTORY, _LOG, _RECORD}:
        return f"branch {names[1]}"
    return f"endpoint {names[2]}"
