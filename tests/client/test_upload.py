"""An upload gets there whole, through proxies that take little at once and connections that break."""

import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from snakepit import Client
from snakepit.client.upload import upload
from snakepit.errors import TooLarge


class Home(http.server.BaseHTTPRequestHandler):
    """The few words of simplefs that an upload needs, on one file."""

    protocol_version = "HTTP/1.1"
    content: bytearray | None = None
    largest = 10**9
    breaks = 0

    def do_GET(self) -> None:
        content = type(self).content
        self._answer(404 if content is None else 200, {"size": len(content or b"")})

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        if "/stats/" in self.path:
            self.rfile.read(length)
            type(self).content = bytearray()
            self._answer(200, {})
        elif length > type(self).largest:
            self.rfile.read(length)
            self._answer(413, {"message": "too large"})
        else:
            self._append(length)

    def _append(self, length: int) -> None:
        content = type(self).content
        assert content is not None
        del content[int(self.headers["Content-Offset"]) :]
        if type(self).breaks:
            type(self).breaks -= 1
            content += self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.close()
            return
        content += self.rfile.read(length)
        self._answer(200, {})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def home(content: bytes | None = None, largest: int = 10**9, breaks: int = 0) -> Iterator[tuple[Client, type[Home]]]:
    class OneHome(Home):
        pass

    OneHome.content = None if content is None else bytearray(content)
    OneHome.largest, OneHome.breaks = largest, breaks
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneHome) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_address[1]}") as client:
            yield client, OneHome
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    path.write_bytes(os.urandom(2_000_000))
    return path


def test_a_new_upload_arrives_and_says_how_far_it_is(archive: Path) -> None:
    told: list[tuple[int, int]] = []
    with home() as (client, there):
        upload(client, str(archive), "x", lambda done, total, _: told.append((done, total)))
        assert bytes(there.content or b"") == archive.read_bytes()
    assert told == [(2_000_000, 2_000_000)]


def test_an_old_upload_goes_on_where_it_was(archive: Path) -> None:
    with home(archive.read_bytes()[:700_000]) as (client, there):
        upload(client, str(archive), "x", lambda *_: None)
        assert bytes(there.content or b"") == archive.read_bytes()


def test_something_longer_begins_anew(archive: Path) -> None:
    with home(b"y" * 3_000_000) as (client, there):
        upload(client, str(archive), "x", lambda *_: None)
        assert bytes(there.content or b"") == archive.read_bytes()


def test_broken_connections_are_made_again(archive: Path) -> None:
    with home(breaks=3) as (client, there):
        upload(client, str(archive), "x", lambda *_: None)
        assert bytes(there.content or b"") == archive.read_bytes()


def test_a_proxy_that_takes_little_gets_little_at_once(archive: Path) -> None:
    with home(largest=500_000) as (client, there):
        upload(client, str(archive), "x", lambda *_: None)
        assert bytes(there.content or b"") == archive.read_bytes()


def test_one_that_takes_next_to_nothing_is_given_up(archive: Path) -> None:
    with home(largest=1000) as (client, _), pytest.raises(TooLarge):
        upload(client, str(archive), "x", lambda *_: None)


def test_an_empty_file_needs_no_content(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with home() as (client, there):
        upload(client, str(tmp_path / "empty"), "x", lambda *_: None)
        assert there.content is not None
        assert not there.content
