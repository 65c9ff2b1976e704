"""Ends of a command that a script wants to tell apart. docs/operate/command-line.md lists all exit codes."""

from weir.cli.errors import CliError


class AwayError(CliError):
    """The API does not answer, or something answers that is no Weir."""

    exit_code = 3


class OperationError(CliError):
    """The API took the request, and an operation or a rollout ended otherwise than well."""

    exit_code = 4


class StillRunningError(CliError):
    """The time to wait is over. What was asked for goes on."""

    exit_code = 5
