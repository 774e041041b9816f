"""Which jobs a command is about: numbers, ranges, `job:190`, or `--mine` with the command's own idea of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from snakepit.client import entities
from snakepit.client.client import DONE, Client
from snakepit.errors import NotFound
from snakepit.pit import render
from snakepit.pit.arguments import Arguments, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RUNNING, STOPPING = 4, 5
PAGE = 100


def jobs(client: Client, arguments: Arguments, mine: Callable[[Client], list[int]]) -> list[int]:
    words = arguments.words("jobNumber")
    if arguments.on("mine"):
        if words:
            raise UsageError("either job numbers or --mine")
        numbers = mine(client)
        if not numbers:
            render.talk("You have no such jobs.")
        return numbers
    if not words:
        raise UsageError("missing job number")
    return entities.job_numbers(words)


def there(client: Client, numbers: list[int]) -> list[int]:
    """Of several, those that exist; the others are named. One alone is left to its command to fail at."""
    if len(numbers) < 2:
        return numbers
    found, missing = [], []
    for number in numbers:
        try:
            client.job(number)
            found.append(number)
        except NotFound:
            missing.append(number)
    if missing:
        render.failure(f"{named(missing)}: Job not found")
    return found


def named(numbers: list[int]) -> str:
    """`job 5`, `jobs 5, 20-999`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"job {shown}" if len(numbers) == 1 else f"jobs {shown}"


def running(client: Client) -> list[int]:
    return sorted(job["id"] for job in _live(client) if job["state"] in (RUNNING, STOPPING))


def stoppable(client: Client) -> list[int]:
    return sorted(job["id"] for job in _live(client) if job["state"] < STOPPING)


def live(client: Client) -> list[int]:
    return sorted(job["id"] for job in _live(client) if job["state"] < DONE)


def done(client: Client) -> list[int]:
    return sorted(job["id"] for job in _every(client) if job["state"] >= DONE)


def unsuccessful(client: Client) -> list[int]:
    return sorted(
        job["id"]
        for job in _every(client)
        if job["state"] >= DONE and _outcome(client, job) in ("failed", "timed out", "lost")
    )


def _outcome(client: Client, job: dict[str, Any]) -> object:
    return job["outcome"] if "outcome" in job else client.job(job["id"]).get("outcome")


def _live(client: Client) -> list[dict[str, Any]]:
    me, status = my_name(client), client.status()
    return [job for group in ("running", "waiting", "done") for job in status.get(group, []) if job["user"] == me]


def _every(client: Client) -> Iterator[dict[str, Any]]:
    me, offset = my_name(client), 0
    while page := client.jobs(user=me, limit=PAGE, offset=offset):
        yield from page
        offset += len(page)


def my_name(client: Client) -> str:
    if client.user in ("", "~"):
        client.user = str(client.call("GET", "/users/~")["id"])
    return client.user
