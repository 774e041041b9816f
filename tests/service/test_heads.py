"""Heads and bodies of requests that are too long, too slow, or not fit for a terminal."""

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from snakepit.core.job import State
from snakepit.service import bodies, heads
from snakepit.service.call import LARGEST_OF_STRANGERS_BYTES
from tests.service.house import House, submit
from tests.waiting import wait_until

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


def end_of(line: socket.socket) -> bytes:
    """The same, where the end may come as a reset."""
    words = b""
    with contextlib.suppress(ConnectionResetError):
        while more := line.recv(1 << 16):
            words += more
    return words


def hear_hello(line: socket.socket) -> None:
    words = b""
    while not words.endswith(b"Here I am"):
        more = line.recv(1 << 16)
        assert more, words
        words += more


def test_a_head_without_an_end_is_refused_and_not_kept(line: socket.socket, house: House) -> None:
    line.sendall(START + b"X: " + b"a" * (heads.LARGEST_BYTES + 1))
    answer = heard(line)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert heads.TOO_LARGE in answer
    assert house.client.get("/hello").text == "Here I am"


def test_a_head_that_does_not_come_ends_its_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "PATIENCE_S", 0.2)
    host, port = house.url.removeprefix("http://").split(":")
    for sent in (b"", START):
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(sent)
            assert end_of(line) == b""


def test_a_head_that_does_not_come_after_others_ends_its_connection(
    line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sendall(START + b"\r\n")
    hear_hello(line)
    monkeypatch.setattr(heads, "PATIENCE_S", 0.2)
    line.sendall(START + b"Content-Length: 2\r\n\r\n{}" + START)
    assert end_of(line).count(b"Here I am") == 1


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


def test_empty_lines_between_requests_do_not_hold_a_connection(
    line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sendall(START + b"\r\n")
    hear_hello(line)
    monkeypatch.setattr(heads, "PATIENCE_S", 0.2)
    line.sendall(b"\r\n")
    assert end_of(line) == b""


def test_a_connection_that_became_a_websocket_is_not_waited_at_for_heads(
    line: socket.socket, anna: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(anna, "sleep")
    wait_until(lambda: anna.get(f"/jobs/{job}").json()["state"] == State.RUNNING)
    monkeypatch.setattr(heads, "PATIENCE_S", 0.05)
    line.sendall(START + b"\r\n")
    hear_hello(line)
    line.sendall(
        b"GET /jobs/%d/instances/0/forward HTTP/1.1\r\nHost: x\r\nX-Auth-Token: %s\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        % (job, anna.headers["X-Auth-Token"].encode())
    )
    assert line.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
    line.settimeout(0.3)
    with pytest.raises(TimeoutError):
        line.recv(1)
    line.settimeout(20)
    line.sendall(b"\x89\x80\0\0\0\0")
    assert line.recv(2) == b"\x8a\0"


def test_the_rest_of_a_body_that_was_answered_already_has_no_time_without_end(
    line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.sendall(START + b"\r\n")
    hear_hello(line)
    monkeypatch.setattr(heads, "PATIENCE_S", 0.2)
    line.sendall(START + b"Content-Length: 1000\r\n\r\n{")
    hear_hello(line)
    assert end_of(line) == b""


def test_a_json_body_that_does_not_come_in_time_is_refused(
    line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 0.2)
    line.sendall(b"POST /users/anna/authenticate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    answer = heard(line)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"The body came too slowly" in answer


def test_a_large_body_has_more_time_while_it_comes(anna: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 1.0)
    monkeypatch.setattr(bodies, "SLOWEST_BYTES_PER_S", 500)
    waiting = threading.Event()

    def slowly() -> Iterator[bytes]:
        text = json.dumps({"clusterRequest": "[]", "description": "a job", "script": "true"}) + " " * 3000
        for at in range(0, len(text), 500):
            yield text[at : at + 500].encode()
            waiting.wait(0.25)

    answer = anna.post("/jobs", content=slowly(), headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text


def test_an_upload_that_falls_silent_is_given_up(
    line: socket.socket, anna: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "SILENCE_S", 0.2)
    assert anna.put("/users/~/simplefs/stats/slow.bin", json={"type": "file"}).status_code == 200
    token = anna.headers["X-Auth-Token"].encode()
    head = b"PUT /users/~/simplefs/content/slow.bin HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    line.sendall(head + b"X-Auth-Token: %s\r\n\r\na" % token)
    assert b"nothing came for" in heard(line)


def test_strangers_may_not_send_much(house: House) -> None:
    answer = house.client.post("/users/anna/authenticate", json={"password": "x" * LARGEST_OF_STRANGERS_BYTES})
    assert (answer.status_code, answer.json()) == (413, {"message": "The body is too large (64K max)"})


def test_connections_beyond_what_the_machine_can_bear_are_closed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.client.get("/hello").status_code == 200
    monkeypatch.setattr(heads, "MOST_CONNECTIONS", 0)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{house.url}/hello")
    assert house.client.get("/hello").status_code == 200
