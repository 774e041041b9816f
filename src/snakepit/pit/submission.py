"""What `pit run` was asked for, put together: title, request, script, variables. Nothing is sent from here."""

from __future__ import annotations

import os

from snakepit.client import files
from snakepit.pit.arguments import Arguments, UsageError

REQUEST_FILE = ".pitrequest.txt"
TITLE_LENGTH = 40
FLAGS = ("gpus", "vram", "model", "cpus", "mem", "procs", "nodes", "whole-node")
UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def script(arguments: Arguments) -> str:
    """The commands of -d or -e, or the words after `--`, quoted so that bash sees the same words again."""
    if arguments.on("interactive"):
        from snakepit.pit import interactive

        interactive.check(arguments)
        return interactive.SCRIPT
    given = [text for text in (arguments.text("direct"), arguments.text("execute")) if text is not None]
    if arguments.rest is not None:
        if not arguments.rest:
            raise UsageError("nothing follows the --")
        import shlex

        given.append(shlex.join(arguments.rest))
    if len(given) > 1:
        raise UsageError("only one of -d, -e and -- can say what to run")
    if given and not given[0].strip():
        raise UsageError("there is nothing in the command to run")
    return given[0] if given else ""


def title_and_request(arguments: Arguments, script: str) -> tuple[str, str]:
    words = arguments.words("title") + arguments.words("clusterRequest")
    flags = {name.replace("-", "_"): _flag(arguments, name) for name in FLAGS if arguments.on(name)}
    title = words[0] if words else ""
    interactive = arguments.on("interactive")
    if (arguments.rest is not None or interactive) and len(words) == 1 and _looks_like_request(words[0]):
        title, words = "", ["", words[0]]
    elif len(words) == 1 and not flags and _looks_like_request(words[0]) and not os.path.exists(REQUEST_FILE):
        raise UsageError(f"missing argument <title>: {words[0]} looks like a clusterRequest")
    elif len(words) == 1 and flags and _has_brackets(words[0]):
        given = ", ".join(f"--{name}" for name in FLAGS if arguments.on(name))
        raise UsageError(
            f"either a clusterRequest or flags (--gpus …), not both: {words[0]} looks like a clusterRequest. "
            f"Leave out {words[0]}, or {given} (and give a title)"
        )
    if flags and len(words) > 1:
        raise UsageError("either a clusterRequest or flags (--gpus …), not both")
    if not title:
        if not flags and arguments.rest is None and not interactive:
            raise UsageError("missing argument <title>")
        title = _title_of(script) if not interactive else "Interactive"
    if len(title) > TITLE_LENGTH:
        raise UsageError(f"Job title too long ({TITLE_LENGTH} characters max)")
    if interactive and not flags and len(words) < 2 and not os.path.exists(REQUEST_FILE):
        return title, "[]"
    return title, _from_flags(flags) if flags else _request(words[1:])


def _flag(arguments: Arguments, name: str) -> str | bool | None:
    return True if name == "whole-node" else arguments.text(name)


def _looks_like_request(word: str) -> bool:
    """Meant as one, even where it is none: its mistake is to be shown, not to become a title."""
    word = word.lstrip()
    after_count = word.lstrip("0123456789").lstrip()
    return word.startswith("[") or (word[:1].isdigit() and after_count.startswith((":", "[")))


def _has_brackets(word: str) -> bool:
    """`[…` or `2:[…`. Of titles, which flags leave the only word to be, fewer begin like this than with a number."""
    return word.lstrip().lstrip("0123456789").lstrip().removeprefix(":").lstrip().startswith("[")


def _title_of(script: str) -> str:
    title = " ".join(script.split()) or os.path.basename(os.getcwd()) or "Job"
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…"


def _from_flags(flags: dict[str, str | bool | None]) -> str:
    from snakepit.core import request
    from snakepit.errors import BadRequest

    try:
        return request.render(request.from_flags(**flags))  # type: ignore[arg-type]
    except BadRequest as problem:
        raise UsageError(problem.message) from None


def _request(words: list[str]) -> str:
    """As it was written, once it is known to be one: the service and the user see the same text."""
    from snakepit.core import request
    from snakepit.errors import RequestSyntax

    text = " ".join(words) if words else _default_request()
    try:
        request.parse(text)
    except RequestSyntax as problem:
        meant = request.mangled(words) if words else None
        if meant is not None:
            hint = f"Perhaps your shell changed it. Quote it, as in: pit run … {meant}"
            raise UsageError(f"{problem.message}\n{hint}") from None
        raise UsageError(problem.message) from None
    return text


def _default_request() -> str:
    try:
        with open(REQUEST_FILE, encoding="utf-8") as file:
            text = file.read().strip()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as problem:
        raise files.unreadable(REQUEST_FILE, problem) from None
    if not text:
        raise UsageError(
            "No resources requested from cluster. Please provide a clusterRequest (like '[gpu]', or '[]' for none), "
            f"flags (--gpus 1) or a {REQUEST_FILE} file"
        )
    return text


def environment(arguments: Arguments) -> dict[str, str]:
    """--env-file first, --env over it. `--env NAME` takes the value from here."""
    values: dict[str, str] = {}
    for path in arguments.texts("env-file"):
        values.update(_env_file(path))
    for word in arguments.texts("env"):
        name, equals, value = word.partition("=")
        if not _is_name(name):
            raise UsageError(f'--env {word}: "{name}" is no name of a variable')
        if not equals:
            if name not in os.environ:
                raise UsageError(f"--env {name}: not set here (expected {name}=value)")
            value = os.environ[name]
        values[name] = value
    if values:
        from snakepit.wire.names import is_reserved

        if reserved := [name for name in values if is_reserved(name)]:
            raise UsageError(f"{reserved[0]} is set by the scheduler: choose another name")
    return values


def _env_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise files.unreadable(path, problem) from None
    values = {}
    for number, line in enumerate(lines, 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not _is_name(name.strip()):
            raise UsageError(f"{path}, line {number}: expected NAME=value")
        values[name.strip()] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def seconds(text: str) -> int:
    """`2h`, `1h 30m`, `90` (seconds)."""
    import re

    if text.strip().isdigit() and text.isascii():
        total = float(text)
    else:
        parts = re.findall(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", text.lower())
        whole = re.fullmatch(r"(\s*\d+(?:\.\d+)?\s*[a-z]+)+\s*", text.lower())
        if whole is None or any(unit not in UNITS_S for _, unit in parts):
            raise UsageError(f"--time-limit {text}: expected something like 90, 30m, 2h or 1h 30m")
        total = sum(float(amount) * UNITS_S[unit] for amount, unit in parts)
    if not 1 <= total <= 10 * 365 * 86400:
        raise UsageError(f"--time-limit {text}: expected between one second and ten years")
    return round(total)


def integer(arguments: Arguments, option: str) -> int | None:
    text = arguments.text(option)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise UsageError(f"--{option} {text}: expected a whole number") from None
