"""The upgrade to a pipe as HTTP sees it: who is let through, and what becomes of those who are not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.errors import BadRequest, Forbidden, NotFound
from snakepit.service.pipes import rsync
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.repository import git
from tests.service.house import House

Talk = Callable[..., bytes]


@pytest.fixture
def talk(house: House, anna: httpx.Client) -> Iterator[Talk]:
    """Sends raw bytes on one connection and gives what has come back once the service closed it, or said `until`."""
    opened: list[socket.socket] = []

    def send(*parts: bytes, until: bytes = b"") -> bytes:
        connection = socket.create_connection(("127.0.0.1", int(house.url.rpartition(":")[2])), timeout=30)
        opened.append(connection)
        heard = b""
        for part in parts:
            connection.sendall(part)
            heard += _heard(connection, b"\r\n\r\n" if part is not parts[-1] else until)
        return heard

    yield send
    for connection in opened:
        connection.close()


def _heard(connection: socket.socket, until: bytes) -> bytes:
    heard = b""
    while not until or until not in heard:
        more = connection.recv(65536)
        if not more:
            break
        heard += more
    return heard


def ask(client: httpx.Client, path: str = "/pipes/sftp?entity=home", more: str = "", method: str = "GET") -> bytes:
    token = client.headers["X-Auth-Token"]
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n"
        f"Connection: keep-alive, Upgrade\r\nUpgrade: pit-pipe\r\n{more}\r\n"
    ).encode()


def test_a_plain_request_is_told_how_to_ask(anna: httpx.Client) -> None:
    for method in ("GET", "HEAD"):
        answer = anna.request(method, "/pipes/sftp?entity=home")
        assert answer.status_code == 400
    assert "Upgrade: pit-pipe" in anna.get("/pipes/sftp?entity=home").json()["message"]
    assert anna.post("/pipes/sftp").status_code == 405


def test_bytes_before_the_101_are_refused_and_end_the_connection(talk: Talk, anna: httpx.Client) -> None:
    heard = talk(ask(anna) + b"\0\0\0\5\1\0\0\0\3")
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert b"bytes came before the answer 101" in heard
    assert b"connection: close" in heard.lower()


def test_a_body_is_refused(talk: Talk, anna: httpx.Client) -> None:
    heard = talk(ask(anna, more="Content-Length: 2\r\n") + b"xx", until=b"}")
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert b"has no body" in heard


def test_a_pipe_behind_another_request_is_refused(talk: Talk, anna: httpx.Client) -> None:
    first = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
    heard = talk(first + ask(anna), until=b"}")
    assert heard.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 400 " in heard


def test_a_connection_that_was_refused_a_pipe_is_still_good(talk: Talk, anna: httpx.Client) -> None:
    heard = talk(ask(anna, "/pipes/sftp?entity=user:root"), b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", until=b"I am")
    assert heard.startswith(b"HTTP/1.1 403 ")
    assert b"HTTP/1.1 200 OK" in heard


def test_other_addresses_do_not_give_their_connection_away(talk: Talk, anna: httpx.Client) -> None:
    assert talk(ask(anna, "/hello"), until=b"I am").startswith(b"HTTP/1.1 200 ")
    assert talk(ask(anna, method="POST"), until=b"}").startswith(b"HTTP/1.1 405 ")
    other = ask(anna).replace(b"pit-pipe", b"h2c")
    assert talk(other, until=b"}").startswith(b"HTTP/1.1 400 ")
    assert talk(ask(anna).replace(b"keep-alive, Upgrade", b"keep-alive"), until=b"}").startswith(b"HTTP/1.1 400 ")


def test_garbage_is_still_answered_with_400(talk: Talk) -> None:
    assert talk(b"\x16\x03\x01\x02\x00\x01\r\n\r\n").startswith(b"HTTP/1.1 400 ")


# ---------------------------------------------------------------------------------------------------------- what is run


WRITABLE, READ_ONLY = Place(Path("/x"), True), Place(Path("/x"), False)
REAL = ("-vlogDtprze.iLsfxCIvu", "-logDtpre31.14iLsfxC", "--delete", "--partial", "--timeout=20", "--log-format=%i")


def test_what_rsync_itself_sends_is_let_through() -> None:
    program = rsync.rsync(WRITABLE, "a/b/", ["--server", *REAL])
    assert program.argv[1:] == ("--server", *REAL, ".", "./a/b/")
    assert rsync.rsync(READ_ONLY, "", ["--sender", "--server", "-r"]).argv[1:] == (
        "--server",
        "--sender",
        "-r",
        ".",
        "./",
    )


@pytest.mark.parametrize(
    "word", ["--daemon", "-e", "-esh", "-se.", "--rsh=x", "--log-file=x", "--server=x", "", ".", "x"]
)
def test_anything_else_is_refused_by_name(word: str) -> None:
    with pytest.raises(BadRequest, match="may not be asked for"):
        rsync.rsync(WRITABLE, ".", ["--server", word])


def test_read_only_places_are_only_read() -> None:
    with pytest.raises(Forbidden):
        rsync.rsync(READ_ONLY, ".", ["--server", "-r"])
    with pytest.raises(Forbidden):
        rsync.rsync(READ_ONLY, ".", ["--server", "--sender", "--remove-source-files", "-r"])


@settings(deadline=None)
@given(st.text())
def test_no_path_becomes_an_option_or_leaves(path: str) -> None:
    try:
        word = rsync.beneath_here(path)
    except (BadRequest, NotFound):
        return
    assert word.startswith("./")
    assert ".." not in word.split("/")


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(codec="ascii")), max_size=3))
def test_only_listed_words_reach_rsync(words: list[str]) -> None:
    try:
        argv = rsync.rsync(WRITABLE, ".", ["--server", "--sender", *words]).argv
    except BadRequest:
        return
    for word in argv[3:-2]:
        assert word in rsync.ALLOWED or "=" in word or word.startswith("-")
        assert not word.partition(".")[0].lstrip("-").startswith(("e=", "rsh", "daemon", "config"))


def test_an_rsync_that_would_complain_to_nobody_is_told_to_complain_to_the_client() -> None:
    old, new = "rsync  version 3.1.3  protocol version 31", "rsync  version v3.2.7  protocol version 31"
    assert rsync.version(old) < (3, 2, 3) <= rsync.version(new)
    assert rsync.version("something else") == ()
    said = ("--server", "-r", rsync.SAY_IT_THERE)
    argv = rsync.rsync(Place(Path("/x"), True), "a", said, (rsync.SAY_IT_THERE,)).argv
    assert argv[1:] == ("--server", rsync.SAY_IT_THERE, "-r", ".", "./a")


def test_git_gets_its_rules_and_only_two_services() -> None:
    program = git(Path("/x"), "receive-pack", 1000)
    assert "receive.maxInputSize=1000" in program.argv
    assert program.place.writable
    assert not git(Path("/x"), "upload-pack", 1000).place.writable
    for service in ("upload-archive", "", "--help", "receive-pack;id", "daemon"):
        with pytest.raises(BadRequest):
            git(Path("/x"), service, 1000)
