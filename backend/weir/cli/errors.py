"""What the command line tells a person instead of a traceback."""


class CliError(Exception):
    """Something that the operator can act on; the message says what happened, to what, and what to do."""

    exit_code = 1
