"""What the commands that go inside a job share: which worker they mean, and staying until Ctrl-C or the job's end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from snakepit.client.entities import job_numbers
from snakepit.client.forward import Forward
from snakepit.errors import NotFound
from snakepit.pit.arguments import Arguments, Option, UsageError

WORKER = Option("-w --worker", "which worker of the job (0 when left out)", "index")
MOST_HANDLES = 10240  # what macOS allows at most; enough for all that the service lets one user have


def one_job(arguments: Arguments) -> int:
    numbers = job_numbers([arguments.word("jobNumber")])
    if len(numbers) != 1:
        raise UsageError("expected one job number")
    return numbers[0]


def worker_of(arguments: Arguments) -> int:
    return arguments.number("worker") or 0


def allow_many() -> None:
    """As many open handles as the system lets us have: a connection takes two, and the usual 1024 are few."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # then as many as there were
        most = MOST_HANDLES if hard == resource.RLIM_INFINITY else min(hard, MOST_HANDLES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def keep_forwarding(forward: Forward, announce: Callable[[], None], part: Callable[[], None]) -> int:
    """Until Ctrl-C, which may come as soon as anything was announced, or the worker's end, after which we `part`."""
    allow_many()
    with contextlib.suppress(KeyboardInterrupt):
        forward.begin()
        announce()
        try:
            forward.run()
        except NotFound:
            part()
    return 0
