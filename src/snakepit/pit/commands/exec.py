"""`pit exec` and `pit shell`: a command, or a login shell, inside a running job."""

from __future__ import annotations

import contextlib
import os

from snakepit.client import entities
from snakepit.client.client import DONE, Client
from snakepit.client.execution import start
from snakepit.client.http import LostAnswer
from snakepit.errors import SnakepitError, Unauthorized
from snakepit.pit import render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError

WORKER = Option("-w --worker", "which worker of the job (0 when left out)", "index")
TERMINAL = Option("-t --tty", "with a terminal, even if stdin and stdout are none")
NO_TERMINAL = Option("-T --no-tty", "without a terminal: stdin, stdout and stderr apart, byte for byte")
LOST = 255
KILLED = 128  # and the number of the signal
FAREWELL_S = 1  # what ends a command reaches the head a moment later, or earlier
RUNNING = 4
SENT = ("TERM", "COLORTERM")


def exec_(arguments: Arguments) -> int:
    if not arguments.rest:
        raise UsageError("missing command: pit exec <jobNumber> -- command arguments...")
    return go_inside(_job(arguments), arguments, arguments.rest)


def shell(arguments: Arguments) -> int:
    return go_inside(_job(arguments), arguments, None)


def go_inside(job: int, arguments: Arguments, argv: list[str] | None) -> int:
    """Runs it there; its exit code. What keeps us from it has a code of its own, as with ssh: a script could not tell
    a 1 of ours from one of the command's."""
    if arguments.on("tty") and arguments.on("no-tty"):
        raise UsageError("--tty and --no-tty exclude each other")
    wanted = (on_terminal() or arguments.on("tty")) and not arguments.on("no-tty")
    worker = arguments.number("worker") or 0
    try:
        client = session.open_client()
        code = run_inside(client, job, worker, argv, wanted)
    except SnakepitError as problem:
        if problem.exit_code != SnakepitError.exit_code:
            raise
        render.failure(problem.message)
        return LOST
    if KILLED < code < LOST:
        _tell_of_its_end(client, job, code)
    return code


def on_terminal() -> bool:
    return os.isatty(0) and os.isatty(1)


def run_inside(
    client: Client,
    job: int,
    worker: int,
    argv: list[str] | None,
    terminal: bool,
    environment: dict[str, str] | None = None,
) -> int:
    sent = {name: os.environ[name] for name in SENT if terminal and name in os.environ}
    environment = {**sent, **(environment or {})}
    size = _size() if terminal else None
    try:
        execution = start(client, job, worker, argv, environment, size)
    except Unauthorized:
        client.job(job)  # renews a login that has ended, by asking for the password
        execution = start(client, job, worker, argv, environment, size)
    render.flush()
    try:
        if terminal and os.isatty(0):
            from snakepit.pit.rawly import Raw

            with Raw(0) as raw:
                return execution.run(0, 1, 2, raw)
        return execution.run(_stdin(), 1, 2)
    except LostAnswer as problem:
        render.failure(problem.message)
        return LOST
    finally:
        execution.close()


def _tell_of_its_end(client: Client, job: int, code: int) -> None:
    """A command that was killed may have ended with its job: then that is worth a word."""
    from snakepit.pit.following import sentence

    with contextlib.suppress(SnakepitError):  # somebody without a right to it any more, say
        found = client.call("GET", f"/jobs/{job}/wait?timeout={FAREWELL_S}")
        if found["state"] > RUNNING:
            ended = found["state"] == DONE
            words = f"Job {job} has ended: {sentence(found)}" if ended else f"Job {job} is being stopped."
            render.talk(below(code) + words)


def below(code: int) -> str:
    """Begins a line of its own: what was killed left a terminal in the middle of one, behind a prompt say."""
    return "\n" if KILLED < code < LOST and os.isatty(2) else ""


def _job(arguments: Arguments) -> int:
    numbers = entities.job_numbers(arguments.words("jobNumber"))
    if len(numbers) != 1:
        raise UsageError("one job at a time")
    return numbers[0]


def _size() -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(1 if os.isatty(1) else 0)
    except OSError:
        return 80, 24
    return columns or 80, rows or 24


def _stdin() -> int:
    try:
        os.fstat(0)
    except OSError:
        return -1  # somebody started us with it closed
    return 0


COMMANDS = (
    Command(
        "exec",
        "runs a command inside a running job",
        exec_,
        (Argument("jobNumber"),),
        (WORKER, TERMINAL, NO_TERMINAL),
        rest="command arguments...",
        examples=("pit exec 190 -- nvidia-smi", "pit exec -w 1 190 -- bash", "tar c data | pit exec 190 -- tar x"),
        notes="""
It runs in the job's own sandbox, with its environment, directory and limits, and ends with it. Its exit code is ours;
255 says that it was not run, or that the connection was lost.
On a terminal it gets one too, and ~. at the beginning of a line lets go of it.""",
    ),
    Command(
        "shell",
        "opens a login shell inside a running job",
        shell,
        (Argument("jobNumber"),),
        (WORKER,),
        examples=("pit shell 190", "pit shell -w 1 190"),
    ),
)
