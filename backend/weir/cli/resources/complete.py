"""Completion: the scripts for shells, and the names that the API knows.

A shell that waits for an answer shows nothing meanwhile, so that a lookup has little time and fails in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.resources.api import Api
from weir.cli.resources.target import connect

LOOKUP_SECONDS = 2.0
SHELLS = ("bash", "zsh", "fish")
# Where the shell's function puts its question.
VARIABLE = "_WEIR_COMPLETE"


def _api(ctx: click.Context) -> Api:
    home: Path | None = ctx.find_root().params.get("home")
    return connect(
        home.absolute() if home else installations.home_from_environment(),
        ctx.params.get("url"),
        ctx.params.get("api_key_file"),
        seconds=LOOKUP_SECONDS,
    )


def _words(
    look: Callable[[click.Context, Api], list[tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Of (word, what it is), those that begin as what has been typed."""

    def words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = look(ctx, _api(ctx))
        except (CliError, OSError, KeyError, TypeError):
            return []
        return [CompletionItem(word, help=what) for word, what in found if word.startswith(incomplete)]

    return words


def _of(rows: list[dict[str, Any]], name: str, what: str) -> list[tuple[str, str]]:
    """Names, and the ids of those whose name another one has too or that a shell would take apart."""
    seen = [row[name] for row in rows]
    return [
        (row["id"], row[name]) if seen.count(row[name]) > 1 or not row[name].isprintable() else (row[name], row[what])
        for row in rows
    ]


def _projects(_: click.Context, api: Api) -> list[tuple[str, str]]:
    return _of(api.call("GET", "/projects", params={"limit": 100})["projects"], "name", "id")


def _branches(ctx: click.Context, api: Api) -> list[tuple[str, str]]:
    asked = ctx.params.get("project")
    projects = api.call("GET", "/projects", params={"limit": 20})["projects"]
    chosen = [row for row in projects if asked in {None, row["id"], row["name"]}]
    rows: list[dict[str, Any]] = []
    for row in chosen:
        rows += api.call("GET", f"/projects/{row['id']}/branches", params={"limit": 100})["branches"]
    return _of(rows, "name", "id")


def _computes(_: click.Context, api: Api) -> list[tuple[str, str]]:
    rows = api.call("GET", "/computes", params={"limit": 100})["computes"]
    return [(row["id"], f"{row['branch_name']} of {row['project_name']}") for row in rows]


def _rollouts(_: click.Context, api: Api) -> list[tuple[str, str]]:
    rows = api.call("GET", "/rollouts", params={"limit": 100})["rollouts"]
    return [(row["id"], f"{row['name']}, {row['status']}") for row in rows]


project_words = _words(_projects)
branch_words = _words(_branches)
compute_words = _words(_computes)
rollout_words = _words(_rollouts)


@click.command("completion", short_help="Print the completion for a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options and names.

    \b
      eval "$(weir completion bash)"     in ~/.bashrc
      eval "$(weir completion zsh)"      in ~/.zshrc, after compinit
      weir completion fish | source      in ~/.config/fish/config.fish

    Names of projects, branches, computes and rollouts are asked of the API while you type, with the key and the
    address that the command itself would use.
    """
    made = get_completion_class(shell)
    if made is None:
        raise CliError(f"There is no completion for {shell}.")
    click.echo(made(ctx.find_root().command, {}, "weir", VARIABLE).source())
