"""What the commands that go inside a job share: which worker they mean, and staying until Ctrl-C or the job's end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from snakepit.client.entities import job_numbers
from snakepit.client.forward import Forward
from snakepit.pit.arguments import Arguments, Option, UsageError

WORKER = Option("-w --worker", "which worker of the job (0 when left out)", "index")


def one_job(arguments: Arguments) -> int:
    numbers = job_numbers([arguments.word("jobNumber")])
    if len(numbers) != 1:
        raise UsageError("expected one job number")
    return numbers[0]


def worker_of(arguments: Arguments) -> int:
    return arguments.number("worker") or 0


def keep_forwarding(forward: Forward, announce: Callable[[], None]) -> int:
    """Until Ctrl-C, which may come as soon as anything was announced."""
    with contextlib.suppress(KeyboardInterrupt):
        forward.begin()
        announce()
        forward.run()
    return 0
