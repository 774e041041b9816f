"""Small real servers that say exactly what a test wants said, byte for byte, one answer per connection or several."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Talk = Callable[[socket.socket, "Seen"], None]


class Seen:
    """The requests that arrived, and how to read the next."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    def next(self, connection: socket.socket) -> str:
        """The head of the next request, its body taken too; "" when the client is gone."""
        data = b""
        while b"\r\n\r\n" not in data:
            block = connection.recv(65536)
            if not block:
                return ""
            data += block
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.decode().split("\r\n"):
            if line.lower().startswith("content-length:"):
                length = int(line.partition(":")[2])
        while len(body) < length:
            body += connection.recv(65536)
        self.heads.append(head.decode())
        self.bodies.append(body)
        return head.decode()


@contextmanager
def serving(*talks: Talk, tls: Path | None = None) -> Iterator[tuple[str, Seen]]:
    """Accepts one connection per talk, in order; gives the address and what was seen."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = Seen()
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)

    def serve() -> None:
        for talk in talks:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    if context is None:
                        talk(connection, seen)
                    else:
                        with context.wrap_socket(connection, server_side=True) as secured:
                            talk(secured, seen)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}", seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)


def says(*answers: bytes) -> Talk:
    """One answer for each request on the connection, then it is closed."""

    def talk(connection: socket.socket, seen: Seen) -> None:
        for answer in answers:
            if not seen.next(connection):
                return
            connection.sendall(answer)

    return talk


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refused(status: int, message: str = "") -> bytes:
    body = f'{{"message": "{message}"}}'.encode() if message else b""
    return f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*parts: bytes, end: bool = True) -> bytes:
    chunks = b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + (b"0\r\n\r\n" if end else b"")
