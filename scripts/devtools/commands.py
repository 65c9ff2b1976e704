"""The page of the `weir` command, made of what its commands say about themselves. `scripts/gen` calls it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from weir.cli.main import cli

WIDTH = 100
HEAD = """# Commands

What `weir --help` and the help of each command say. Made by `make gen`; how the commands are used is in
[the command line](command-line.md).
"""


def page() -> str:
    parts = [HEAD]
    for names, text in helps(cli, ("weir",)):
        level = "##" if len(names) < 3 else "###"
        parts.append(f"{level} {' '.join(names)}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def helps(command: click.Command, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command that is not hidden, with what its `--help` prints on a wide terminal."""
    context = click.Context(
        command,
        info_name=" ".join(names),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    lines = command.get_help(context).splitlines()
    yield names, "\n".join(line.rstrip() for line in lines)
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            if not below.hidden:
                yield from helps(below, (*names, name))


if __name__ == "__main__":
    click.echo(page(), nl=False)
