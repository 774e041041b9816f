"""simplefs: what can be read and written, and that nobody gets out of his room."""

import contextlib
import os
import socket
from pathlib import Path

import httpx
import pytest

from snakepit.errors import BadRequest
from snakepit.service.verbs.contents import NoSuchRange, parse_range
from tests.service.house import House, done, submit
from tests.waiting import wait_until

HOME = "/users/~/simplefs"


@pytest.fixture(scope="module")
def home(house: House, anna: httpx.Client) -> Path:
    return house.root / "home" / "anna"


def put(client: httpx.Client, path: str, content: bytes, base: str = HOME) -> None:
    assert client.put(f"{base}/stats/{path}", json={"type": "file"}).status_code == 200
    assert client.put(f"{base}/content/{path}", content=content).status_code == 200


def test_a_file_goes_up_and_down_and_away(anna: httpx.Client, home: Path) -> None:
    put(anna, "a.bin", b"0123456789")
    stats = anna.get(f"{HOME}/stats/a.bin").json()
    assert (stats["isFile"], stats["size"], set(stats)) == (True, 10, {"isFile", "size", "mtime", "atime", "ctime"})
    whole = anna.get(f"{HOME}/content/a.bin")
    assert (whole.content, whole.headers["content-length"]) == (b"0123456789", "10")
    assert whole.headers["content-type"] == "application/octet-stream"
    assert anna.head(f"{HOME}/content/a.bin").headers["content-length"] == "10"
    assert anna.delete(f"{HOME}/stats/a.bin").status_code == 200
    assert not (home / "a.bin").exists()
    assert anna.get(f"{HOME}/stats/a.bin").status_code == 404


def test_an_interrupted_upload_goes_on_at_its_offset(anna: httpx.Client, home: Path) -> None:
    put(anna, "b.bin", b"0123456789")
    more = anna.put(f"{HOME}/content/b.bin", content=b"abc", headers={"Content-Offset": "4"})
    assert (more.status_code, (home / "b.bin").read_bytes()) == (200, b"0123abc")
    beyond = anna.put(f"{HOME}/content/b.bin", content=b"abc", headers={"Content-Offset": "99"})
    assert beyond.status_code == 400
    assert anna.put(f"{HOME}/content/b.bin", content=b"", headers={"Content-Offset": "x"}).status_code == 400
    assert anna.put(f"{HOME}/content/new.bin", content=b"abc").status_code == 400


def test_large_files_are_streamed_both_ways(anna: httpx.Client, home: Path) -> None:
    block = os.urandom(1 << 20)
    anna.put(f"{HOME}/stats/large", json={"type": "file"})
    assert anna.put(f"{HOME}/content/large", content=(block for _ in range(20))).status_code == 200
    assert (home / "large").stat().st_size == 20 << 20
    with anna.stream("GET", f"{HOME}/content/large") as answer:
        assert sum(len(chunk) for chunk in answer.iter_bytes()) == 20 << 20
    part = anna.get(f"{HOME}/content/large", headers={"Range": f"bytes={(1 << 20) - 5}-"})
    assert (part.status_code, part.content[:5], len(part.content)) == (206, block[-5:], (19 << 20) + 5)


@pytest.mark.parametrize(
    ("header", "status", "content"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=0-99", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=0-1,3-4", 416, None),
        ("bytes=x", 400, None),
        ("lines=1-2", 400, None),
    ],
)
def test_ranges(anna: httpx.Client, header: str, status: int, content: bytes | None) -> None:
    put(anna, "r.bin", b"0123456789")
    answer = anna.get(f"{HOME}/content/r.bin", headers={"Range": header})
    assert answer.status_code == status
    if content is not None:
        assert answer.content == content
        assert answer.headers["content-range"].endswith("/10")


def test_all_of_an_empty_file_is_a_range_of_it() -> None:
    assert parse_range("bytes=0-", 0) is None
    with pytest.raises(NoSuchRange):
        parse_range("bytes=1-", 0)
    with pytest.raises(BadRequest):
        parse_range("bytes=-", 5)


def test_directories_are_made_listed_and_removed_with_all_in_them(anna: httpx.Client, home: Path) -> None:
    assert anna.put(f"{HOME}/stats/x/y/z", json={"type": "directory"}).status_code == 200
    assert anna.put(f"{HOME}/stats/x/y/z", json={"type": "directory"}).status_code == 400
    put(anna, "x/file", b"1")
    (home / "x" / "link").symlink_to("/etc")
    os.mkfifo(home / "x" / "pipe")
    assert anna.get(f"{HOME}/content/x").json() == {"dirs": ["y"], "files": ["file"]}
    assert anna.get(f"{HOME}/stats/x").json()["isFile"] is False
    assert anna.get(f"{HOME}/stats/x/pipe").status_code == 404
    assert anna.get(f"{HOME}/content/x/pipe").status_code == 404
    assert anna.delete(f"{HOME}/stats/x/link").status_code == 200
    assert Path("/etc/passwd").exists()
    assert anna.delete(f"{HOME}/stats/x").status_code == 200
    assert not (home / "x").exists()
    orphan = anna.put(f"{HOME}/stats/no/parent", json={"type": "file"})
    assert (orphan.status_code, orphan.json()["message"]) == (404, '"no" does not exist')
    unreadable = anna.get(f"{HOME}/stats/%ff%1bx")
    assert unreadable.json()["message"] == r'"\udcff\u001bx" does not exist'
    assert anna.put(f"{HOME}/stats/s", json={"type": "file", "size": 7}).status_code == 200
    assert (home / "s").stat().st_size == 7
    assert anna.put(f"{HOME}/stats/s", json={"type": "pipe"}).status_code == 400


def test_the_room_itself_cannot_be_deleted(anna: httpx.Client, home: Path) -> None:
    for path in ("", ".", "//"):
        assert anna.delete(f"{HOME}/stats/{path}").status_code == 403
    assert home.is_dir()


def test_neither_dots_nor_links_nor_prefixes_lead_out(house: House, anna: httpx.Client, home: Path) -> None:
    house.user("annabel")
    secret = house.root / "home" / "annabel" / "secret"
    secret.write_text("s")
    (home / "door").symlink_to(house.root / "home" / "annabel")
    (home / "window").symlink_to(secret)
    ways = (
        "door/secret",
        "window",
        "../annabel/secret",
        "%2e%2e/annabel/secret",
        "a/../../annabel/secret",
        "..%2fannabel/secret",
    )
    for way in ways:
        for aspect in ("stats", "content"):
            assert raw(house, anna, "GET", f"/users/anna/simplefs/{aspect}/{way}") in (403, 404), way
            assert raw(house, anna, "PUT", f"/users/anna/simplefs/{aspect}/{way}", b'{"type":"file"}') in (
                400,
                403,
                404,
            )
    assert raw(house, anna, "PUT", "/users/anna/simplefs/stats/door/new", b'{"type":"directory"}') == 403
    assert raw(house, anna, "DELETE", "/users/anna/simplefs/stats/door/secret") == 403
    assert secret.read_text() == "s"
    assert anna.get("/users/annabel/simplefs/content/secret").status_code == 403


def raw(house: House, client: httpx.Client, method: str, path: str, body: bytes = b"") -> int:
    """As it is, while a client library would mend the path."""
    host, port = house.url.removeprefix("http://").split(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {client.headers['X-Auth-Token']}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return int(connection.recv(1000).split()[1])


@pytest.mark.parametrize("path", ["a%00b", "x" * 300, "y/" * 3000])
def test_impossible_paths_are_refused(anna: httpx.Client, path: str) -> None:
    assert anna.get(f"{HOME}/stats/{path}").status_code in (400, 404)
    assert anna.put(f"{HOME}/stats/{path}", json={"type": "file"}).status_code in (400, 404)


def test_unknown_aspects_are_400(anna: httpx.Client) -> None:
    assert anna.get(f"{HOME}/colour/x").status_code == 400
    assert anna.delete(f"{HOME}/content/x").status_code == 403


def test_shared_data_is_read_only_and_needs_a_token(house: House, anna: httpx.Client, admin: httpx.Client) -> None:
    (house.root / "shared" / "data.txt").write_text("shared")
    assert anna.get("/shared/simplefs/content/data.txt").text == "shared"
    assert house.client.get("/shared/simplefs/content/data.txt").status_code == 401
    for client in (anna, admin):
        assert client.put("/shared/simplefs/stats/x", json={"type": "file"}).status_code == 403
        assert client.delete("/shared/simplefs/stats/data.txt").status_code == 403


def test_the_directory_of_a_job_is_read_only_even_for_its_owner(house: House, anna: httpx.Client) -> None:
    job = submit(anna)
    done(anna, job)
    assert "keep" in anna.get(f"/jobs/{job}/simplefs/content/").json()["dirs"]
    assert anna.get(f"/jobs/{job}/simplefs/content/script.sh").text.strip() == "true"
    assert anna.put(f"/jobs/{job}/simplefs/stats/x", json={"type": "file"}).status_code == 403
    assert anna.delete(f"/jobs/{job}/simplefs/stats/keep").status_code == 403


def test_admins_reach_every_home(admin: httpx.Client, anna: httpx.Client, home: Path) -> None:
    put(admin, "from-admin", b"x", "/users/anna/simplefs")
    assert (home / "from-admin").read_bytes() == b"x"
    assert admin.get("/users/nobody/simplefs/content/").status_code == 404


def test_no_handle_stays_open_when_readers_leave(house: House, anna: httpx.Client) -> None:
    put(anna, "big", b"x" * (30 << 20))
    before = handles()
    for _ in range(5):
        with anna.stream("GET", f"{HOME}/content/big") as answer:
            next(answer.iter_bytes(1000))
    wait_until(lambda: handles() <= before + 2)


def handles() -> int:
    """Of connections, and of the file that is read; what the database opens is its own affair."""
    found = 0
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(handle.readlink()).startswith("socket:") or handle.readlink().name == "big"
    return found
