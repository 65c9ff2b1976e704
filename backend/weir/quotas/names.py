"""What quotas there are, of what each is, and what holds where nobody has set one."""

from collections.abc import Mapping
from enum import StrEnum

MOST = 2**60
NONE = "none"


class QuotaName(StrEnum):
    PROJECTS = "projects"
    API_KEYS = "api_keys"
    BRANCHES = "branches"
    COMPUTES = "computes"
    COMPUTE_UNITS = "compute_units"
    STORAGE_BYTES = "storage_bytes"
    ROLES = "roles"
    DATABASES = "databases"


class OwnerKind(StrEnum):
    """Whose a quota is. An owner of projects is an account at present; its kind and id are kept as text, so that
    another kind needs no other table."""

    ACCOUNT = "account"
    PROJECT = "project"


class Per(StrEnum):
    """Of what a quota limits the number or the sum."""

    ACCOUNT = "account"
    PROJECT = "project"
    BRANCH = "branch"


# Of an account only.
ACCOUNTS_OWN = frozenset({QuotaName.PROJECTS, QuotaName.API_KEYS})
# Of an account the sum over its projects, of a project its own; both hold.
SUMS = frozenset({QuotaName.COMPUTES, QuotaName.COMPUTE_UNITS, QuotaName.STORAGE_BYTES})
# Of each branch. An account's are those of all its projects, unless a project has its own.
OF_BRANCHES = frozenset({QuotaName.ROLES, QuotaName.DATABASES})
# A project begins with one of each.
_LEAST: Mapping[QuotaName, int] = dict.fromkeys((QuotaName.BRANCHES, QuotaName.ROLES, QuotaName.DATABASES), 1)
# Where neither the account nor the installation says: what only a program in a loop reaches.
DEFAULTS: Mapping[QuotaName, int | None] = {
    **dict.fromkeys(QuotaName, None),
    QuotaName.API_KEYS: 1000,
    QuotaName.ROLES: 500,
    QuotaName.DATABASES: 500,
}
# As sentences call so many of them.
WORDS: Mapping[QuotaName, str] = {
    QuotaName.PROJECTS: "projects",
    QuotaName.API_KEYS: "API keys",
    QuotaName.BRANCHES: "branches",
    QuotaName.COMPUTES: "computes that run at once",
    QuotaName.COMPUTE_UNITS: "compute units that run at once",
    QuotaName.STORAGE_BYTES: "bytes of storage",
    QuotaName.ROLES: "roles",
    QuotaName.DATABASES: "databases",
}


def per(name: QuotaName, kind: OwnerKind) -> Per:
    """Of what the quota of an owner of this kind is."""
    if name in OF_BRANCHES:
        return Per.BRANCH
    if name is QuotaName.BRANCHES or kind is OwnerKind.PROJECT:
        return Per.PROJECT
    return Per.ACCOUNT


def names_of(kind: OwnerKind) -> list[QuotaName]:
    """The quotas that an owner of this kind can have."""
    return [name for name in QuotaName if kind is OwnerKind.ACCOUNT or name not in ACCOUNTS_OWN]


def parse_value(name: QuotaName, written: str) -> int | None:
    """A whole number, or `none` for no limit, None. Raises ValueError for anything else."""
    if written.strip() == NONE:
        return None
    least = _LEAST.get(name, 0)
    # Longer ones are no numbers that are meant.
    value = int(written) if written.strip().isdecimal() and len(written) < 24 else -1
    if not least <= value <= MOST:
        raise ValueError(f"{name} is {written!r}; it must be a whole number from {least} to {MOST}, or {NONE!r}")
    return value


def parse_defaults(written: str) -> dict[QuotaName, int | None]:
    """What the installation says for accounts without quotas of their own: `projects=10,computes=none`."""
    found: dict[QuotaName, int | None] = {}
    for part in (word.strip() for word in written.split(",")):
        if not part:
            continue
        name, _, value = part.partition("=")
        try:
            quota = QuotaName(name.strip())
        except ValueError:
            raise ValueError(f"{name.strip()!r} is no quota; there are {', '.join(QuotaName)}") from None
        if quota in found:
            raise ValueError(f"{quota} is given twice; leave one of them out")
        found[quota] = parse_value(quota, value)
    return found
