"""What is done to a branch that is there: another state, another default, an expiry, another name."""

from datetime import UTC, datetime
from typing import Any

import click

from weir.cli.errors import CliError
from weir.cli.resources.api import path
from weir.cli.resources.complete import branch_words
from weir.cli.resources.moments import AHEAD, BACK, LSN
from weir.cli.resources.show import fields, moment, size
from weir.cli.resources.use import Use, branch_argument, confirm, resource, yes_option

_LONGEST_NAME = 256
_preserve = click.option(
    "--preserve-as", metavar="NAME", help="Keep what the branch is now as a branch of that name."
)


def path_of(row: dict[str, Any]) -> str:
    return path("projects", row["project_id"], "branches", row["id"])


def described(row: dict[str, Any], computes: list[dict[str, Any]] | None = None) -> str:
    begins = row.get("parent_lsn") or None
    pairs: list[tuple[str, object]] = [
        ("Branch", row["name"]),
        ("Id", row["id"]),
        ("Project", row["project_id"]),
        ("Parent", row.get("parent_id")),
        ("Begins at", f"{begins}, {moment(row.get('parent_timestamp')) or 'its head then'}" if begins else None),
        ("State", row["current_state"]),
        ("Default", row["default"]),
        ("Protected", row["protected"]),
        ("Durability", row["durability"]),
        ("Size", size(row.get("logical_size"))),
        ("History", size(row.get("history_size"))),
        ("Expires", moment(row.get("expires_at")) or "never"),
        ("Reset", moment(row.get("last_reset_at")) or "never"),
        ("Created", moment(row["created_at"])),
    ]
    if computes is not None:
        pairs.append(("Compute", ", ".join(compute["id"] for compute in computes)))
    return fields(pairs)


@click.command("restore")
@branch_argument
@click.option("--at", type=BACK, help="To that moment: 2026-05-04T12:30:00Z, or 10m, 2h, 3d ago.")
@click.option("--lsn", type=LSN, help="To that LSN, rounded down to a record.")
@click.option(
    "--from",
    "source",
    metavar="BRANCH",
    shell_complete=branch_words,
    help="To a state of another branch; its newest one without --at and --lsn [default: its own past]",
)
@_preserve
@yes_option
@resource(waits=True)
def restore(
    use: Use,
    branch: str,
    at: str | None,
    lsn: str | None,
    source: str | None,
    preserve_as: str | None,
    *,
    yes: bool,
) -> None:
    """Put a branch back to a moment of its past, or to a state of another branch. Its id and address stay.

    \b
      weir branches restore main --at 10m
      weir branches restore main --lsn 0/16B3748 --preserve-as main-broken
      weir branches restore dev --from main

    Back in its own past, what the branch is now always stays as another branch: NAME-before-TIME unless --preserve-as
    names it. Put to another branch's state without --preserve-as, what the branch is now goes; you are asked first.
    """
    if at is not None and lsn is not None:
        raise click.UsageError("Give --at or --lsn, not both.")
    row = use.branch(branch)
    origin = row if source is None else _source(use, row, source)
    if origin["id"] == row["id"] and at is None and lsn is None:
        raise click.UsageError("Say to which moment with --at or --lsn, or to which branch with --from.")
    if origin["id"] == row["id"] and preserve_as is None:
        preserve_as = f"{row['name'][: _LONGEST_NAME - 30]}-before-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        use.note(f"what {row['name']} is now stays as branch {preserve_as}")
    _put_back(use, row, origin["id"], at, lsn, preserve_as, yes=yes)


@click.command("reset")
@branch_argument
@_preserve
@yes_option
@resource(waits=True)
def reset(use: Use, branch: str, preserve_as: str | None, *, yes: bool) -> None:
    """Put a branch to its parent's newest state. Its id and address stay.

    \b
      weir branches reset dev
      weir branches reset dev --preserve-as dev-before

    Without --preserve-as what the branch is now goes, and you are asked first.
    """
    row = use.branch(branch)
    if row.get("parent_id") is None:
        raise CliError(
            f"Branch {row['name']!r} has no parent to reset it from. `weir branches restore {row['name']} --from "
            "BRANCH` puts it to another branch's state."
        )
    _put_back(use, row, row["parent_id"], None, None, preserve_as, yes=yes)


def _source(use: Use, row: dict[str, Any], word: str) -> dict[str, Any]:
    """Of the same project as the branch: states are shared inside one alone."""
    use.project_word = row["project_id"]
    return use.branch(word)


def _put_back(
    use: Use,
    row: dict[str, Any],
    source: str,
    at: str | None,
    lsn: str | None,
    preserve_as: str | None,
    *,
    yes: bool,
) -> None:
    if preserve_as is None:
        confirm(
            f"What branch {row['name']!r} ({row['id']}) holds now will be gone for good; --preserve-as NAME keeps "
            "it. Go on?",
            yes=yes,
        )
    given = {
        "source_branch_id": source,
        "source_timestamp": at,
        "source_lsn": lsn,
        "preserve_under_name": preserve_as,
    }
    body = {key: value for key, value in given.items() if value is not None}
    answer = use.api.call("POST", path_of(row) + "/restore", body)
    use.say(answer, described(answer["branch"]))
    use.finish(answer, "put back")


@click.command("set-default")
@branch_argument
@resource()
def set_default(use: Use, branch: str) -> None:
    """Make a branch the project's default one: what is meant where no branch is named."""
    answer = use.api.call("POST", path_of(use.branch(branch)) + "/set_as_default")
    use.say(answer, described(answer["branch"]))


@click.command("set-expiry")
@branch_argument
@click.argument("when")
@resource(waits=True)
def set_expiry(use: Use, branch: str, when: str) -> None:
    """Have a branch deleted at a moment, or never.

    \b
      weir branches set-expiry review-42 7d
      weir branches set-expiry review-42 2026-05-04T12:30:00Z
      weir branches set-expiry review-42 never

    Refused for the default branch, protected ones and those that others were made from.
    """
    moment_wanted = None if when == "never" else AHEAD.convert(when, None, click.get_current_context())
    _update(use, branch, {"expires_at": moment_wanted})


@click.command("rename")
@branch_argument
@click.argument("name")
@resource(waits=True)
def rename(use: Use, branch: str, name: str) -> None:
    """Give a branch another name. Its id and address stay."""
    _update(use, branch, {"name": name})


@click.command("protect")
@branch_argument
@click.option("--off", is_flag=True, help="Not any longer.")
@resource(waits=True)
def protect(use: Use, branch: str, *, off: bool) -> None:
    """Keep a branch from being deleted, restored or expiring; --off ends that."""
    _update(use, branch, {"protected": not off})


def _update(use: Use, branch: str, body: dict[str, Any]) -> None:
    answer = use.api.call("PATCH", path_of(use.branch(branch)), {"branch": body})
    use.say(answer, described(answer["branch"]))
    use.finish(answer, "changed")


@click.command("detach")
@branch_argument
@resource(waits=True)
def detach(use: Use, branch: str) -> None:
    """Make a branch independent of its parent, which can be deleted afterwards. Storage copies what they share.

    The branch's compute runs on meanwhile. It can take long: --no-wait returns at once.
    """
    answer = use.api.call("POST", path_of(use.branch(branch)) + "/detach")
    use.say(answer, described(answer["branch"]))
    use.finish(answer, "detached")


COMMANDS = (restore, reset, set_default, set_expiry, rename, protect, detach)
