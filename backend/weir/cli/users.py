"""The first person of an installation, for `weir up`."""

import subprocess

from weir.cli.errors import CliError
from weir.cli.installation import Installation, script
from weir.cli.output import note


def make_first_user(installation: Installation, email: str) -> None:
    """Has `weir-admin` make them, unless there is a person already. It reads the password itself, from this terminal
    or standard input: no argument and no variable has it. Raises CliError."""
    command = [script("weir-admin"), "user", "create", email, "--if-none"]
    done = subprocess.run(command, env=installation.environment(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CliError(f"{email} was not made; `weir up --first-user {email}` tries again.")
    note(done.stdout.strip())
