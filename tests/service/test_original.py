"""What only the original client does on the wire: names as raw bytes, dates as its help writes them, and a new login at
every 401."""

import json
import socket

import httpx
import pytest

from tests.service.house import PASSWORD, House, done, submit


def spoken(house: House, user: httpx.Client, start: bytes, body: bytes = b"") -> tuple[int, bytes]:
    """A request whose first line goes out byte by byte as given."""
    host, port = house.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        token = user.headers["X-Auth-Token"].encode()
        head = b"Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nX-Auth-Token: %s\r\n" % token
        line.sendall(b"%s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (start, head, len(body), body))
        answer = b"".join(iter(lambda: line.recv(1 << 16), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


@pytest.mark.parametrize("name", ["gr\xfcn".encode("latin-1"), "gr\xfcn".encode()], ids=["as Node", "as curl"])
def test_letters_that_a_client_does_not_encode_name_the_file_that_is_meant(
    house: House, anna: httpx.Client, name: bytes
) -> None:
    stats, content = (b"/users/~/simplefs/%s/%s.txt" % (aspect, name) for aspect in (b"stats", b"content"))
    assert spoken(house, anna, b"PUT " + stats, json.dumps({"type": "file"}).encode())[0] == 200
    assert spoken(house, anna, b"PUT " + content, b"\xfc is sent as it is")[0] == 200
    assert anna.get("/users/~/simplefs/content/gr%C3%BCn.txt").content == b"\xfc is sent as it is"
    assert spoken(house, anna, b"GET " + content) == (200, b"\xfc is sent as it is")
    assert "grün.txt" in anna.get("/users/~/simplefs/content/").json()["files"]
    assert spoken(house, anna, b"DELETE " + stats)[0] == 200


def test_raw_letters_in_later_requests_of_a_connection_are_understood_too(house: House, anna: httpx.Client) -> None:
    host, port = house.url.removeprefix("http://").split(":")
    token = anna.headers["X-Auth-Token"].encode()
    with socket.create_connection((host, int(port)), timeout=20) as line:
        for _ in range(2):
            line.sendall(b"GET /users/~/simplefs/stats/\xe9 HTTP/1.1\r\nHost: x\r\nX-Auth-Token: %s\r\n\r\n" % token)
            heard = b""
            while b"does not exist" not in heard:
                heard += line.recv(1 << 16) or pytest.fail(f"hung up after {heard!r}")
            assert heard.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    "date", ["4/2010", "4/1/2010", "2010/04/01", "2010", "2010-04", "Apr 2010", "1 April 2010", "Apr 1, 2010 10:30"]
)
def test_dates_may_be_written_as_in_the_help_of_the_original(anna: httpx.Client, date: str) -> None:
    job = submit(anna)
    done(anna, job)
    assert job in [shown["id"] for shown in anna.get("/jobs", params={"since": date}).json()]
    assert anna.get("/jobs", params={"till": date}).json() == []


@pytest.mark.parametrize("date", ["13/2010", "4/31/2010", "Apr", "10:00", "0/0/0", "1/1/1/1"])
def test_what_is_no_date_is_400(anna: httpx.Client, date: str) -> None:
    answer = anna.get("/jobs", params={"since": date})
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        f"Cannot parse query parameter since: {date!r} is no date",
    )


def test_a_wrong_own_password_does_not_set_the_original_client_logging_in_again(house: House) -> None:
    """It answers every 401 with a login and the same request: forever, where its login works and this does not."""
    dora = house.user("dora")
    body = {"verification": "mistyped", "password": "another-horse-1"}
    answers = [dora.post("/users/~", json=body) for _ in range(3)]
    assert {(answer.status_code, answer.json()["message"]) for answer in answers} == {(403, "Verification failed")}
    assert dora.get("/users/~").status_code == 200
    assert house.user("dora", PASSWORD).get("/users/~").status_code == 200
