"""The local half of forwarded ports: pairs, listeners, frames that come in any pieces."""

import contextlib
import os
import socket
import threading

import pytest

from snakepit.client import ports
from snakepit.client.framing import CHUNK, LENGTH, BrokenOff, In, Out
from snakepit.errors import BadRequest, SnakepitError


def test_a_pair_is_local_and_remote() -> None:
    found = [(pair.local, pair.remote) for pair in map(ports.parse, ("80", "8080:80", "0:65535"))]
    assert found == [(80, 80), (8080, 80), (0, 65535)]


@pytest.mark.parametrize("word", ["", ":", "0", "a", "1:b", "1:0", "70000", "1:70000", "-1", "1:2:3", " 1", "²"])
def test_anything_else_is_refused(word: str) -> None:
    with pytest.raises(BadRequest, match="Wrong port pair format"):
        ports.parse(word)


def test_any_free_port_is_the_same_on_both_loopbacks() -> None:
    found = ports.listen(0)
    try:
        assert len({one.getsockname()[1] for one in found}) == 1
        assert [one.getsockname()[0] for one in found] == ["127.0.0.1", "::1"][: len(found)]
    finally:
        for one in found:
            one.close()


def test_a_port_that_is_taken_on_either_loopback_is_refused() -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((address, 0), family=family) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(SnakepitError, match=f"Port {port} is in use"):
                ports.listen(port)


def pairs() -> tuple[socket.socket, socket.socket, socket.socket, socket.socket]:
    outer, end = socket.socketpair()
    way, inner = socket.socketpair()
    for one in (end, way):
        one.setblocking(False)
    return outer, end, way, inner


def test_frames_survive_being_cut_anywhere() -> None:
    outer, end, way, inner = pairs()
    data = [os.urandom(size) for size in (1, 5, 1000, 3)]
    stream = b"".join(LENGTH.pack(len(part)) + part for part in (*data, b""))
    flow, space = In(way, end), memoryview(bytearray(CHUNK))
    came = b""
    with outer, end, way, inner:
        outer.setblocking(False)
        for at in range(len(stream)):
            inner.send(stream[at : at + 1])
            flow.pump(space)
            with contextlib.suppress(BlockingIOError):
                came += outer.recv(4096)
        assert flow.done
        assert outer.recv(1) == b""
    assert came == b"".join(data)


def test_a_way_that_ends_without_its_last_frame_is_broken() -> None:
    outer, end, way, inner = pairs()
    with outer, end, way:
        inner.send(LENGTH.pack(10) + b"half")
        inner.close()
        flow, space = In(way, end), memoryview(bytearray(CHUNK))
        flow.pump(space)
        with pytest.raises(BrokenOff):
            flow.pump(space)


def test_what_the_other_side_does_not_take_is_kept_and_nothing_more_is_read() -> None:
    outer, end, way, inner = pairs()
    data = os.urandom(4_000_000)
    with outer, end, way, inner:
        sender = threading.Thread(target=send, args=(outer, data))
        sender.start()
        flow, space, came = Out(end, way), memoryview(bytearray(CHUNK)), b""
        inner.setblocking(False)
        while not flow.done:
            flow.pump(space)
            assert len(flow.rest) <= CHUNK
            try:
                came += inner.recv(100_000)
            except BlockingIOError:
                continue
        sender.join()
        inner.setblocking(True)
        way.close()
        came += b"".join(iter(lambda: inner.recv(1 << 20), b""))
    assert unframed(came) == data


def send(one: socket.socket, data: bytes) -> None:
    one.sendall(data)
    one.shutdown(socket.SHUT_WR)


def unframed(stream: bytes) -> bytes:
    parts, at = [], 0
    while length := LENGTH.unpack_from(stream, at)[0]:
        parts.append(stream[at + LENGTH.size : at + LENGTH.size + length])
        at += LENGTH.size + length
    assert at + LENGTH.size == len(stream)
    return b"".join(parts)
