"""The commands and what they say about themselves."""

import shlex
import sys
from pathlib import Path

import click

from weir.cli import installation as installations
from weir.cli import keys, proofs
from weir.cli import safekeepers as members
from weir.cli.doctor import doctor as run_doctor
from weir.cli.down import down as run_down
from weir.cli.encryption_commands import encryption_group
from weir.cli.errors import CliError
from weir.cli.log import log as run_log
from weir.cli.logs import logs as run_logs
from weir.cli.logs import rotate
from weir.cli.recover import recover as run_recover
from weir.cli.recover_logs import recover_logs as run_recover_logs
from weir.cli.resources.commands import COMMANDS
from weir.cli.status import status as run_status
from weir.cli.supervisor import Supervisor
from weir.cli.up import only_one
from weir.cli.up import up as run_up
from weir.cli.users import make_first_user

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Errors meant for the operator are printed, not raised."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CliError as error:
            click.echo(f"{click.style('weir:', fg='red')} {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="WEIR_HOME",
    help="The installation's directory [default: $WEIR_HOME, or /var/lib/weir for root, ~/.local/state/weir]",
)
@click.pass_context
def cli(ctx: click.Context, home: Path | None) -> None:
    """Weir: managed Postgres on your own machine, with the page images kept out of the write-ahead log.

    \b
    A first tour:
      weir up        start everything; the console's address is printed
      weir status    what runs, where, since when
      weir logs api  what a process says
      weir down      stop everything; no process and no mount stays

    \b
    Databases:
      weir projects create shop              a project with a running database
      weir psql main                         a session on its branch main
      weir branches create dev               a copy that copies nothing
      weir branches restore main --at 10m    back to what it was ten minutes ago

    State is in one directory. Each process has its own log there, and weir.toml holds the ports.
    """
    ctx.obj = home.absolute() if home else installations.home_from_environment()


@cli.command()
@click.option(
    "--port-base", type=click.IntRange(1024, 60000), help="Where the ports start, at the first `up` (7400)."
)
@click.option("--timeout", type=float, default=240, show_default=True, help="Seconds to wait until all is healthy.")
@click.option(
    "--first-user",
    metavar="EMAIL",
    help="Make a person who owns the installation's organization, unless there is a person already. The password is "
    "asked for, or is the first line of standard input.",
)
@click.pass_obj
def up(home: Path, port_base: int | None, timeout: float, first_user: str | None) -> None:
    """Start Weir and wait until it is healthy.

    Safe to run at any time: when everything is up it changes nothing, and after a crash or a power cut it clears
    what was left and starts again. Databases that were running when Weir went down start again by themselves.
    """
    click.echo(f"Starting Weir in {home}")
    installation = run_up(home, port_base=port_base, timeout=timeout)
    if first_user is not None:
        make_first_user(installation, first_user)
    click.echo(f"Weir is up.  Console: {installation.api_url}  API key: {installation.api_key_file}")
    if installation.has_proxy:
        files = installation.proxy_files
        trust = f"certificate: {files.certificate}" if files.given else f"CA: {files.ca}"
        click.echo(f"Databases: {installation.proxy_address}  {trust}")


@cli.command()
@click.option(
    "--immediate", is_flag=True, help="Do not wait for the computes to shut down cleanly. Nothing committed is lost."
)
@click.pass_obj
def down(home: Path, immediate: bool) -> None:
    """Stop computes and services, and make sure that no process and no mount is left."""
    click.echo(f"Stopping Weir in {home}")
    run_down(home, immediate=immediate)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show every process and compute. Exit code: 0 all healthy, 1 not all, 3 down."""
    ctx.exit(run_status(ctx.obj, as_json=as_json))


@cli.command()
@click.argument("process", nargs=-1)
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many of the last lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until interrupted.")
@click.pass_obj
def logs(home: Path, process: tuple[str, ...], lines: int, follow: bool) -> None:
    """Show the logs of processes (see `weir status`) or computes (by id); of all when none is named."""
    try:
        run_logs(home, process, lines=lines, follow=follow)
    except KeyboardInterrupt:
        click.echo()


@cli.group("log")
def log_group() -> None:
    """Look into the safekeepers' copies of the write-ahead log, whatever else is down.

    \b
      weir log list                 which timelines the safekeepers hold
      weir log show main            a branch by name or id (the metadata database must run) ...
      weir log verify 8f14e45f...   ... or by its timeline's id, which needs nothing but the directories

    Only reads, and may run beside running safekeepers. Exit code of each: 0 nothing is wrong, 1 something is, as the
    verdict at the end says, 2 it could not be looked at.
    """


@log_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def log_list(ctx: click.Context, as_json: bool) -> None:
    """List the timelines that the safekeepers' directories hold, and which of them hold each."""
    ctx.exit(run_log(ctx.obj, "list", None, as_json=as_json))


@log_group.command("show")
@click.argument("branch")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def log_show(ctx: click.Context, branch: str, as_json: bool) -> None:
    """Show what each safekeeper has promised and holds of BRANCH: terms, votes, positions, segments, and which ranges
    are provably complete, each record with the right checksum and linked to the one before.

    BRANCH is a timeline's id (32 hex digits), or a branch's id or name.
    """
    ctx.exit(run_log(ctx.obj, "show", branch, as_json=as_json))


@log_group.command("verify")
@click.argument("branch")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def log_verify(ctx: click.Context, branch: str, as_json: bool) -> None:
    """Show BRANCH, and compare the safekeepers' bytes wherever two of them must have the same.

    \b
    Example, after a crash and before anything is started:
      weir log verify 8f14e45fceea167a5a36dedd4bea2543 && weir up

    Reads each log twice; says on stderr how far it is when that takes long.
    """
    ctx.exit(run_log(ctx.obj, "verify", branch, as_json=as_json))


@cli.group("safekeepers")
def safekeepers_group() -> None:
    """Show which safekeepers hold the branches' logs, and change that while Weir runs.

    \b
      weir safekeepers list                  each safekeeper: of how many branches, what it has lost
      weir safekeepers show main             the members of a branch's log
      weir safekeepers set main 1,2,4        4 in place of 3; the branch may run or be suspended
      weir safekeepers set main 1,2,3,4,5    survives the loss of two
      weir safekeepers replace 3 --with 4    for all branches, after safekeeper 3 has lost its disk

    New branches have their log on the first three safekeepers. More of them are spares: set `count` of [safekeepers]
    in weir.toml while Weir is down, then `weir up`. Changing a log's safekeepers stops nothing: commits go on, and
    wait a few milliseconds for each change. The log of a safekeeper that is a member no more stays on its disk.
    """


@safekeepers_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def safekeepers_list(home: Path, as_json: bool) -> None:
    """List the safekeepers, with how many branches have each as a member, and how many it has lost the log of."""
    members.listing(home, as_json=as_json)


@safekeepers_group.command("show")
@click.argument("branch")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def safekeepers_show(home: Path, branch: str, as_json: bool) -> None:
    """Show the members of BRANCH's log as the safekeepers say: who votes, who lags, who has lost it.

    BRANCH is a branch's id or name.
    """
    members.show(home, branch, as_json=as_json)


@safekeepers_group.command("set")
@click.argument("branch")
@click.argument("numbers")
@click.option("--no-wait", is_flag=True, help="Return once it is queued.")
@click.pass_obj
def safekeepers_set(home: Path, branch: str, numbers: str, no_wait: bool) -> None:
    """Make NUMBERS the voters of BRANCH's log: three or five safekeepers, with commas between them.

    \b
      weir safekeepers set main 1,2,4     3 is replaced by 4
      weir safekeepers set main 1,2,3     where 2 has lost its disk, it gets the log again from the others

    One change is made after the other, and each leaves a log that works. What breaks off half way is gone on with by
    asking again. Refused when no majority of the present voters answers: bring their disks back first.
    """
    try:
        wanted = [int(part) for part in numbers.split(",")]
    except ValueError:
        raise click.BadParameter(f"{numbers!r} is not a list of numbers such as 1,2,4") from None
    members.change(home, branch, wanted, wait=not no_wait)


@safekeepers_group.command("replace")
@click.argument("number", type=click.IntRange(1))
@click.option("--with", "by", type=click.IntRange(1), required=True, help="The safekeeper that takes its place.")
@click.option("--no-wait", is_flag=True, help="Return once it is queued.")
@click.pass_context
def safekeepers_replace(ctx: click.Context, number: int, by: int, no_wait: bool) -> None:
    """Give the place of safekeeper NUMBER to another one, in the logs of all branches.

    \b
      weir safekeepers replace 3 --with 4
      weir safekeepers replace 3 --with 3    its disk is new and empty: the logs are made again on it

    Needs an operator's key (`weir-admin account operator`). Exit code 1 when a branch still has the safekeeper, or
    still lacks its log; asking again goes on.
    """
    ctx.exit(members.replace(ctx.obj, number, by, wait=not no_wait))


@cli.group("keys")
def keys_group() -> None:
    """Show and change the keys that sign what the parts of Weir know each other by.

    \b
      weir keys list                 which public keys count, and until when
      weir keys rotate               a new key; the old one counts for 13 hours more
      weir keys rotate --at-once     the old key counts no longer: after it was seen by others

    Weir may run or be down. Nothing is interrupted: parts read keys and tokens again while they run.
    """


@keys_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def keys_list(home: Path, as_json: bool) -> None:
    """List the public keys that count, the one that signs first. No secret is shown."""
    keys.listing(home, as_json=as_json)


@keys_group.command("rotate")
@click.option("--at-once", is_flag=True, help="Tokens of all other keys count no longer.")
@click.pass_obj
def keys_rotate(home: Path, at_once: bool) -> None:
    """Replace the key that signs. Safe to repeat after it broke off."""
    with only_one(installations.load(home)):
        keys.rotate(home, at_once=at_once)


@cli.group("certificates")
def certificates_group() -> None:
    """Show and change the CA by whose certificates the parts of Weir know each other ([security] tls).

    \b
      weir certificates list                 whose certificates count, and until when
      weir certificates rotate               a new CA; the old one counts for a day more
      weir certificates rotate --at-once     the old CA counts no longer: after its key was seen by others

    Weir may run or be down. Nothing is interrupted: parts read their certificates again while they run.
    """


@certificates_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def certificates_list(home: Path, as_json: bool) -> None:
    """List the CAs whose certificates count, the one that signs first. No secret is shown."""
    proofs.listing(home, as_json=as_json)


@certificates_group.command("rotate")
@click.option("--at-once", is_flag=True, help="Certificates of all other CAs count no longer.")
@click.pass_obj
def certificates_rotate(home: Path, at_once: bool) -> None:
    """Replace the CA that signs. Safe to repeat after it broke off."""
    with only_one(installations.load(home)):
        proofs.rotate(home, at_once=at_once)


@cli.command("rotate-logs", hidden=True)
@click.pass_obj
def rotate_logs(home: Path) -> None:
    """Compress long logs. The supervisor runs this every few minutes."""
    rotate(home)


@cli.command()
@click.argument("process")
@click.pass_obj
def restart(home: Path, process: str) -> None:
    """Restart one service, for example after its program was built again."""
    supervisor = Supervisor(installations.load(home))
    if supervisor.pid() is None:
        raise CliError("Weir is down. `weir up` starts it.")
    known = supervisor.states()
    if process not in known:
        raise CliError(f"No service {process!r}. There are: {', '.join(known)}.")
    supervisor.restart_service(process)
    click.echo(f"{process} is restarting; `weir status` shows when it is healthy.")


@cli.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check the machine and the installation, and say what to do about what is wrong."""
    ctx.exit(0 if run_doctor(ctx.obj) else 1)


@cli.command()
@click.option(
    "--from",
    "store",
    metavar="STORE",
    help="file:///directory or s3://bucket/prefix [default: the installation's own object store]",
)
@click.option("--dry-run", is_flag=True, help="Only show what was found and what would be made of it.")
@click.option(
    "--beside-others", is_flag=True, help="Add it although the metadata database has projects of its own already."
)
@click.option(
    "--logs", is_flag=True, help="Make the logs of branches again whose safekeepers are all lost; nothing else."
)
@click.option(
    "--accept-loss-of",
    "accepted",
    metavar="BRANCH",
    multiple=True,
    help="With --logs: do it although a safekeeper does not answer that may hold the log of this branch.",
)
@click.pass_context
def recover(
    ctx: click.Context, store: str | None, dry_run: bool, beside_others: bool, logs: bool, accepted: tuple[str, ...]
) -> None:
    """Make the list of projects and branches again from the object store, when the metadata database is lost.

    Weir must be up; its metadata database is the empty one that `weir up` made, or one that has part of the projects.
    All is added in one transaction or nothing, and what is there already stays as it is: run it as often as you like.
    Computes are not started. Passwords of roles go on to work; docs/operating.md says what does not come back.

    With --logs: when all safekeepers are lost, and new ones run on new, empty directories. Each branch's log begins
    again where storage is, with what the lost safekeepers had offloaded to the object store; the table says what each
    comes back to. A branch whose log somebody may still hold is refused, with what to do. Exit code 1 when one is.
    """
    if logs:
        if store is not None or beside_others:
            raise CliError("--logs goes with --dry-run and --accept-loss-of only.")
        ctx.exit(0 if run_recover_logs(ctx.obj, dry_run=dry_run, accepted=accepted) else 1)
    if accepted:
        raise CliError("--accept-loss-of goes with --logs only.")
    run_recover(ctx.obj, store, dry_run=dry_run, beside_others=beside_others)


@cli.command()
@click.pass_obj
def env(home: Path) -> None:
    """Print the services' environment for a shell: eval "$(weir env)"."""
    for name, value in installations.load(home).environment().items():
        if name.startswith(("WEIR_", "OTEL_")):
            click.echo(f"export {name}={shlex.quote(value)}")


cli.add_command(encryption_group)
for _command in COMMANDS:
    cli.add_command(_command)


def main() -> None:
    cli.main(prog_name="weir", args=sys.argv[1:])
