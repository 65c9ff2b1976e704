"""What starts a rollout and steers it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from weir.cli.errors import CliError
from weir.cli.resources import names
from weir.cli.resources.api import path
from weir.cli.resources.complete import project_words, rollout_words
from weir.cli.resources.moments import SPAN
from weir.cli.resources.show import fields, listed, moment, size
from weir.cli.resources.use import Use, confirm, resource, yes_option

_rollout = click.argument("rollout", shell_complete=rollout_words)
_OPTIONS = [
    click.option(
        "--feature",
        type=click.Choice(["image_pushdown", "postgres_minor"]),
        default="image_pushdown",
        show_default=True,
        help="What is carried through.",
    ),
    click.option(
        "-p",
        "--project",
        "projects",
        metavar="PROJECT",
        multiple=True,
        shell_complete=project_words,
        help="Only computes of this project; may be repeated [default: all]",
    ),
    click.option("--cell", "cells", multiple=True, help="Only computes of this cell; may be repeated."),
    click.option(
        "--wave",
        "waves",
        metavar="COUNT|PERCENT%",
        multiple=True,
        help="A wave of so many computes, or up to so many percent of all; may be repeated "
        "[default: 1, 1%, 5%, 25%, 100%]",
    ),
    click.option("--baseline", type=SPAN, help="How long each compute is measured before [default: 2m]"),
    click.option("--bake", type=SPAN, help="How long each compute is measured after [default: 2m]"),
    click.option("--soak", type=SPAN, help="How long the fleet is watched after each wave [default: 60s]"),
    click.option("--approve-plan", is_flag=True, help="Wait for `weir rollouts approve` before anything begins."),
    click.option("--approve-waves", is_flag=True, help="Wait for it before each wave after the first."),
    click.option("--target", metavar="MINOR", help="With postgres_minor: such as 15.20 [default: the newest]"),
    click.option(
        "--file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A JSON file with the whole request, as the API takes it, in place of the options above.",
    ),
]


def strategy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `plan` and `start` take."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def request_of(use: Use, given: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """The body of the request: the file's, or made of the options."""
    file: Path | None = given["file"]
    if file is not None:
        others = {key: value for key, value in given.items() if key not in {"file", "feature"}}
        if any(others.values()):
            raise click.UsageError("--file holds the whole request; leave the other options out.")
        return _read(file) | ({"name": name} if name else {})
    selector: dict[str, Any] = {}
    if given["projects"]:
        selector["project_ids"] = [names.project(use.api, word)["id"] for word in given["projects"]]
    if given["cells"]:
        selector["cells"] = list(given["cells"])
    strategy = {
        "waves": [_wave(word) for word in given["waves"]] or None,
        "baseline_seconds": given["baseline"],
        "bake_seconds": given["bake"],
        "soak_seconds": given["soak"],
        "plan_approval_required": given["approve_plan"] or None,
        "approval_required": given["approve_waves"] or None,
        "target_version": given["target"],
    }
    chosen = {key: value for key, value in strategy.items() if value is not None}
    body: dict[str, Any] = {"feature": given["feature"], "selector": selector, "strategy": chosen}
    return body | ({"name": name} if name else {})


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CliError(f"{file} is no JSON: {error}.") from None
    if not isinstance(document, dict):
        raise CliError(f"{file} has to hold an object with feature, selector and strategy.")
    return document


def _wave(word: str) -> dict[str, Any]:
    try:
        return {"percent": float(word[:-1])} if word.endswith("%") else {"count": int(word)}
    except ValueError:
        raise click.BadParameter(
            f"{word!r} is no wave; write a number of computes, or a percentage as 25%."
        ) from None


@click.command("start")
@click.option("--name", help="What it is called.")
@strategy_options
@resource(project=False)
def start(use: Use, name: str | None, **given: Any) -> None:
    """Freeze the plan and start the rollout.

    \b
      weir rollouts start --name first --project shop
      weir rollouts start --name careful --wave 1 --wave 10% --wave 100% --approve-waves
      weir rollouts start --feature postgres_minor --target 15.20

    Look at it first with `weir rollouts plan`. With --approve-plan nothing begins before `weir rollouts approve`.
    """
    answer = use.api.call("POST", "/rollouts", request_of(use, given, name))
    use.say(answer, described(answer["rollout"]))
    use.note(f"`weir rollouts wait {answer['rollout']['id']}` waits for it")


def _control(use: Use, word: str, action: str, body: dict[str, Any] | None = None) -> None:
    _steer(use, names.rollout(use.api, word), action, body)


def _steer(use: Use, row: dict[str, Any], action: str, body: dict[str, Any] | None) -> None:
    answer = use.api.call("POST", path("rollouts", row["id"], action), body)
    use.say(answer, described(answer["rollout"]))


@click.command("pause")
@_rollout
@resource(project=False)
def pause(use: Use, rollout: str) -> None:
    """Switch nothing new. Computes that have been switched are measured on and judged."""
    _control(use, rollout, "pause")


@click.command("resume")
@_rollout
@resource(project=False)
def resume(use: Use, rollout: str) -> None:
    """Go on after a pause."""
    _control(use, rollout, "resume")


@click.command("approve")
@_rollout
@click.option(
    "--gate", help="Only if it is held at this gate, as `weir rollouts show` names it [default: the present]"
)
@resource(project=False)
def approve(use: Use, rollout: str, gate: str | None) -> None:
    """Let a held rollout go on with its next wave.

    Opens the gate that the rollout is held at when the command looks, and no later one.
    """
    row = names.rollout(use.api, rollout)
    chosen = gate or row["gate"]
    _steer(use, row, "approve", {"gate": chosen} if chosen else None)


@click.command("skip")
@_rollout
@click.option("--wave", type=click.IntRange(1), help="What is left of this wave, counted from 1.")
@click.option("--compute", metavar="COMPUTE", help="This compute.")
@resource(project=False)
def skip(use: Use, rollout: str, wave: int | None, compute: str | None) -> None:
    """Leave out one compute, or what is left of one wave. What has been switched stays."""
    if (wave is None) == (compute is None):
        raise click.UsageError("Give --wave or --compute, one of the two.")
    body = {"wave": wave - 1} if wave is not None else {"compute_id": use.compute(str(compute))["id"]}
    _control(use, rollout, "skip", body)


@click.command("abort")
@_rollout
@resource(project=False)
def abort(use: Use, rollout: str) -> None:
    """Stop. Switched computes without a passed verdict go back, passed ones stay switched."""
    _control(use, rollout, "abort")


@click.command("rollback")
@_rollout
@click.option("--wave", type=click.IntRange(1), help="Only this wave, counted from 1.")
@click.option("--compute", metavar="COMPUTE", help="Only this compute; the rollout goes on.")
@yes_option
@resource(project=False)
def rollback(use: Use, rollout: str, wave: int | None, compute: str | None, *, yes: bool) -> None:
    """Switch computes back: all of them, which ends the rollout, or one wave, or one compute. Also after its end."""
    if wave is not None and compute is not None:
        raise click.UsageError("Give --wave or --compute, not both.")
    if compute is not None:
        body: dict[str, Any] = {"scope": "compute", "compute_id": use.compute(compute)["id"]}
    elif wave is not None:
        body = {"scope": "wave", "wave": wave - 1}
    else:
        confirm(f"All computes of rollout {rollout!r} go back, and the rollout ends. Do it?", yes=yes)
        body = {"scope": "all"}
    _control(use, rollout, "rollback", body)


def described(row: dict[str, Any]) -> str:
    head = fields(
        [
            ("Rollout", row["name"]),
            ("Id", row["id"]),
            ("Feature", row["feature"]),
            ("Status", row["status"]),
            ("Reason", row["status_reason"]),
            ("Held at gate", row["gate"]),
            ("Computes", row["computes_total"]),
            ("So far", ", ".join(f"{count} {state}" for state, count in row["counts"].items() if count)),
            ("Started", moment(row["started_at"])),
            ("Finished", moment(row["finished_at"])),
        ]
    )
    columns = [
        ("WAVE", lambda wave: wave["index"] + 1),
        ("NAME", lambda wave: wave["name"]),
        ("STATE", lambda wave: wave["state"]),
        ("COMPUTES", lambda wave: wave["computes_total"]),
        ("", lambda wave: wave["reason"] or " "),
    ]
    alerts = [f"alert: {alert['message']}" for alert in row["alerts"] if alert["cleared_at"] is None]
    return "\n".join([head, "", listed(columns, row["waves"], "No waves."), *alerts])


def plan_text(plan: dict[str, Any]) -> str:
    columns = [
        ("WAVE", lambda wave: wave["index"] + 1),
        ("NAME", lambda wave: wave["name"]),
        ("COMPUTES", lambda wave: wave["computes"]),
        ("SAVES A SECOND", lambda wave: size(wave["expected_wal_saved_bytes_per_second"])),
    ]
    left_out = [
        ("LEFT OUT", lambda row: row["code"]),
        ("COMPUTES", lambda row: row["computes"]),
        ("FOR EXAMPLE", lambda row: row["example"]),
    ]
    parts = [listed(columns, plan["waves"], "No compute would be changed.")]
    if plan["excluded_by_code"]:
        parts.append(listed(left_out, plan["excluded_by_code"], ""))
    saved = size(plan["expected_wal_saved_bytes_per_second"])
    if saved:
        parts.append(f"{plan['computes_total']} compute(s); expected to save {saved} of WAL a second.")
    return "\n\n".join(parts)


COMMANDS = (start, approve, pause, resume, skip, abort, rollback)
