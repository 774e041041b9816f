"""`pit drain` and `pit resume`: no new jobs for a node, and jobs again."""

from __future__ import annotations

from snakepit.client import entities
from snakepit.pit import session
from snakepit.pit.arguments import Argument, Arguments, Command


def drain(arguments: Arguments) -> int:
    reason = " ".join(arguments.words("reason"))
    path = _node(arguments)
    session.open_client().call("POST", f"{path}/drain", {"reason": reason} if reason else {})
    return 0


def resume(arguments: Arguments) -> int:
    path = _node(arguments)
    session.open_client().call("POST", f"{path}/resume", {})
    return 0


def _node(arguments: Arguments) -> str:
    word = arguments.word("node")
    return entities.parse(word if ":" in word else f"node:{word}", ("node",)).path


COMMANDS = (
    Command(
        "drain",
        "starts no new jobs on a node; running ones go on",
        drain,
        (Argument("node"), Argument("reason", required=False, many=True)),
        examples=("pit drain node:n0", "pit drain node:n0 new disk tomorrow"),
    ),
    Command(
        "resume", "lets a drained node take jobs again", resume, (Argument("node"),), examples=("pit resume node:n0",)
    ),
)
