"""`pit remove`: asks first on a terminal, wants -y in scripts."""

from __future__ import annotations

from snakepit.client import entities
from snakepit.client.client import Client
from snakepit.errors import BadRequest
from snakepit.pit import ask, chosen, session
from snakepit.pit.arguments import MINE, YES, Argument, Arguments, Command, UsageError
from snakepit.pit.commands.jobs import each

OTHERS = ("user", "node", "alias", "group")


def remove(arguments: Arguments) -> int:
    words = arguments.words("entity")
    if arguments.on("mine"):
        if words:
            raise UsageError("either entities or --mine")
        client = session.open_client()
        return _jobs(client, chosen.done(client), arguments.on("yes"))
    if not words:
        raise UsageError("missing argument <entity>")
    jobs = [word for word in words if word[0].isdigit() or word.startswith("job:")]
    things = [entities.parse(word, OTHERS) for word in words if word not in jobs]
    numbers = entities.job_numbers(jobs)
    client = session.open_client()
    code = 0
    for thing in things:
        _agree(f"Remove {thing}{' and all its data' if thing.type in ('user', 'group') else ''}", arguments.on("yes"))
        client.call("DELETE", thing.path)
    if numbers:
        code = _jobs(client, numbers, arguments.on("yes"))
    return code


def _jobs(client: Client, numbers: list[int], agreed: bool) -> int:
    if numbers:
        what = f"job {numbers[0]} and its data" if len(numbers) == 1 else f"{len(numbers)} jobs and their data"
        _agree(f"Remove {what}", agreed)
    return each(numbers, client.remove_job)


def _agree(question: str, agreed: bool) -> None:
    if not ask.yes(f"{question} (yN)? ", "-y", agreed or None):
        raise BadRequest("Aborted")


COMMANDS = (
    Command(
        "remove",
        "removes an entity from the system",
        remove,
        (Argument("entity", required=False, many=True),),
        (YES, MINE),
        aliases=("rm",),
        examples=("pit rm job:190", "pit rm -y 190-195", "pit rm --mine", "pit rm user:anna"),
        notes="""
--mine means your ended jobs.""",
    ),
)
