"""The connection that git gets: opened ahead, good for one push, and in nobody's way when it is not wanted."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from snakepit.client.client import Client
from snakepit.client.reaching import PUSH, Head
from snakepit.errors import SnakepitError
from tests.waiting import wait_until

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: pit-pipe\r\n"


class Service:
    """Answers every request for a pipe with `answer`, and keeps the connection."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.asked: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.listener.getsockname()[1]}", "anna", "token")

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.recv(65536)
                self.asked.append(connection)  # first: who hears the answer looks for it here
                connection.sendall(self.answer)

    def close(self) -> None:
        self.listener.close()
        for connection in self.asked:
            connection.close()


@pytest.fixture
def services() -> Iterator[list[Service]]:
    made: list[Service] = []
    yield made
    for service in made:
        service.close()


def serving(services: list[Service], answer: bytes) -> Service:
    services.append(Service(answer))
    return services[-1]


def test_a_connection_opened_ahead_is_the_one_that_is_used_and_only_once(services: list[Service]) -> None:
    service = serving(services, SWITCHED + b"\r\n")
    head = Head(service.client)
    head.expect(PUSH)
    wait_until(lambda: len(service.asked) == 1)
    for turn in (1, 2):
        with head.reach(PUSH) as (address, handles):
            assert address == f"fd::{handles[0]}"
            service.asked[-1].sendall(b"refs")
            assert os.read(handles[0], 4) == b"refs"
        assert len(service.asked) == turn
        assert service.asked[-1].recv(1) == b""  # closed after use
    head.close()


def test_through_a_proxy_the_handle_is_one_end_of_a_relay(services: list[Service]) -> None:
    service = serving(services, SWITCHED + b"x-half-close: no\r\n\r\n")
    with Head(service.client).reach(PUSH) as (_, handles), socket.socket(fileno=os.dup(handles[0])) as theirs:
        service.asked[0].sendall(b"down")
        assert theirs.recv(4) == b"down"
        theirs.sendall(b"up")
        assert service.asked[0].recv(2) == b"up"
        theirs.shutdown(socket.SHUT_WR)  # as git does after a push, while the answer is still to come
        service.asked[0].sendall(b"report")
        assert theirs.recv(6) == b"report"
    assert service.asked[0].recv(1) == b""


def test_what_went_wrong_ahead_is_said_when_it_is_needed(services: list[Service]) -> None:
    refusal = b'{"message":"User \\"anna\\" uses 2M of 1M"}'
    head = Head(
        serving(services, b"HTTP/1.1 507 Full\r\ncontent-length: %d\r\n\r\n%s" % (len(refusal), refusal)).client
    )
    head.expect(PUSH)
    with pytest.raises(SnakepitError, match="uses 2M of 1M"), head.reach(PUSH):
        pass


def test_a_service_that_does_not_answer_holds_nobody_up_who_no_longer_needs_it(services: list[Service]) -> None:
    service = serving(services, b"")
    head = Head(service.client)
    head.expect(PUSH)
    wait_until(lambda: service.asked)
    begin = time.monotonic()
    head.close()
    assert time.monotonic() - begin < 5
