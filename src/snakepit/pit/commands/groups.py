"""`pit add-group` and `pit remove-group`: who may see a job or use a resource, and who is in a group."""

from __future__ import annotations

from snakepit.client import entities
from snakepit.client.http import quote
from snakepit.pit import session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError

TYPES = ("user", "job", "node")
ARGUMENTS = (Argument("entity"), Argument("group"))
NOTES = """
"entity" is user:<name>, job:<number>, node:<name> (all its resources) or node:<name>:<index> (one of them)."""


def add_group(arguments: Arguments) -> int:
    path = _path(arguments)
    asked = [name for name in ("exec", "no-exec") if arguments.on(name)]
    if len(asked) > 1:
        raise UsageError("--exec and --no-exec exclude each other")
    if asked:
        if not path.startswith("/jobs/"):
            raise UsageError(f"--{asked[0]} is for jobs")
        path += f"?exec={int(asked == ['exec'])}"
    session.open_client().call("PUT", path, {})
    return 0


def remove_group(arguments: Arguments) -> int:
    session.open_client().call("DELETE", _path(arguments))
    return 0


def _path(arguments: Arguments) -> str:
    entity = entities.parse(arguments.word("entity"), TYPES, index_for=("node",))
    resource = "" if entity.index is None else f"/resources/{entity.index}"
    return f"{entity.path}{resource}/groups/{quote(arguments.word('group').removeprefix('group:'))}"


COMMANDS = (
    Command(
        "add-group",
        "adds the entity to the access group",
        add_group,
        ARGUMENTS,
        (
            Option("--exec", "of a job: its members may also go inside (exec, shell, forward)"),
            Option("--no-exec", "of a job: no longer; they may still see it"),
        ),
        examples=(
            "pit add-group user:anna students",
            "pit add-group job:190 students",
            "pit add-group job:190 students --exec",
            "pit add-group node:n0:1 staff",
        ),
        notes=NOTES
        + """
Without --exec or --no-exec, who may go inside a job stays as it was. pit show job:<number> shows it.""",
    ),
    Command(
        "remove-group",
        "removes the entity from the access group",
        remove_group,
        ARGUMENTS,
        examples=("pit remove-group user:anna students",),
        notes=NOTES,
    ),
)
