"""`weir encryption`: the commands on the keys of encrypted storage."""

import json
from pathlib import Path

import click

from weir.cli import installation as installations
from weir.cli.encryption import PUT_BACK, data_keys, read, retire, rotate
from weir.cli.errors import CliError
from weir.cli.output import note, table
from weir.cli.up import only_one


@click.group("encryption")
def encryption_group() -> None:
    """Show and change the keys that protect encrypted layers and WAL.

    \b
      weir encryption list       the keys, and how many projects each protects
      weir encryption rotate     a new key; all projects' keys are protected by it
      weir encryption retire     take the older keys out of the key file

    Weir may run or be down, and nothing is interrupted. [storage] encryption in weir.toml turns it on.
    """


@encryption_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def list_command(home: Path, as_json: bool) -> None:
    """List the keys of the key file, the newest last, and how many projects each protects. No secret is shown.

    Exit code 1 when a project's key is protected by a key that the file does not have.
    """
    installation = installations.load(home)
    keys = [key.name for key in read(installation.storage_keys)]
    rows = data_keys(installation)
    missing = sorted({row["wrapped_by"] for row in rows} - set(keys))
    counts = {name: sum(row["wrapped_by"] == name for row in rows) for name in [*keys, *missing]}
    if as_json:
        entries = [
            {"key": name, "projects": count, "newest": name == keys[-1], "in_file": name in keys}
            for name, count in counts.items()
        ]
        click.echo(json.dumps(entries, indent=2))
    else:
        remarks = {keys[-1]: "newest", **dict.fromkeys(missing, "MISSING in the key file")}
        click.echo(
            table(
                ("KEY", "PROJECTS", ""), [(name, str(count), remarks.get(name, "")) for name, count in counts.items()]
            )
        )
    if missing:
        raise CliError(f"{installation.storage_keys} lacks {', '.join(missing)}. {PUT_BACK}")


@encryption_group.command("rotate")
@click.pass_obj
def rotate_command(home: Path) -> None:
    """Add a key to the key file, and wrap the data keys of all projects by it. The data itself stays as it is."""
    installation = installations.load(home)
    with only_one(installation):
        key = rotate(installation)
    note(f"key {key.name} protects all projects; copy {installation.storage_keys} elsewhere again")
    note("`weir encryption retire` takes the older keys out of it")


@encryption_group.command("retire")
@click.pass_obj
def retire_command(home: Path) -> None:
    """Take all keys but the newest out of the key file. Refused while a project needs one.

    Older copies of projects' keys, in a bucket that keeps old versions or in a backup, need them still.
    """
    installation = installations.load(home)
    with only_one(installation):
        gone = retire(installation)
    note(f"{len(gone)} key(s) taken out" + (": " + ", ".join(key.name for key in gone) if gone else ""))
