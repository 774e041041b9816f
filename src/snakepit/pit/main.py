"""`pit`: finds the command, reads its line, runs it, and turns what went wrong into one line and an exit code.

A command's file is imported when it is called for, so that a start costs what it needs and no more.
"""

from __future__ import annotations

import os
import sys

from snakepit.errors import SnakepitError
from snakepit.pit import render
from snakepit.pit.arguments import Command, UsageError, help_of, parse, two_columns

# Every spelling of a command, and the file below commands/ that has it; help lists the names in this order.
FILES = {
    "add": "add",
    "remove": "remove",
    "rm": "remove",
    "set": "properties",
    "get": "properties",
    "show": "show",
    "add-group": "groups",
    "remove-group": "groups",
    "passwd": "passwd",
    "connect": "connect",
    "login": "login",
    "logout": "login",
    "stop": "jobs",
    "cancel": "jobs",
    "run": "run",
    "put": "run",
    "log": "log",
    "logs": "log",
    "status": "status",
    "ps": "status",
    "wait": "jobs",
    "why": "jobs",
    "rerun": "jobs",
    "ls": "files",
    "cat": "copy",
    "pull": "copy",
    "cp": "copy",
    "push": "copy",
    "mkdir": "files",
    "delete": "files",
    "du": "files",
    "download": "copy",
    "sync": "sync",
    "mount": "mount",
    "umount": "mount",
    "exec": "exec",
    "shell": "exec",
    "forward": "forward",
    "ssh-config": "ssh",
    "tensorboard": "look",
    "jupyter": "look",
    "diff": "snapshots",
    "checkout": "snapshots",
    "gc": "snapshots",
    "drain": "nodes",
    "resume": "nodes",
    "completion": "completion",
    "__complete": "completion",
}
GLOBAL = (
    ("-V, --version", "output the version number"),
    ("-h, --help", "output usage information"),
    ("-d, --debug", "shows on stderr what is sent and received"),
    ("    --password-file <file>", "reads the own password from this file"),
    ("    --new-password-file <file>", "reads a new password from this file"),
)

PASSWORD_FILES = {"--password-file": "PIT_PASSWORD_FILE", "--new-password-file": "PIT_NEW_PASSWORD_FILE"}


def main(line: list[str] | None = None) -> int:
    line = sys.argv[1:] if line is None else line
    _open_closed()
    render.prepare()
    try:
        return _main(line)
    except SnakepitError as problem:
        render.failure(problem.message)
        return problem.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        render.close()
        return 141
    except Exception as problem:
        if render.debugging:
            raise
        render.close()
        what = f"{problem.strerror}" if isinstance(problem, OSError) and problem.strerror else repr(problem)
        render.failure(f"{what} (pit --debug shows more)")
        return 1


def _open_closed() -> None:
    """`pit … <&-`: a closed stdin, stdout or stderr is as good as /dev/null, and no connection may take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _main(line: list[str]) -> int:
    if line[:1] == ["pipe"]:  # its words are other programs' words: none of them is ours to read
        from snakepit.pit.commands.pipe import main as pipe

        return pipe(line[1:])
    line = _global_options(line)
    if not line or line[0] in ("-h", "--help", "help"):
        if len(line) > 1:
            render.out(help_of(find(line[1])))
        else:
            render.out(help_of_all())
        return 0
    if line[0] in ("-V", "--version"):
        from snakepit import __version__

        render.out(__version__ + "\n")
        return 0
    if line[0].startswith("-"):
        raise UsageError(f"unknown option {line[0]}")
    command = find(line[0])
    until = line.index("--") if "--" in line else len(line)
    if any(word in ("-h", "--help") for word in line[1:until]):
        render.out(help_of(command))
        return 0
    code = command.run(parse(command, line[1:]))
    render.flush()
    return code


def _global_options(line: list[str]) -> list[str]:
    """`--debug` and the password files may stand anywhere before a `--`; `-d` only before the command."""
    left: list[str] = []
    words = list(line)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*left, word, *words]
        if word == "--debug" or (word == "-d" and not left):
            render.debugging = True
        elif variable := PASSWORD_FILES.get(word.partition("=")[0]):
            if "=" not in word and not words:
                raise UsageError(f"option {word} needs a value")
            os.environ[variable] = word.partition("=")[2] if "=" in word else words.pop(0)
        else:
            left.append(word)
    return left


def find(name: str) -> Command:
    file = FILES.get(name)
    if file is None:
        from difflib import get_close_matches

        close = get_close_matches(name, [known for known in FILES if known[0] != "_"], 1)
        raise UsageError(
            f'unknown command "{name}"' + (f' (did you mean "{close[0]}"?)' if close else "; see pit --help")
        )
    return next(command for command in _commands(file) if name == command.name or name in command.aliases)


def _commands(file: str) -> tuple[Command, ...]:
    module = __import__(f"snakepit.pit.commands.{file}", fromlist=["COMMANDS"])
    commands: tuple[Command, ...] = module.COMMANDS
    return commands


def every_command() -> list[Command]:
    found = [command for file in dict.fromkeys(FILES.values()) for command in _commands(file)]
    order = list(FILES)
    return sorted((command for command in found if command.name[0] != "_"), key=lambda each: order.index(each.name))


def help_of_all() -> str:
    rows = [(command.usage, command.summary) for command in every_command()]
    width = max(len(usage) for usage, _ in rows)
    options = [(left.ljust(width), right) for left, right in GLOBAL]
    lines = [
        "Usage: pit [options] [command]",
        "",
        "Options:",
        *two_columns(options),
        "",
        "Commands:",
        *two_columns(rows),
    ]
    lines += ["", "pit <command> --help shows the options of a command, and examples."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
