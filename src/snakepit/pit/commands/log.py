"""`pit log`: what a job's processes said."""

from __future__ import annotations

from snakepit.pit import chosen, render, session
from snakepit.pit.arguments import MINE, Argument, Arguments, Command, Option, UsageError
from snakepit.pit.following import follow


def log(arguments: Arguments) -> int:
    if arguments.on("follow") and arguments.on("no-follow"):
        raise UsageError("--follow and --no-follow exclude each other")
    lines = arguments.number("lines")
    client = session.open_client()
    numbers = chosen.jobs(client, arguments, chosen.running)
    there = chosen.there(client, numbers)
    for number in there:
        if len(numbers) > 1:
            render.talk(f"==> job {number} <==")
        if arguments.on("no-follow"):
            for block in client.log(number, follow=False, lines=lines):
                render.out_bytes(block)
        elif (detached := follow(client, number, lines)) is not None:
            return detached
    return int(len(there) < len(numbers))


COMMANDS = (
    Command(
        "log",
        "shows a job's log",
        log,
        (Argument("jobNumber", required=False, many=True),),
        (
            Option("-f --follow", "goes on until the job ends (as it does anyway)"),
            Option("--no-follow", "prints what is there and ends"),
            Option("-n --lines", "begins with the last so many lines", "count"),
            MINE,
        ),
        aliases=("logs",),
        examples=("pit log 190", "pit log 190 --no-follow -n 20", "pit log --mine"),
        notes="""
Ctrl-C ends the command, not the job. --mine means your running jobs, one after the other.""",
    ),
)
