"""From what a person types, an id or a name, to the one thing that is meant.

An id wins. A name that several things have is refused with their ids: nothing is ever done to the first that fits."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from weir.cli.errors import CliError
from weir.cli.output import table
from weir.cli.resources.api import Api, NotThereError, path
from weir.cli.resources.show import text

Row = dict[str, Any]
_ID = re.compile(r"^[a-z0-9-]{1,60}$")
# Projects in which a branch is looked for when none is named.
MOST_PROJECTS = 50
_SHOWN = 10


def project(api: Api, word: str | None) -> Row:
    """The project of that id or name; without a word, the only one there is."""
    if word is None:
        rows = api.every("/projects", "projects", most=_SHOWN + 1)["projects"]
        if len(rows) == 1:
            return rows[0]
        if not rows:
            raise CliError("There is no project yet. `weir projects create NAME` makes one.")
        raise CliError(
            "There are several projects. Say which one by --project, or for all commands by WEIR_PROJECT:\n"
            + _choice(rows, lambda row: str(row["name"]))
        )
    found = by_id(api, ("projects", word), "project")
    if found is not None:
        return found
    rows = api.every("/projects", "projects", {"search": word})["projects"]
    return one("project", word, rows, lambda row: str(row["name"]), "`weir projects list` shows what there is.")


def project_id(api: Api, word: str | None) -> str:
    """As `project`, and a project that has been deleted by its id: its operations can still be asked for."""
    try:
        return str(project(api, word)["id"])
    except CliError:
        if word is not None and _ID.match(word):
            api.call("GET", path("projects", word, "operations"), params={"limit": 1})
            return word
        raise


def branch(api: Api, word: str | None, project_word: str | None) -> Row:
    """The branch of that id or name, in the project named, or in whichever project has it; the project's default
    branch without a word."""
    if word is None:
        return default_branch(api, str(project(api, project_word)["id"]))
    if project_word is not None:
        inside = project(api, project_word)
        found = _branches(api, inside, word)
        where = f"`weir branches list --project {inside['id']}` shows what there is."
        return one("branch", word, found, lambda row: str(row["name"]), where)
    projects = api.every("/projects", "projects", most=MOST_PROJECTS + 1)["projects"]
    if len(projects) > MOST_PROJECTS:
        raise CliError(f"There are more than {MOST_PROJECTS} projects; say by --project in which {word!r} is.")
    found = [row for inside in projects for row in _branches(api, inside, word)]
    names = {row["id"]: row["name"] for row in projects}
    return one(
        "branch",
        word,
        found,
        lambda row: f"of project {names[row['project_id']]} ({row['project_id']})",
        "`weir branches list` shows what there is.",
        "name the project by --project, or give an id",
    )


def _branches(api: Api, inside: Row, word: str) -> list[Row]:
    """The branches of a project whose id or name the word is."""
    found = by_id(api, ("projects", str(inside["id"]), "branches", word), "branch")
    if found is not None:
        return [found]
    where = path("projects", str(inside["id"]), "branches")
    return [row for row in api.every(where, "branches", {"search": word})["branches"] if row["name"] == word]


def default_branch(api: Api, ident: str) -> Row:
    rows = api.every(path("projects", ident, "branches"), "branches")["branches"]
    return next(row for row in rows if row["default"])


def compute(api: Api, word: str, project_word: str | None) -> Row:
    """The compute of that id, or of the branch of that id or name, as the list of computes shows it."""
    found = by_id(api, ("computes", word), "compute")
    inside = str(project(api, project_word)["id"]) if project_word is not None else None
    if found is not None:
        if inside not in {None, found["project_id"]}:
            raise CliError(f"Compute {word} is of project {found['project_id']}, not of {inside}.")
        return found
    rows = api.every("/computes", "computes", {"q": word, "project_id": inside})["computes"]
    if word.startswith("br-"):
        # The list is searched by names; a branch given by its id has another name.
        whole = api.every("/computes", "computes", {"project_id": inside})["computes"]
        rows += [row for row in whole if row["branch_id"] == word and row not in rows]
    fit = [row for row in rows if word in {row["branch_id"], row["branch_name"]}]
    return one(
        "compute",
        word,
        fit,
        lambda row: f"of branch {row['branch_name']} in project {row['project_name']} ({row['project_id']})",
        "It has to be a compute's id or the name of a branch that has one; `weir computes list` shows them.",
        "name the project by --project, or give the compute's id",
    )


def rollout(api: Api, word: str) -> Row:
    found = by_id(api, ("rollouts", word), "rollout")
    if found is not None:
        return found
    rows = api.every("/rollouts", "rollouts")["rollouts"]
    summary = one(
        "rollout",
        word,
        rows,
        lambda row: f"{row['name']}, {row['status']}, of {row['created_at'][:19]}",
        "`weir rollouts list` shows what there is.",
    )
    return api.call("GET", path("rollouts", summary["id"]))["rollout"]


def by_id(api: Api, where: Sequence[str], key: str) -> Row | None:
    """What has this id; None when nothing has, or when the word could not be an id."""
    if not _ID.match(where[-1]):
        return None
    try:
        return api.call("GET", path(*where)).get(key)
    except NotThereError:
        return None


def one(
    kind: str,
    word: str,
    rows: Sequence[Row],
    said: Callable[[Row], str],
    look: str,
    remedy: str = "give an id",
) -> Row:
    """The only row that the word is the id, or else the name, of. `said` tells rows apart in the refusal, `look` says
    where a person finds what there is."""
    exact = [row for row in rows if row.get("id") == word] or [
        row for row in rows if word in {row.get("name"), row.get("branch_name"), row.get("branch_id")}
    ]
    if not exact:
        raise CliError(f"There is no {kind} {word!r}. {look}")
    if len(exact) > 1:
        raise CliError(
            f"{len(exact)} things of the kind {kind} are called {word!r}; {remedy}:\n{_choice(exact, said)}"
        )
    return exact[0]


def _choice(rows: Sequence[Row], said: Callable[[Row], str]) -> str:
    lines = table(("  ID", ""), [(f"  {row['id']}", text(said(row))) for row in rows[:_SHOWN]]).splitlines()[1:]
    return "\n".join([*lines, *(["  ..."] if len(rows) > _SHOWN else [])])
