"""What keeps a pipe open: a token in use renews itself, one unused ends, and rights may go in silence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from snakepit.client.client import Client
from snakepit.client.pipe import open_pipe
from snakepit.errors import TooMany
from snakepit.service.pipes import registry
from tests.service.house import House, done, open_house, submit
from tests.sftp import Sftp
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(tmp_path_factory.mktemp("house")) as opened:
        opened.user("root")
        yield opened


def open_sftp(house: House, client: httpx.Client, entity: str = "home") -> Sftp:
    return Sftp(
        open_pipe(Client(house.url, token=client.headers["X-Auth-Token"]), f"/pipes/sftp?entity={entity}").socket
    )


def sweep(house: House) -> None:
    asyncio.run_coroutine_threadsafe(house.service.pipes.sweep(), house.events).result(20)


def test_a_token_in_use_by_a_pipe_lives_on(house: House) -> None:
    anna = house.user("anna")
    sftp = open_sftp(house, anna)
    before = house.later
    try:
        for _ in range(4):  # twice as long as a token lives unused
            house.later += timedelta(hours=12)
            sftp.names()
            sweep(house)
        assert anna.get("/users/~").status_code == 200
        house.later += timedelta(days=40)  # beyond tokenMaxAge nothing lives
        sweep(house)
        assert sftp.is_ended()
        assert anna.get("/users/~").status_code == 401
    finally:
        sftp.socket.close()
        house.later = before


def test_a_job_that_went_by_itself_takes_its_pipes_along(house: House) -> None:
    bob = house.user("bob")
    job = submit(bob)
    done(bob, job)
    sftp = open_sftp(house, bob, f"job:{job}")
    (house.root / "pits" / str(job)).rename(house.root / "trash" / "gone")
    sftp.names()
    sweep(house)
    assert sftp.is_ended()
    sftp.socket.close()


def test_one_user_does_not_take_all_the_pipes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_OF_A_USER", 3)
    cara, dora = house.user("cara"), house.user("dora")
    pipes = [open_sftp(house, cara) for _ in range(3)]
    with pytest.raises(TooMany, match="Too many pipes of yours"):
        open_sftp(house, cara)
    pipes.append(open_sftp(house, dora))
    for pipe in pipes:
        pipe.socket.close()
    wait_until(lambda: len(house.service.pipes) == 0)
    open_sftp(house, cara).socket.close()


def test_nothing_is_left_in_the_service_after_a_pipe(house: House) -> None:
    emil = house.user("emil")
    wait_until(lambda: len(house.service.pipes) == 0)
    before = handles()
    for _ in range(10):
        open_sftp(house, emil).socket.close()
    wait_until(lambda: len(house.service.pipes) == 0)
    wait_until(lambda: handles() <= before + 1)


def handles() -> int:
    """How many are open here, without those of the database, whose pool may grow."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "snakepit.db" not in path.readlink().name
    return found


def test_a_peer_that_went_without_a_word_will_be_noticed(house: House) -> None:
    """The kernel has its keepalive timer running on our end."""
    sftp = open_sftp(house, house.user("fina"))
    near, far = sftp.socket.getsockname()[1], sftp.socket.getpeername()[1]

    def timers() -> list[str]:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [row[5][:2] for row in rows if row[1].endswith(f":{far:04X}") and row[2].endswith(f":{near:04X}")]

    try:
        wait_until(lambda: timers() == ["02"], message="nothing else is under way")
    finally:
        sftp.socket.close()
