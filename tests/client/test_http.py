"""HTTP as the client speaks it, with servers that behave and servers that do not."""

import select
import signal
import socket
import threading

import pytest

from snakepit import Client
from snakepit.client.http import Address, LostAnswer, NoConnection, query, quote
from snakepit.errors import BadRequest, CannotFulfill, NotFound, SnakepitError, Unauthorized, Unavailable
from tests.client.services import Seen, chunked, ok, refused, says, serving
from tests.conftest import pick_free_port
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "header"),
    [
        ("http://pit", "pit", 80, "", "pit"),
        ("https://pit/", "pit", 443, "", "pit"),
        ("HTTPS://pit:8443/a/b/", "pit", 8443, "/a/b", "pit:8443"),
        ("http://[::1]:80", "::1", 80, "", "[::1]"),
    ],
)
def test_addresses_are_taken_apart(url: str, host: str, port: int, prefix: str, header: str) -> None:
    address = Address(url)
    assert (address.host, address.port, address.prefix, address.host_header) == (host, port, prefix, header)


@pytest.mark.parametrize(
    "url", ["", "pit", "ftp://pit", "http://", "http://pit:x", "http://pit:99999", "http://a@b", "http://a b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SnakepitError, match="not an address"):
        Address(url)


def test_texts_are_quoted_for_paths_and_queries() -> None:
    assert quote("a/b c%ü") == "a%2Fb%20c%25%C3%BC"
    assert query({"title": "a&b", "n": 1, "none": None}) == "?title=a%26b&n=1"
    assert query({}) == ""


def test_a_connection_is_used_again() -> None:
    with (
        serving(says(ok(b'{"id": 1}'), chunked(b'{"id"', b": 2}"), ok(b""))) as (url, seen),
        Client(url, token="t") as client,
    ):
        assert [client.call("GET", "/a"), client.call("POST", "/b", {"x": 1}), client.call("GET", "/c")] == [
            {"id": 1},
            {"id": 2},
            None,
        ]
    assert seen.heads[0].startswith("GET /a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "X-Auth-Token: t" in seen.heads[0]
    assert seen.bodies[1] == b'{"x": 1}'


def test_a_connection_that_went_stale_is_replaced() -> None:
    with serving(says(ok(b"1")), says(ok(b"2"))) as (url, _), Client(url) as client:
        assert [client.call("GET", "/a"), client.call("GET", "/b")] == [1, 2]


def test_nothing_is_sent_on_a_connection_that_the_service_closed_meanwhile() -> None:
    """As it does while somebody types a password."""
    with serving(says(ok(b"1")), says(ok(b"2"))) as (url, seen), Client(url) as client:
        assert client.call("GET", "/a") == 1
        connection = client._link._socket
        assert connection is not None
        wait_until(lambda: select.select([connection], [], [], 0)[0])
        assert client.call("POST", "/b", {}) == 2
    assert [head.split()[0] for head in seen.heads] == ["GET", "POST"]


def test_after_a_ctrl_c_nothing_waits_for_the_answer_that_was_not_heard() -> None:
    """A long poll goes on for as long as it likes: what is asked next does not stand in line behind it."""
    me = threading.main_thread().ident
    assert me is not None

    def poll(connection: socket.socket, seen: Seen) -> None:
        seen.next(connection)
        connection.sendall(ok(b"1"))
        seen.next(connection)
        signal.pthread_kill(me, signal.SIGINT)
        assert seen.next(connection) == "", "nothing more is asked here"

    with serving(poll, says(ok(b"2"))) as (url, seen), Client(url) as client:
        assert client.call("GET", "/a") == 1
        with pytest.raises(KeyboardInterrupt):
            client.call("GET", "/poll")
        assert client.call("POST", "/stop", {}) == 2
    assert [head.split()[1] for head in seen.heads] == ["/a", "/poll", "/stop"]


def test_an_answer_may_end_with_the_connection() -> None:
    with serving(says(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1]")) as (url, _):
        assert Client(url).call("GET", "/a") == [1]


def test_the_words_of_the_service_become_the_error() -> None:
    with (
        serving(says(refused(404, "User not found"), refused(406, "no way"), refused(400))) as (url, _),
        Client(url) as client,
    ):
        with pytest.raises(NotFound, match="User not found"):
            client.call("GET", "/a")
        with pytest.raises(CannotFulfill, match="no way"):
            client.call("GET", "/a")
        with pytest.raises(BadRequest, match="Bad Request"):
            client.call("GET", "/a")


def test_a_moved_service_says_where_it_is() -> None:
    answer = b"HTTP/1.1 301 Moved\r\nLocation: https://pit/\r\nContent-Length: 0\r\n\r\n"
    with serving(says(answer)) as (url, _), pytest.raises(SnakepitError, match="another address: https://pit/"):
        Client(url).call("GET", "/a")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"\x00\x01\x02\r\n"])
def test_what_is_no_http_is_said_to_be_none(answer: bytes) -> None:
    with serving(says(answer)) as (url, _), pytest.raises(SnakepitError, match="does not speak HTTP"):
        Client(url).call("GET", "/a")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-", ok(b"12345")[:-2], chunked(b"abc", end=False), chunked(b"abc")[:-9]]
)
def test_an_answer_that_breaks_off_is_no_answer(answer: bytes) -> None:
    with serving(says(answer)) as (url, _), pytest.raises(LostAnswer):
        Client(url).call("POST", "/a", {})


def test_nobody_there_is_said_with_the_reason() -> None:
    with pytest.raises(NoConnection, match=r"^Unable to reach pit: ECONNREFUSED \(http://127.0.0.1:"):
        Client(f"http://127.0.0.1:{pick_free_port()}").hello()


def test_an_unknown_host_is_said_to_be_unknown() -> None:
    with pytest.raises(NoConnection, match="Unable to reach pit: unknown host"):
        Client("http://nowhere.invalid").hello()


def test_a_header_cannot_be_smuggled_in() -> None:
    with serving(says(ok(b""))) as (url, _), pytest.raises(SnakepitError, match="line breaks"):
        Client(url, token="t\r\nX-Evil: 1").call("GET", "/a")


def test_a_submit_whose_answer_was_lost_is_sent_again_under_the_same_key() -> None:
    with serving(says(b""), says(b"HTTP/1.1 200 OK\r\n"), says(ok(b'{"id": 7}'))) as (url, seen):
        assert Client(url).submit("T", "[]", "true") == 7
    keys = {line for head in seen.heads for line in head.split("\r\n") if line.startswith("Idempotency-Key: ")}
    assert (len(seen.heads), len(keys)) == (3, 1)
    assert seen.bodies[0] == seen.bodies[1] == seen.bodies[2]


def test_a_proxy_that_lost_patience_is_asked_again() -> None:
    with serving(says(refused(504)), says(refused(502)), says(refused(503)), says(ok(b'{"id": 7}'))) as (url, _):
        assert Client(url).submit("T", "[]", "true") == 7


def test_a_service_that_is_away_from_the_beginning_is_said_to_be() -> None:
    with serving(says(refused(502))) as (url, _), pytest.raises(Unavailable, match="Bad Gateway"):
        Client(url).submit("T", "[]", "true")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_web_server_without_its_service_is_told_from_the_service(status: int) -> None:
    with serving(says(refused(status), refused(status, "Out of files"))) as (url, _), Client(url) as client:
        with pytest.raises(Unavailable, match=rf"the service behind it does not \({status} "):
            client.call("GET", "/a")
        with pytest.raises(Unavailable, match=r"^Out of files$"):
            client.call("GET", "/a")


@pytest.mark.parametrize(
    "complaint",
    [
        b"<center>The plain HTTP request was sent to HTTPS port</center>",
        b"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
        b"Client sent an HTTP request to an HTTPS server.\n",
    ],
)
def test_plain_http_to_a_port_with_tls_is_told_to_use_https(complaint: bytes) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(complaint), complaint)
    with serving(says(answer)) as (url, _), pytest.raises(BadRequest, match="use https://"):
        Client(url).hello()


def test_an_alert_of_tls_is_told_to_use_https() -> None:
    with serving(says(b"\x15\x03\x01\x00\x02\x02\x16")) as (url, _), pytest.raises(SnakepitError, match="use https://"):
        Client(url).hello()


def test_two_submits_have_two_keys() -> None:
    with serving(says(ok(b'{"id": 1}'), ok(b'{"id": 2}'))) as (url, seen), Client(url) as client:
        client.submit("T", "[]")
        client.submit("T", "[]")
    assert len({head.partition("Idempotency-Key: ")[2].split("\r\n")[0] for head in seen.heads}) == 2


def test_a_refused_token_is_renewed_once_and_the_request_sent_again() -> None:
    with serving(says(refused(401, "Token expired"), ok(b"1"), refused(401, "Token expired"), refused(401, "No"))) as (
        url,
        seen,
    ):
        client = Client(url, "u", "old", reauthenticate=lambda _: "new")
        assert client.call("GET", "/a") == 1
        with pytest.raises(Unauthorized, match="No"):
            client.call("GET", "/b")
    assert ["X-Auth-Token: old" in head for head in seen.heads] == [True, False, False, False]


def test_a_wrong_own_password_does_not_ask_for_a_new_token() -> None:
    with serving(says(refused(401, "Verfification failed"))) as (url, _), pytest.raises(Unauthorized, match="Verf"):
        Client(url, reauthenticate=lambda _: pytest.fail("asked")).call("POST", "/users/~", {"verification": "x"})


def test_a_service_that_hangs_up_on_a_large_body_is_still_heard() -> None:
    def talk(connection: socket.socket, _: Seen) -> None:
        connection.recv(100)
        connection.sendall(refused(413, "too large"))

    with serving(talk) as (url, _), pytest.raises(SnakepitError) as caught:
        Client(url).call("POST", "/jobs", {"diff": "x" * 30_000_000})
    assert "too large" in caught.value.message or "Lost connection" in caught.value.message


def test_debugging_shows_no_secrets() -> None:
    told: list[str] = []
    with serving(says(ok(b'{"token": "hush"}'))) as (url, _):
        Client(url, trace=told.append).authenticate("tilman", "secret")
    assert told == [
        f"SENDING POST {url}/users/tilman/authenticate",
        '- BODY {"password": "\\u2026"}',
        "RECEIVING CODE 200",
        '- BODY {"token": "\\u2026"}',
    ]
