"""Giving a connection away: a request with `Upgrade: pit-pipe` may end as a plain socket in other hands.

After the 101 no byte of it passes through Python. The client waits for the 101 before it sends more: bytes that came
earlier lie in the parser's hands, where no program could read them, so such a request is refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import httptools
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from snakepit.errors import BadRequest
from snakepit.service.bodies import EXTENSION as BODY
from snakepit.service.bodies import Body

PROTOCOL = b"pit-pipe"
EXTENSION = "pit.pipe"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: pit-pipe\r\n%s\r\n"
# Web servers in front take the end of one direction for the end of both: the client has to know.
PROXIED = b"X-Half-Close: no\r\n"
FORWARDING = (b"x-forwarded-for", b"forwarded", b"via")
# A peer that went away without a word is noticed after a minute, and nothing is left behind.
KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class Handover:
    """A connection that asks to be given away; `refused_for` says why it cannot be."""

    def __init__(self, transport: asyncio.Transport, proxied: bool) -> None:
        self._transport, self._proxied = transport, proxied
        self.gone = asyncio.Event()
        self.refused_for = ""

    async def take(self) -> socket.socket:
        """The socket, blocking, after 101 was sent on it; the HTTP side knows it no more."""
        if not self.refused_for and self._transport.get_extra_info("sslcontext") is not None:
            self.refused_for = "TLS is ended by a web server in front, not here"
        if not self.refused_for and self._transport.get_write_buffer_size():
            self.refused_for = "the former answer is still under way"
        if self.refused_for:
            raise BadRequest(f"No pipe: {self.refused_for}")
        known = self._transport.get_extra_info("socket")
        if self.gone.is_set() or known is None or known.fileno() < 0:
            raise BadRequest("No pipe: the connection is gone")
        own = socket.socket(fileno=os.dup(known.fileno()))
        try:
            self._transport.abort()  # closes its own handle; ours keeps the connection
            await self.gone.wait()
            _prepare(own, SWITCHING % (PROXIED if self._proxied else b""))
        except BaseException:
            own.close()
            raise
        return own


def _prepare(own: socket.socket, head: bytes) -> None:
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in KEEPALIVE:
        own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    # Sent before it blocks: nothing else is in its buffer, so this little fits.
    own.send(head)
    own.setblocking(True)


def handover_of(request: Request) -> Handover:
    found = request.scope.get("extensions", {}).get(EXTENSION)
    if not isinstance(found, Handover) or request.method != "GET":
        raise BadRequest("This address is for pipes: ask with GET, Connection: Upgrade and Upgrade: pit-pipe")
    return found


class PipeProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, which also knows the one upgrade of ours; all else goes its usual way."""

    handover: Handover | None = None

    def on_headers_complete(self) -> None:
        self.handover = None
        if _asked(self.headers):
            self.handover = Handover(self.transport, any(name in FORWARDING for name, _ in self.headers))
            if self.cycle is not None and not self.cycle.response_complete:
                self.handover.refused_for = "it was asked for before the former answer had come"
            elif any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
                self.handover.refused_for = "a request for one has no body"
            scope: dict[str, Any] = self.scope  # type: ignore[assignment]
            scope["extensions"] = {EXTENSION: self.handover}
            self.flow.pause_reading()  # what comes from here on belongs to the program
        elif any(name == b"content-length" for name, _ in self.headers):
            self.scope["extensions"] = {BODY: Body(self)}  # type: ignore[dict-item]
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(len(data) - int(upgrade.args[0]))
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _upgrade(self, early_bytes: int) -> None:
        if self.handover is not None:
            if early_bytes:
                self.handover.refused_for = self.handover.refused_for or "bytes came before the answer 101"
                self.cycle.keep_alive = False  # the parser has lost them, and with them its place
        elif self._should_upgrade():
            self.handle_websocket_upgrade()
        else:
            self._unsupported_upgrade_warning()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.handover is not None:
            self.handover.gone.set()


def _asked(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether `Connection` says that `Upgrade` counts, and `Upgrade` is ours."""
    words = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    protocols = [value.strip().lower() for name, value in headers if name == b"upgrade"]
    return b"upgrade" in words and protocols == [PROTOCOL]
