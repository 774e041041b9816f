"""Staying with a job while connections and services come and go: asking again, reading a log on where it broke off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from snakepit.client.http import NoConnection, query
from snakepit.errors import Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from snakepit.client.client import Client
    from snakepit.client.http import Answer

    T = TypeVar("T")

DONE = 7
GIVE_UP_S = 600  # a service that is away for longer than this is not just restarting


def patient(ask: Callable[[], T], lost: Callable[[], None] = lambda: None) -> T:
    """The answer, however often the connection has to be made again; `lost` is told once per interruption."""
    end, pause_s = 0.0, 0.1
    while True:
        try:
            return ask()
        except (NoConnection, Unavailable):
            now = time.monotonic()
            if end == 0.0:
                end = now + GIVE_UP_S
                lost()
            if now >= end:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 2)


def log(client: Client, job: int, follow: bool, lines: int | None) -> Iterator[bytes]:
    """Every byte once: what was seen is counted, and a new connection asks for what comes after it."""
    answer = client.answer("GET", _target(job, follow, lines, None), limit_s=None if follow else 60)
    start = answer.headers.get("x-offset", "")
    # A tail of an unknown beginning gives no place to go on from; then nothing can be promised but the error.
    counted = lines is None or start.isdigit()
    offset = int(start) if start.isdigit() else 0
    while True:
        client.told("- STREAM")
        try:
            for block in answer.blocks():
                offset += len(block)
                yield block
            if not (follow and counted):
                return
        except NoConnection:
            if not (follow and counted):
                raise
        # A service that stops ends its streams in good order; only the job's own word ends the log. What was written
        # between the two is read once more.
        follow = patient(lambda: client.job(job))["state"] < DONE
        answer = _again(client, _target(job, follow, None, offset))


def _again(client: Client, target: str) -> Answer:
    return patient(lambda: client.answer("GET", target, limit_s=None))


def _target(job: int, follow: bool, lines: int | None, offset: int | None) -> str:
    return f"/jobs/{job}/log" + query({"follow": int(follow), "lines": lines, "offset": offset})
