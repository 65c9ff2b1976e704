"""What the commands have in common: their options, and the call in hand."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from weir.cli.errors import CliError
from weir.cli.resources import names, show, waiting
from weir.cli.resources.api import Api
from weir.cli.resources.complete import branch_words, compute_words, project_words
from weir.cli.resources.target import connect

WAIT_SECONDS = 600.0
Command = Callable[..., Any]


@dataclass
class Use:
    """One run of a command. The API is looked for when it is needed first, so that `--help` needs none."""

    home: Path
    url: str | None
    key_file: Path | None
    json: bool
    project_word: str | None
    wait: bool
    timeout: float
    _api: list[Api] = field(default_factory=list[Api])

    @property
    def api(self) -> Api:
        if not self._api:
            self._api.append(connect(self.home, self.url, self.key_file))
        return self._api[0]

    def project(self) -> dict[str, Any]:
        return names.project(self.api, self.project_word)

    def branch(self, word: str | None) -> dict[str, Any]:
        return names.branch(self.api, word, self.project_word)

    def compute(self, word: str) -> dict[str, Any]:
        return names.compute(self.api, word, self.project_word)

    def say(self, document: object, words: str) -> None:
        """The API's own answer with `--output json`, or the same in words."""
        click.echo(show.as_json(document) if self.json else words)

    def finish(self, answer: dict[str, Any] | None, done: str) -> None:
        """Waits for the operations of an answer, unless told not to; then says in words what is done."""
        operations = (answer or {}).get("operations") or []
        if operations and not self.wait:
            ids = " ".join(row["id"] for row in operations)
            self.note(f"queued; `weir operations wait {ids} --project {operations[0]['project_id']}` waits for it")
            return
        seconds = waiting.finish(self.api, operations, self.timeout) if operations else 0.0
        self.note(f"{done} ({seconds:.1f} s)" if operations else done)

    def note(self, words: str) -> None:
        """For a person, on the error stream: what a program reads is on the other."""
        if not self.json:
            click.echo(f"  {words}", err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is lost. Where nobody can answer, the command is refused unless it says `--yes`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError(f"{question} Nobody is there to answer; say --yes to do it.")
    if not click.confirm(question, default=False, err=True):
        raise CliError("Nothing is done.")


def resource(*, project: bool = True, waits: bool = False) -> Callable[[Command], Command]:
    """Gives a command its common options, and the `Use` they make in their place. `project`: it has --project;
    `waits`: it starts operations."""

    def decorate(function: Command) -> Command:
        @click.pass_context
        @functools.wraps(function)
        def run(ctx: click.Context, **given: Any) -> Any:
            use = Use(
                home=ctx.obj,
                url=given.pop("url"),
                key_file=given.pop("api_key_file"),
                json=given.pop("output") == "json",
                project_word=given.pop("project", None),
                wait=not given.pop("no_wait", False),
                timeout=given.pop("timeout", WAIT_SECONDS),
            )
            return function(use, **given)

        wrapped: Command = run
        options: list[Command] = [*(_PROJECT if project else []), *(_WAITING if waits else []), *_COMMON]
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


_PROJECT = [
    click.option(
        "-p",
        "--project",
        metavar="PROJECT",
        envvar="WEIR_PROJECT",
        shell_complete=project_words,
        help="The project's id or name [default: $WEIR_PROJECT, or the only one there is]",
    )
]
_WAITING = [
    click.option("--no-wait", is_flag=True, help="Return once it is queued."),
    click.option(
        "--timeout",
        type=click.FloatRange(0),
        default=WAIT_SECONDS,
        show_default=True,
        help="Seconds to wait. What was asked for goes on.",
    ),
]
_COMMON = [
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="`json`: the API's own answer.",
    ),
    click.option(
        "--url",
        metavar="URL",
        envvar="WEIR_API_URL",
        help="The API of a Weir elsewhere [default: $WEIR_API_URL, or the installation's]",
    ),
    click.option(
        "--api-key-file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file that holds the API key [default: the key in $WEIR_API_KEY, or the installation's own]",
    ),
]

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
branch_argument = click.argument("branch", shell_complete=branch_words)
branch_option = click.option(
    "-b",
    "--branch",
    metavar="BRANCH",
    shell_complete=branch_words,
    help="The branch's id or name [default: the project's default branch]",
)
compute_argument = click.argument("compute", shell_complete=compute_words)
project_argument = click.argument("project", shell_complete=project_words)
