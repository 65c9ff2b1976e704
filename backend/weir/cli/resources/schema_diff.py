"""`weir branches schema-diff`: how two branches' schemas differ."""

import click

from weir.cli.resources.branch_changes import path_of
from weir.cli.resources.complete import branch_words
from weir.cli.resources.moments import BACK, LSN
from weir.cli.resources.use import Use, branch_argument, resource


@click.command("schema-diff")
@branch_argument
@click.argument("base", required=False, shell_complete=branch_words)
@click.option("--database", required=True, metavar="NAME", help="The database whose schemas are compared.")
@click.option("--at", type=BACK, help="BRANCH as of that moment: 2026-05-04T12:30:00Z, or 10m, 2h, 3d ago.")
@click.option("--lsn", type=LSN, help="BRANCH as of that LSN.")
@click.option("--base-at", type=BACK, help="BASE as of that moment.")
@click.option("--base-lsn", type=LSN, help="BASE as of that LSN.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 where the schemas differ, as `diff` does.")
@resource()
def schema_diff(
    use: Use,
    branch: str,
    base: str | None,
    database: str,
    at: str | None,
    lsn: str | None,
    base_at: str | None,
    base_lsn: str | None,
    *,
    exit_code: bool,
) -> None:
    """Show what has to change in the schema of BASE, the parent unless given, to become that of BRANCH.

    \b
      weir branches schema-diff dev --database appdb
      weir branches schema-diff dev main --database appdb > dev.diff
      weir branches schema-diff main main --base-at 2h --database appdb    what has changed in two hours

    A unified diff of what pg_dump --schema-only writes; nothing where the schemas are the same. Both branches need a
    compute; one that is suspended is started. A state of the past gets one for as long as it is read.
    """
    if (at and lsn) or (base_at and base_lsn):
        raise click.UsageError("Give a moment or an LSN of each branch, not both.")
    row = use.branch(branch)
    asked = {
        "db_name": database,
        "timestamp": at,
        "lsn": lsn,
        "base_timestamp": base_at,
        "base_lsn": base_lsn,
    }
    if base is not None:
        # Of the same project as the branch: no two projects share a database.
        use.project_word = row["project_id"]
        asked["base_branch_id"] = use.branch(base)["id"]
    found = use.api.call("GET", path_of(row) + "/compare_schema", params=asked)
    if use.json:
        use.say(found, "")
    elif found["diff"]:
        click.echo(found["diff"], nl=False)
    else:
        use.note("the schemas are the same")
    if exit_code and found["diff"]:
        raise SystemExit(1)
