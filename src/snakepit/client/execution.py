"""A command inside a running job, from the caller's side: three handles here, frames on the way, a code at the end.

One loop and no thread; what waits in either direction is bounded, so a flood is as slow as its slowest part. Started as
often as ssh would be, so it imports little.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct

from snakepit.client.client import Client
from snakepit.client.http import LostAnswer, quote, reason
from snakepit.client.pipe import allow_waiting, hang_up_at_once, open_pipe
from snakepit.errors import BadRequest, SnakepitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class Terminal(Protocol):
        """`resized` can be read when the window has another size; `read` gives what was typed."""

        resized: int

        def size(self) -> tuple[int, int]: ...
        def read(self, handle: int) -> bytes: ...


CONTROL, STDIN, STDOUT, STDERR = 0, 1, 1, 2
HEAD = struct.Struct("!BI")
BLOCK = 1 << 17
ENOUGH = 1 << 18
LARGEST_FRAME = 1 << 24
LONGEST_PATH = 60_000  # what the head of a request has room for, beside a token and the words of a proxy


def start(
    client: Client,
    job: int,
    worker: int = 0,
    argv: list[str] | None = None,
    environment: dict[str, str] | None = None,
    size: tuple[int, int] | None = None,
) -> Execution:
    """The command, begun; without one a login shell. `size` (columns, rows) gives it a terminal."""
    context: dict[str, object] = {"environment": environment or {}, "interactive": size is not None}
    context |= {"command": argv} if argv else {"shell": True}
    if size is not None:
        context |= {"width": size[0], "height": size[1]}
    path = f"/jobs/{job}/instances/{worker}/exec?context={quote(json.dumps(context))}"
    if len(path) > LONGEST_PATH:
        words = "The command is too long: send it as a file, or by stdin, like pit exec 190 -- bash -s < script"
        raise BadRequest(words)
    opened = open_pipe(client, path).socket
    hang_up_at_once(opened)
    if size is None:  # on a terminal little is sent, and somebody waits to hear that the network is gone
        allow_waiting(opened)
    return Execution(opened)


class Execution:
    """`run` does it all; `send`, `end_input`, `resize` and `receive` are for those who want to do it themselves."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._would_block: tuple[type[BaseException], ...] = (BlockingIOError, InterruptedError)
        if hasattr(opened, "pending"):
            import ssl

            self._would_block += (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        opened.setblocking(False)
        self._outgoing, self._heard = bytearray(), bytearray()
        self.code: int | None = None  # once it ended

    def close(self) -> None:
        """Hangs up, where the command still runs."""
        self._socket.close()

    def send(self, data: bytes, channel: int = STDIN) -> None:
        self._outgoing += HEAD.pack(channel, len(data))
        self._outgoing += data
        self._flush()

    def end_input(self) -> None:
        self.send(b"")

    def resize(self, columns: int, rows: int) -> None:
        args = {"width": columns, "height": rows}
        self.send(json.dumps({"command": "window-resize", "args": args}).encode(), CONTROL)

    def run(self, stdin: int, stdout: int, stderr: int, terminal: Terminal | None = None) -> int:
        """Carries bytes until the command ends: its code. A terminal reads what is typed in its own way."""
        read, news = (terminal.read, terminal.resized) if terminal is not None else (_read, -1)
        reading = stdin >= 0
        while self.code is None:
            for handle in self._wait(stdin if reading else -1, news):
                if handle == news and terminal is not None:
                    self.resize(*terminal.size())
                elif handle == stdin:
                    data = read(stdin)
                    reading = bool(data)
                    self.send(data)
                else:
                    self._flush()
                    for channel, content in self.receive():
                        write_all(stderr if channel == STDERR else stdout, content)
        return self.code

    def wait_readable(self, limit_s: float | None = None) -> None:
        """Until something has come, or for so long."""
        self._wait(-1, -1, None if limit_s is None else max(0, int(limit_s * 1000)))

    def receive(self) -> list[tuple[int, bytes]]:
        """What has come (stdout 1, stderr 2); its code is in `code` when it ended. LostAnswer when it broke off."""
        try:
            data = self._socket.recv(ENOUGH)
        except self._would_block:
            return []
        except OSError as problem:
            raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
        if not data and self.code is None:
            raise LostAnswer("Lost connection to pit: the command was ended from there")
        self._heard += data
        return list(self._frames())

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        at = 0
        while len(self._heard) - at >= HEAD.size:
            channel, length = HEAD.unpack_from(self._heard, at)
            if length > LARGEST_FRAME:
                raise SnakepitError("what answers there does not speak our language")
            if len(self._heard) - at < HEAD.size + length:
                break
            content = bytes(memoryview(self._heard)[at + HEAD.size : at + HEAD.size + length])
            at += HEAD.size + length
            if channel == CONTROL:
                self._control(content)
            else:
                yield channel, content
        del self._heard[:at]

    def _control(self, content: bytes) -> None:
        word = json.loads(content)
        if isinstance(word, dict) and isinstance(word.get("exit"), int):
            self.code = word["exit"]

    def _wait(self, stdin: int, news: int, limit_ms: int | None = None) -> list[int]:
        if hasattr(self._socket, "pending") and self._socket.pending():
            return [self._socket.fileno()]
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        if stdin >= 0 and len(self._outgoing) < ENOUGH:
            poll.register(stdin, select.POLLIN)
        if news >= 0:
            poll.register(news, select.POLLIN)
        return [handle for handle, _ in poll.poll(limit_ms)]

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(memoryview(self._outgoing)[:ENOUGH])]
        except self._would_block:
            pass
        except OSError:
            self._outgoing.clear()  # it ended; what it said last is still to be read


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, BLOCK)
    except OSError:
        return b""  # a terminal that went away


def write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(handle, rest) :]
        except BlockingIOError:  # somebody left it so, and waits for nobody
            poll = select.poll()
            poll.register(handle, select.POLLOUT)
            poll.poll()
