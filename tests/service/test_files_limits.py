"""Limits of users and groups are kept, with the figures; a full disk is said; directories come whole or not at all."""

import io
import json
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from snakepit.service import beneath
from snakepit.service.usage import measure
from tests.service.house import House, done, open_house, submit
from tests.waiting import wait_until

HOME = "/users/~/simplefs"
MB = 1_000_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house where nobody has much room; its admin is `root`."""
    with open_house(tmp_path_factory.mktemp("small"), maxUserSize="3M", maxGroupSize="1M") as opened:
        opened.user("root")
        yield opened


def put(client: httpx.Client, path: str, content: bytes, base: str = HOME) -> httpx.Response:
    made = client.put(f"{base}/stats/{path}", json={"type": "file"})
    return made if made.status_code != 200 else client.put(f"{base}/content/{path}", content=content)


def packed(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def test_what_does_not_fit_is_refused_with_the_figures(small: House) -> None:
    user = small.user("full")
    assert put(user, "a", bytes(2 * MB)).status_code == 200
    refused = put(user, "b", bytes(2 * MB))
    assert refused.status_code == 507
    assert 'User "full" uses 2M of 3M, and this needs 2M' in refused.json()["message"]
    assert user.get(f"{HOME}/stats/b").json()["size"] == 0
    assert put(user, "b", bytes(MB // 2)).status_code == 200


def test_room_that_was_made_counts_at_once(small: House) -> None:
    user = small.user("tidy")
    assert put(user, "a", bytes(2 * MB)).status_code == 200
    assert put(user, "b", bytes(2 * MB)).status_code == 507
    user.delete(f"{HOME}/stats/a")
    assert put(user, "b", bytes(2 * MB)).status_code == 200


def test_job_directories_count_for_their_owner_at_submit(small: House) -> None:
    user = small.user("busy")
    job = submit(user)
    done(user, job)
    (small.root / "pits" / str(job) / "keep" / "big").write_bytes(bytes(4 * MB))
    small.service.limits._figures.clear()  # as if a minute had passed
    refused = user.post("/jobs", json={"clusterRequest": "[]", "description": "one more"})
    assert refused.status_code == 507
    assert 'User "busy" uses 4' in refused.json()["message"]
    assert " of 3M" in refused.json()["message"]
    assert user.post(f"/jobs/{job}/rerun").status_code == 507
    assert put(user, "x", b"x").status_code == 507
    shown = user.get(f"{HOME}/stats/", params={"usage": 1}).json()
    assert (shown["limit"], shown["used"] > 4 * MB, shown["size"] < MB) == (3 * MB, True, True)
    assert user.delete(f"/jobs/{job}").status_code == 200
    submit(user)


def test_groups_have_a_limit_of_their_own(small: House) -> None:
    root = small.user("root")
    root.put("/groups/lab", json={"title": "Lab"})
    base = "/groups/lab/simplefs"
    assert put(root, "a", bytes(MB // 2), base).status_code == 200
    refused = put(root, "b", bytes(MB), base)
    assert (refused.status_code, 'Group "lab" uses' in refused.json()["message"]) == (507, True)


def test_an_archive_too_large_is_refused_before_it_comes(small: House) -> None:
    user = small.user("packer")
    refused = user.put(f"{HOME}/content/d", params={"archive": "tar", "size": 5 * MB}, content=packed({"a": b"a"}))
    assert (refused.status_code, user.get(f"{HOME}/stats/d").status_code) == (507, 404)


def test_measuring_counts_blocks_and_shared_inodes_once(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one").write_bytes(bytes(100_000))
    os.link(tmp_path / "d" / "one", tmp_path / "d" / "two")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**9)
    (tmp_path / "out").symlink_to("/usr")
    handle = os.open(tmp_path, os.O_RDONLY)
    found = measure(handle)
    os.close(handle)
    assert 100_000 <= found["d"].size_bytes < 120_000
    assert (found["d"].files, found["sparse"].size_bytes < 10_000, found["out"].size_bytes < 10_000) == (1, True, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_said_and_what_came_is_what_is_shown(house: House) -> None:
    user = house.user("disk")
    user.get(f"{HOME}/content/")
    home = house.root / "home" / "disk"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", home], check=True)
    try:
        assert put(user, "before", b"x" * 1000).status_code == 200
        full = put(user, "large", bytes(8 << 20))
        assert (full.status_code, full.json()["message"]) == (507, "The disk of the service is full")
        assert user.get(f"{HOME}/stats/large").json()["size"] == (home / "large").stat().st_size
        assert (home / "before").read_bytes() == b"x" * 1000
        user.delete(f"{HOME}/stats/large")
        tree = user.put(f"{HOME}/content/tree", params={"archive": "tar"}, content=packed({"f": bytes(8 << 20)}))
        assert tree.status_code == 507
        assert sorted(each.name for each in home.iterdir()) == ["before"]
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


# ---------------------------------------------------------------------------------------------------- whole directories


def test_a_tree_comes_back_as_it_went(house: House) -> None:
    user = house.user("trees")
    files = {"a": b"1", "deep/er/b": b"2" * 100_000, "n" * 200: b"long", "umläut": b"3"}
    assert user.put(f"{HOME}/content/t", params={"archive": "tar"}, content=packed(files)).status_code == 200
    back = user.get(f"{HOME}/content/t", params={"archive": "tar"})
    with tarfile.open(fileobj=io.BytesIO(back.content)) as archive:
        found = {member.name: archive.extractfile(member) for member in archive if member.isreg()}
        assert {name: file.read() for name, file in found.items() if file} == files
    again = user.put(f"{HOME}/content/t", params={"archive": "tar"}, content=packed({"a": b"new"}))
    assert (again.status_code, user.get(f"{HOME}/content/t/a").content) == (400, b"1")
    replaced = user.put(f"{HOME}/content/t", params={"archive": "tar", "replace": 1}, content=packed({"a": b"new"}))
    assert (replaced.status_code, user.get(f"{HOME}/content/t/a").content) == (200, b"new")
    assert user.get(f"{HOME}/content/t/umläut").content == b"3"


def test_what_a_killed_transfer_left_goes_with_a_later_one_and_what_is_young_stays(house: House) -> None:
    user = house.user("killed")
    remains = {".0123456789abcdef.pit-part": 2, ".0123456789abcde0.pit-part": 0, ".0123.pit-part": 2}
    for name in remains:
        assert user.put(f"{HOME}/stats/{name}/deep", json={"type": "directory"}).status_code == 200
    assert put(user, ".fedcba9876543210.pit-part", b"of a file").status_code == 200
    for name, days in {**remains, ".fedcba9876543210.pit-part": 2}.items():
        then = time.time() - days * 86400
        os.utime(house.root / "home" / "killed" / name, (then, then))
    assert user.put(f"{HOME}/content/t", params={"archive": "tar"}, content=packed({"a": b"1"})).status_code == 200
    left = user.get(f"{HOME}/content/").json()
    assert left == {"dirs": [".0123.pit-part", ".0123456789abcde0.pit-part", "t"], "files": []}


def test_what_a_killed_transfer_left_goes_when_a_file_is_made(small: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "_looked_at", {})  # an inode may be that of a directory before
    user = small.user("slain")
    assert user.put(f"{HOME}/stats/sets", json={"type": "directory"}).status_code == 200
    folder = small.root / "home" / "slain" / "sets"
    old, young, foreign = ".0123456789abcdef.pit-part", ".0123456789abcde0.pit-part", ".0123.pit-part"
    for name, content, days in ((old, bytes(2 * MB), 2), (young, b"on its way", 0.9), (foreign, b"", 2)):
        (folder / name).write_bytes(content)
        then = time.time() - days * 86400
        os.utime(folder / name, (then, then))
    assert user.get(f"{HOME}/stats", params={"usage": 1}).json()["used"] > 2 * MB
    assert put(user, "sets/b", bytes(2 * MB)).status_code == 200
    assert {path.name for path in folder.iterdir()} == {young, foreign, "b"}


def test_a_directory_is_not_looked_through_for_every_file(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    user = house.user("often")
    assert user.put(f"{HOME}/stats/sets", json={"type": "directory"}).status_code == 200
    looks: list[int] = []
    monkeypatch.setattr(beneath, "_looked_at", {})

    def look(parent: int) -> bool:
        looks.append(parent)
        return False

    monkeypatch.setattr(beneath, "_drop_remains", look)
    for number in range(5):
        assert put(user, f"sets/{number}", b"x").status_code == 200
    assert len(looks) == 1


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/../out", "deep/../../../out"])
def test_no_member_of_an_archive_leads_out(house: House, name: str) -> None:
    user = house.user("evil")
    answer = user.put(f"{HOME}/content/d", params={"archive": "tar"}, content=packed({"good": b"1", name: b"2"}))
    assert answer.status_code == 400
    home = house.root / "home" / "evil"
    assert not list(home.iterdir())
    assert not (house.root / "home" / "out").exists()


def test_a_link_in_an_archive_is_not_followed_by_the_next_member(house: House) -> None:
    user = house.user("linker")
    outside = house.root / "linked"
    outside.mkdir()
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        link = tarfile.TarInfo("door")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        info = tarfile.TarInfo("door/file")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    answer = user.put(f"{HOME}/content/d", params={"archive": "tar"}, content=target.getvalue())
    assert (answer.status_code, list(outside.iterdir())) == (400, [])
    assert user.get(f"{HOME}/stats/d").status_code == 404


@pytest.mark.parametrize("content", [b"no tar at all" * 100, packed({"a": bytes(5000)})[:3000]])
def test_what_is_no_whole_archive_is_refused(house: House, content: bytes) -> None:
    user = house.user("broken")
    answer = user.put(f"{HOME}/content/d", params={"archive": "tar"}, content=content)
    assert (answer.status_code, user.get(f"{HOME}/stats/d").status_code) == (400, 404)


def test_unusual_members_are_refused(house: House) -> None:
    user = house.user("pipes")
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        pipe = tarfile.TarInfo("pipe")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
    assert user.put(f"{HOME}/content/d", params={"archive": "tar"}, content=target.getvalue()).status_code == 400


def test_what_goes_on_after_a_change_starts_anew(house: House) -> None:
    user = house.user("ranges")
    put(user, "f", b"0123456789")
    tag = user.get(f"{HOME}/content/f").headers["etag"]
    same = user.get(f"{HOME}/content/f", headers={"Range": "bytes=5-", "If-Range": tag})
    assert (same.status_code, same.content) == (206, b"56789")
    put(user, "f", b"abcdefghij")
    other = user.get(f"{HOME}/content/f", headers={"Range": "bytes=5-", "If-Range": tag})
    assert (other.status_code, other.content) == (200, b"abcdefghij")


def test_a_listing_with_details_has_sizes(house: House) -> None:
    user = house.user("lister")
    user.put(f"{HOME}/stats/d", json={"type": "directory"})
    put(user, "f", b"123")
    lines = user.get(f"{HOME}/content/", params={"details": 1}).text.splitlines()
    found = {entry[0]: entry[1:3] for line in lines for entry in json.loads(line)}
    assert (found["f"], found["d"][0]) == ([True, 3], False)


def test_senders_that_fall_silent_hold_up_nobody(house: House) -> None:
    user = house.user("slow")
    user.put(f"{HOME}/stats/slow", json={"type": "file"})
    host, port = house.url.removeprefix("http://").split(":")
    head = f"PUT {HOME}/content/slow HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {user.headers['X-Auth-Token']}\r\n"
    silent = [socket.create_connection((host, int(port))) for _ in range(80)]
    try:
        for each in silent:
            each.sendall(f"{head}Content-Length: 10000000\r\n\r\nbegun".encode())
        assert put(user, "quick", bytes(3 << 20)).status_code == 200
        assert user.get(f"{HOME}/content/quick").content == bytes(3 << 20)
        assert user.put(f"{HOME}/content/t", params={"archive": "tar"}, content=packed({"a": b"1"})).status_code == 200
    finally:
        for each in silent:
            each.close()
    wait_until(lambda: (house.root / "home" / "slow" / "slow").read_bytes() == b"begun")


def test_a_large_body_may_come_after_a_question(house: House) -> None:
    """As curl does it: `Expect: 100-continue`, and nothing of the body before the answer."""
    user = house.user("polite")
    user.put(f"{HOME}/stats/f", json={"type": "file"})
    data = os.urandom(5 << 20)
    host, port = house.url.removeprefix("http://").split(":")
    head = f"PUT {HOME}/content/f HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {user.headers['X-Auth-Token']}\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(data)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert user.get(f"{HOME}/content/f").content == data
