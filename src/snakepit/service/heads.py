"""How long and how slow the head of a request may be. The parser below us has no measure: a head without an end would
fill memory and, copied once more with every read, hold up everybody; one that never comes would hold its connection.
"""

from __future__ import annotations

import asyncio

from snakepit.service.pipes.upgrade import PipeProtocol

LARGEST_BYTES = 64 << 10
PATIENCE_S = 30.0
TOO_LARGE = b'{"message":"The head of the request is too large (64 kB max)"}'
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%s"
)


class BoundedProtocol(PipeProtocol):
    _head_bytes = 0
    _in_head = True
    _heads = 0
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._heads += 1
        self._calm()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        before = self._heads
        super().data_received(data)
        # Of bytes that also held the end of another head it is not known how many belong to this one.
        if self._in_head and before == self._heads and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_BYTES:
                self.transport.write(REFUSAL % (len(TOO_LARGE), TOO_LARGE))
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._alarm is None:  # a head that began has no more time than one that did not
            self._alarm = self.loop.call_later(PATIENCE_S, self.transport.abort)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
