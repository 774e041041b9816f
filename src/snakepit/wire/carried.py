"""Scripts that a client carries into a job, for ssh and the like. They travel in a variable, what is said to them as
words, so that the command itself is short, is the same every time, and tells in the audit trail what was done."""

from __future__ import annotations

VARIABLE = "SNAKEPIT_SCRIPT"
START = ["/bin/bash", "-c", f'eval "${VARIABLE}"']
PREFIX = "pit-"


def command_of(name: str, *words: str) -> list[str]:
    """The command for the script `name`, which goes with it as `VARIABLE`."""
    return [*START, PREFIX + name, *words]


def script_of(argv: tuple[str, ...]) -> str | None:
    """The name of the script that a command is for; None for any other command."""
    if list(argv[:3]) != START or len(argv) < 4 or not argv[3].startswith(PREFIX):
        return None
    return argv[3].removeprefix(PREFIX)
