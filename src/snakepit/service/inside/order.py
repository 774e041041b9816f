"""What a caller wants to run, read from the original's `context` and checked."""

from __future__ import annotations

import json
import re
from typing import Any

from snakepit.engines.base import Command
from snakepit.errors import BadRequest
from snakepit.wire.carried import script_of

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_SHOWN = 4000
WIDTH, HEIGHT = 80, 24
# Those of `pit`, and whether what is said to them tells anybody anything (a key does not).
SCRIPTS = {"ssh": False, "tensorboard": True, "jupyter": False, "interactive": True}


def read_order(text: str) -> Command:
    """`{command: […], environment: {…}, interactive, width, height}`; ours may say `shell: true` for a login shell."""
    try:
        context = json.loads(text or "{}")
    except ValueError:
        raise BadRequest("The context is not valid JSON") from None
    if not isinstance(context, dict):
        raise BadRequest("The context is not a JSON object")
    size = (_number(context, "width", WIDTH), _number(context, "height", HEIGHT))
    return Command(_argv(context), _environment(context), size if context.get("interactive", True) else None)


def shown(command: Command) -> tuple[str, str]:
    """For people who read the audit trail: what it was, and one line about it, quoted where it must be."""
    if not command.argv:
        return "shell", ""
    script = script_of(command.argv)
    if script not in SCRIPTS:
        return "exec", _line(command.argv)
    return script, _line(command.argv[4:]) if SCRIPTS[script] else ""


def _line(argv: tuple[str, ...]) -> str:
    words = (word if re.fullmatch(r"[\w@%+=:,./-]+", word) else json.dumps(word) for word in argv if word)
    return " ".join(words)[:LONGEST_SHOWN]


def _argv(context: dict[str, Any]) -> tuple[str, ...]:
    if context.get("shell") is True:
        return ()
    given = context.get("command")
    if not given:
        raise BadRequest("No command")
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise BadRequest("The command is not a list of texts")
    if not given[0] or any("\0" in word for word in given):
        raise BadRequest("No such command: it is empty, or has a NUL in it")
    return tuple(given)


def _environment(context: dict[str, Any]) -> dict[str, str]:
    given = context.get("environment") or {}
    if not isinstance(given, dict):
        raise BadRequest("The environment is not an object of texts")
    kept = {name: value for name, value in given.items() if value is not None}
    for name, value in kept.items():
        if not NAME.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            raise BadRequest(f"Not a variable of the environment: {name[:40]!r}")
    return kept


def _number(context: dict[str, Any], name: str, default: int) -> int:
    """The original sends them as texts or numbers, or not at all."""
    given = context.get(name)
    if isinstance(given, str) and given.isdigit():
        given = int(given[:6])
    if given is None or isinstance(given, bool) or not isinstance(given, int | float):
        return default
    return int(min(max(given, 1), 5000))
