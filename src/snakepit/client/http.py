"""As much HTTP/1.1 as a client of one service needs, on a plain socket: keep-alive, chunked streams, pinned TLS.

Why not `http.client`: importing it takes 28 ms, more than twice a whole start of Python, and `pit status` may take four
starts in all. Nothing here knows what the service means; `client` does.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Iterable, Iterator

from snakepit.errors import SnakepitError

CONNECT_LIMIT_S = 10
KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))
MAX_LINE = 65536
BLOCK = 65536
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO


class NoConnection(SnakepitError):
    """The service could not be reached; nothing was sent."""

    status = 503


class LostAnswer(NoConnection):
    """The connection broke after something was sent: the service may or may not have done it."""


class Address:
    """Where a service is: the first line of `.pitconnect.txt`, taken apart."""

    __slots__ = ("host", "port", "prefix", "tls", "url")

    def __init__(self, url: str) -> None:
        self.url = url.strip().rstrip("/")
        scheme, separator, rest = self.url.partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            raise SnakepitError(f'not an address of a service: "{url.strip()}" (expected http://… or https://…)')
        self.tls = scheme.lower() == "https"
        place, _, prefix = rest.partition("/")
        self.prefix = "/" + prefix if prefix else ""
        self.host, self.port = _host_and_port(place, 443 if self.tls else 80, url)
        if not (self.url.isascii() and self.url.isprintable()) or " " in self.url:
            raise SnakepitError(f'not an address of a service: "{url.strip()}"')

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def _host_and_port(place: str, default: int, url: str) -> tuple[str, int]:
    if place.startswith("["):
        host, _, after = place[1:].partition("]")
        port = after.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host or "@" in host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
        raise SnakepitError(f'not an address of a service: "{url.strip()}"')
    return host, int(port) if port else default


class Answer:
    """Status and headers; the body is read once, whole (`read`) or as it comes (`blocks`)."""

    __slots__ = ("_reader", "_remaining", "_shut", "headers", "keep", "status", "whole")

    def __init__(self, reader: BinaryIO, method: str) -> None:
        self._reader = reader
        self.status, self.keep = _read_status(reader)
        self.headers = read_headers(reader)
        if self.headers.get("connection", "").lower() == "close":
            self.keep = False
        self.whole = False
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        if method == "HEAD" or self.status in (204, 304):
            self._remaining: int | None = 0
        elif chunked:
            self._remaining = None
        elif length.isdigit():
            self._remaining = int(length)
        else:
            self._remaining, self.keep = -1, False  # until the connection ends

    def read(self) -> bytes:
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """The body as it arrives; LostAnswer when it breaks off before its end."""
        try:
            if self._remaining is None:
                yield from self._chunks()
            else:
                yield from self._plain(self._remaining)
        except OSError as problem:
            raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
        self.whole = True

    def _plain(self, remaining: int) -> Iterator[bytes]:
        while remaining:
            block = self._reader.read1(BLOCK if remaining < 0 else min(BLOCK, remaining))  # type: ignore[attr-defined]
            if not block:
                if remaining < 0:
                    return
                raise LostAnswer("Lost connection to pit: the answer broke off")
            remaining -= len(block) if remaining > 0 else 0
            yield block

    def _chunks(self) -> Iterator[bytes]:
        while size := _chunk_size(self._reader.readline(MAX_LINE)):
            yield from self._plain(size)
            self._reader.readline(MAX_LINE)
        while self._reader.readline(MAX_LINE).strip():  # trailers
            pass


def _chunked(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if block:
            yield b"%x\r\n" % len(block) + block + b"\r\n"
    yield b"0\r\n\r\n"


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise LostAnswer("Lost connection to pit: the answer broke off") from None


def _read_status(reader: BinaryIO) -> tuple[int, bool]:
    while True:
        line = reader.readline(MAX_LINE)
        if not line:
            raise LostAnswer("Lost connection to pit: no answer")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            if line.startswith(b"\x15\x03"):  # an alert of TLS
                raise SnakepitError("what answers there speaks TLS: use https:// in the place of http://")
            raise SnakepitError("what answers there does not speak HTTP")
        if not 100 <= int(words[1]) < 200:
            return int(words[1]), words[0] != b"HTTP/1.0"
        read_headers(reader)


def read_headers(reader: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    while (line := reader.readline(MAX_LINE)) not in (b"\r\n", b"\n"):
        if not line:
            raise LostAnswer("Lost connection to pit: no answer")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


class Link:
    """One connection to the service, opened when needed and used again while both sides like."""

    def __init__(self, address: Address, certificate: str = "") -> None:
        self._address, self._certificate = address, certificate
        self._socket: socket.socket | None = None
        self._reader: BinaryIO | None = None
        self._answer: Answer | None = None
        self._owed = False  # an answer that was asked for and has not begun: a Ctrl-C may come before it does

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        for thing in (self._reader, self._socket):
            if thing is not None:
                thing.close()
        self._socket = self._reader = self._answer = None
        self._owed = False

    def ask(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterable[bytes] = b"",
        length: int | None = None,
        limit_s: float | None = 60,
    ) -> Answer:
        """Sends and gives the answer's head. A connection that went stale while idle is replaced once, silently.
        Blocks without a length go in chunks."""
        size = len(body) if isinstance(body, bytes) else length
        if not isinstance(body, bytes) and size is None:
            body = _chunked(body)
        head = self._head(method, target, headers, size)
        used = self._reusable()
        try:
            return self._ask(method, head, body, limit_s)
        except LostAnswer:
            self.close()
            # A server may close an idle connection at any time; a question without consequences is asked again.
            if not (used and method in ("GET", "HEAD")):
                raise
        return self._ask(method, head, body, limit_s)

    def _reusable(self) -> bool:
        """Whether there is a connection that both sides can go on with. While somebody typed a password, the service
        may well have closed it: then there is something to read (its end), where nothing was asked."""
        if self._owed or (self._answer is not None and not (self._answer.whole and self._answer.keep)):
            self.close()
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        return self._socket is not None

    def _head(self, method: str, target: str, headers: dict[str, str], size: int | None) -> bytes:
        lines = [f"{method} {self._address.prefix}{target} HTTP/1.1", f"Host: {self._address.host_header}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if size is None:
            lines.append("Transfer-Encoding: chunked")
        elif size or method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {size}")
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise SnakepitError("a header may not contain line breaks or non-ASCII characters")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _ask(self, method: str, head: bytes, body: bytes | Iterable[bytes], limit_s: float | None) -> Answer:
        connection, reader = self._connected()
        connection.settimeout(limit_s)
        self._owed = True
        try:
            if isinstance(body, bytes):
                connection.sendall(head + body)
            else:
                connection.sendall(head)
                for block in body:
                    connection.sendall(block)
        except OSError as problem:
            # A server that refuses a large body answers and hangs up while we still send: its words come first.
            self._answer = self._last_words(reader, method)
            if self._answer is not None:
                self._owed = False
                return self._answer
            raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
        try:
            self._answer = Answer(reader, method)
            self._owed = False
        except OSError as problem:
            raise LostAnswer(f"Lost connection to pit: {reason(problem)}") from None
        return self._answer

    def _last_words(self, reader: BinaryIO, method: str) -> Answer | None:
        try:
            answer = Answer(reader, method)
        except (OSError, SnakepitError):
            return None
        answer.keep = False
        return answer

    def _connected(self) -> tuple[socket.socket, BinaryIO]:
        if self._socket is None or self._reader is None:
            self._socket = self._open()
            self._reader = self._socket.makefile("rb")
        return self._socket, self._reader

    def _open(self) -> socket.socket:
        return connect(self._address, self._certificate)


def connect(address: Address, certificate: str = "") -> socket.socket:
    """A connection to the service, with TLS on it where the address says so."""
    try:
        # As bytes, or the host name goes through (and imports) the IDNA tables.
        place = (address.host.encode(), address.port)
        plain = socket.create_connection(place, timeout=CONNECT_LIMIT_S)  # type: ignore[arg-type]
    except OSError as problem:
        raise NoConnection(f"Unable to reach pit: {reason(problem)} ({address.url})") from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A follower may wait for hours; these notice a peer that went away without a word.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE:
        if hasattr(socket, option):
            plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if not address.tls:
        return plain
    from snakepit.client import tls  # ssl takes its time

    return tls.wrap(plain, address, certificate)


def reason(problem: OSError) -> str:
    """ECONNREFUSED and the like; words where there is no such name."""
    if isinstance(problem, TimeoutError):
        return "ETIMEDOUT"
    if isinstance(problem, socket.gaierror):
        return "unknown host"
    return errno.errorcode.get(problem.errno or 0, str(problem) or type(problem).__name__)


SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def quote(text: str) -> str:
    """Percent-encoding of one path segment or query value (importing urllib.parse costs more than it gives)."""
    return "".join(chr(byte) if byte in SAFE else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def query(values: dict[str, str | int | None]) -> str:
    pairs = [f"{quote(name)}={quote(str(value))}" for name, value in values.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""
