"""Verbs about jobs that were submitted: `stop`, `wait`, `why`, `rerun`. Each takes several; what fails for one is said,
and the others go on."""

from __future__ import annotations

from collections.abc import Callable

from snakepit.client.client import Client, exit_code
from snakepit.errors import NotFound, SnakepitError, WrongState
from snakepit.pit import chosen, render, session
from snakepit.pit.arguments import JSON, MINE, Argument, Arguments, Command
from snakepit.pit.following import DETACHED, sentence
from snakepit.pit.tables import letters

NUMBERS = Argument("jobNumber", required=False, many=True)


def stop(arguments: Arguments) -> int:
    client = session.open_client()
    numbers = chosen.jobs(client, arguments, chosen.stoppable)

    def end(number: int) -> None:
        try:
            client.stop(number)
        except WrongState:
            if not arguments.on("mine"):  # one of mine that ended just now is as good as stopped
                raise

    return each(numbers, end)


def rerun(arguments: Arguments) -> int:
    client = session.open_client()

    def again(number: int) -> None:
        render.out(f"=> job number: {client.rerun(number)}\n")
        render.flush()

    numbers = chosen.jobs(client, arguments, chosen.unsuccessful)
    there = chosen.there(client, numbers)  # before a new job takes the next number of a range
    return each(there, again) or int(len(there) < len(numbers))


def why(arguments: Arguments) -> int:
    client = session.open_client()
    numbers = chosen.jobs(client, arguments, chosen.live)
    there = chosen.there(client, numbers)
    found = {number: client.why(number) or _not_waiting(client, number) for number in there}
    code = int(len(there) < len(numbers))
    if arguments.on("json"):
        render.json_out(found)
        return code
    for number, reasons in found.items():
        prefix = f"{number}: " if len(numbers) > 1 else ""
        render.out("".join(f"{prefix}{render.clean(reason, lines=True)}\n" for reason in reasons))
    return code


def _not_waiting(client: Client, number: int) -> list[str]:
    job = client.job(number)
    return [f"it waits for nothing: its state is {letters(job['state'])}"]


def wait(arguments: Arguments) -> int:
    client = session.open_client()
    numbers = chosen.jobs(client, arguments, chosen.live)
    try:
        there = chosen.there(client, numbers)
        code = _wait(client, there, arguments.on("json"))
        return code if len(there) == len(numbers) else 1
    except KeyboardInterrupt:
        render.talk("\nNo longer waiting; the jobs go on.")
        return DETACHED


def _wait(client: Client, numbers: list[int], as_json: bool) -> int:
    """The exit code is that of the first job, in the order given, that did not succeed."""
    codes = []
    ended = []
    for number in numbers:
        job = client.wait(number)
        codes.append(exit_code(job))
        ended.append(job)
        if not as_json:
            render.out(f"Job {number}: {sentence(job)}\n")
            render.flush()
    if as_json:
        render.json_out(ended)
    return next((code for code in codes if code), 0)


def each(numbers: list[int], act: Callable[[int], None]) -> int:
    if len(numbers) == 1:
        act(numbers[0])
        return 0
    failed = False
    missing: dict[str, list[int]] = {}
    for number in numbers:
        try:
            act(number)
        except NotFound as problem:
            missing.setdefault(problem.message, []).append(number)
        except SnakepitError as problem:
            failed = True
            render.failure(f"job {number}: {problem.message}")
            if problem.status in (401, 503):
                break
    for message, those in missing.items():
        render.failure(f"{chosen.named(those)}: {message}")
    return int(failed or bool(missing))


COMMANDS = (
    Command(
        "stop",
        "stops a running job",
        stop,
        (NUMBERS,),
        (MINE,),
        aliases=("cancel",),
        examples=("pit stop 190", "pit stop 190-195 200", "pit stop --mine"),
    ),
    Command(
        "wait",
        "waits for jobs and exits with their outcome",
        wait,
        (NUMBERS,),
        (MINE, JSON),
        examples=("pit wait 190", "pit wait 190-195 && echo all went well"),
        notes="""
Exit codes: 0 succeeded, the code of the first process that failed, 1 failed without one, 124 timed out,
125 lost, 143 stopped; of several jobs that of the first one that did not succeed. Ctrl-C: 130; the jobs go on.""",
    ),
    Command(
        "why",
        "says why a job does not run yet",
        why,
        (NUMBERS,),
        (MINE, JSON),
        examples=("pit why 190",),
    ),
    Command(
        "rerun",
        "runs a job again as a new one",
        rerun,
        (NUMBERS,),
        (MINE,),
        examples=("pit rerun 190", "pit rerun --mine"),
        notes="""
--mine means your ended jobs that failed, timed out or were lost.""",
    ),
)
