"""What `pit run --interactive` does when it is told to end."""

import os
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest

from snakepit.client.client import Client
from snakepit.pit.interactive import stay


class HangingUp:
    """A service; the terminal is closed while the job waits, and says so again while it is stopped."""

    def __init__(self) -> None:
        self.stopped: list[int] = []

    def job(self, number: int) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGHUP)
        return {"id": number, "state": 1}

    def stop(self, number: int) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        self.stopped.append(number)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """What would have ended us."""
    found: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGHUP, before)


def test_a_job_that_waits_is_stopped_however_often_its_terminal_hangs_up(heard: list[int]) -> None:
    service = HangingUp()
    with pytest.raises(SystemExit) as ended:
        stay(cast(Client, service), 7, None)
    assert (service.stopped, heard, ended.value.code) == ([7], [], 128 + signal.SIGHUP)
