"""How long and how slow the head of a request may be. The parser below us has no measure: a head without an end would
fill memory and, copied once more with every read, hold up everybody; one that never comes would hold its connection,
and so would the rest of a body that was answered already. Connections take at most half of the open files we may have.
"""

from __future__ import annotations

import asyncio
import re
import resource

from snakepit.service.bodies import SLOWEST_BYTES_PER_S
from snakepit.service.pipes.upgrade import PipeProtocol

LARGEST_BYTES = 64 << 10
PATIENCE_S = 30.0
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
MOST_CONNECTIONS = 1_000_000 if _FILES == resource.RLIM_INFINITY else _FILES // 2
TOO_LARGE = b'{"message":"The head of the request is too large (64 kB max)"}'
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%s"
)


class BoundedProtocol(PipeProtocol):
    _head_bytes = 0
    _in_head = True
    _in_body = False
    _rest_bytes = 0
    _heads = 0
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._heads += 1
        self._calm()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._rest_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._await_rest()

    def data_received(self, data: bytes) -> None:
        if not self._in_body and not (self._in_head and self._head_bytes) and not data.isascii():
            data = in_ascii(data)
        before = self._heads
        super().data_received(data)
        if self._between_requests():
            self._await_head()  # empty lines before a head: they ended the patience for silence, and began nothing
        # Of bytes that also held the end of another head it is not known how many belong to this one.
        if self._in_head and before == self._heads and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_BYTES:
                self.transport.write(REFUSAL % (len(TOO_LARGE), TOO_LARGE))
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _between_requests(self) -> bool:
        answered = self.cycle is not None and self.cycle.response_complete
        ours = self.transport.get_protocol() is self  # it may have become a websocket
        return answered and ours and not self._in_head and not self._in_body

    def _await_head(self) -> None:
        if self._alarm is None:  # a head that began has no more time than one that did not
            self._alarm = self.loop.call_later(PATIENCE_S, self.transport.abort)

    def _await_rest(self) -> None:
        """Of a body that nobody waits for any more; a sender who hears answers only at its end may go on."""
        self._rest_bytes = 0
        self._calm()
        self._alarm = self.loop.call_later(PATIENCE_S, self._look_at_rest)

    def _look_at_rest(self) -> None:
        if self._rest_bytes < PATIENCE_S * SLOWEST_BYTES_PER_S:
            self.transport.abort()
        else:
            self._await_rest()

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def in_ascii(data: bytes) -> bytes:
    """The beginning of a request, its first line percent-encoded where the parser takes no raw bytes. The original
    client does not encode names: Node sends letters up to U+00FF as one byte each; what is UTF-8 already stays so."""
    line, end, rest = data.partition(b"\n")
    if not end or line.isascii():
        return data
    try:
        line.decode()
    except UnicodeDecodeError:
        line = line.decode("latin-1").encode()
    return re.sub(rb"[\x80-\xff]", lambda found: b"%%%02X" % found[0][0], line) + end + rest
