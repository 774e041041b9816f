"""Heads of requests that are too long, too slow, or not fit for a terminal."""

import logging
import socket
from collections.abc import Iterator

import pytest

from snakepit.service import heads
from tests.service.house import House

START = b"GET /hello HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def line(house: House) -> Iterator[socket.socket]:
    host, port = house.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as made:
        yield made


def heard(line: socket.socket) -> bytes:
    """All that is said until the connection ends."""
    words = b""
    while more := line.recv(1 << 16):
        words += more
    return words


def test_a_head_without_an_end_is_refused_and_not_kept(line: socket.socket, house: House) -> None:
    line.sendall(START + b"X: " + b"a" * (heads.LARGEST_BYTES + 1))
    answer = heard(line)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert heads.TOO_LARGE in answer
    assert house.client.get("/hello").text == "Here I am"


def test_a_head_that_does_not_come_ends_its_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "PATIENCE_S", 0.2)
    host, port = house.url.removeprefix("http://").split(":")
    for sent in (b"", START, START + b"Content-Length: 2\r\n\r\n{}" + START):
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(sent)
            try:
                answer = heard(line)
            except ConnectionResetError:
                answer = b""
        assert answer.count(b"Here I am") == sent.count(b"{}")


def test_many_heads_and_bodies_on_one_connection_are_measured_one_by_one(line: socket.socket) -> None:
    one = START + b"X: " + b"a" * 1000 + b"\r\n"
    count = 2 * heads.LARGEST_BYTES // len(one)
    line.sendall((one + b"\r\n") * count + one + b"Connection: close\r\n\r\n")
    assert heard(line).count(b"Here I am") == count + 1


def test_the_log_of_requests_holds_no_control_characters(house: House, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "snakepit.http"):
        house.client.get("/jobs/1%1b%5b2J%00%0d%0aforged")
    lines = [record.getMessage() for record in caplog.records if record.name == "snakepit.http"]
    assert any(r"/jobs/1\x1b[2J\x00\r\nforged 401" in line for line in lines)
    assert all(line.isprintable() for line in lines)
