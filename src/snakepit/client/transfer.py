"""Bytes between here and the files at the head. A connection that breaks is made again, and it goes on where it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from snakepit.client.client import Client
from snakepit.client.follow import patient
from snakepit.client.http import Answer, LostAnswer, NoConnection
from snakepit.client.places import Place
from snakepit.errors import NotFound, SnakepitError, TooLarge, Unavailable
from snakepit.wire import tree

PIECE = 16 * 1024 * 1024  # at once
SMALLEST = 256 * 1024  # proxies limit bodies, some to 1 MB
BLOCK = 256 * 1024
TRIES = 20
Told = Callable[[int], None]  # of bytes done
ReadInto = Callable[[memoryview], int | None]


class Stats:
    """What the head says of a file or directory. `over_limit`: in words, where its owner has no room left."""

    __slots__ = ("is_file", "mtime", "over_limit", "size")

    def __init__(self, is_file: bool, size: int, mtime: str, over_limit: str = "") -> None:
        self.is_file, self.size, self.mtime, self.over_limit = is_file, size, mtime, over_limit


class Entry:
    """One line of a listing; `mtime` in seconds."""

    __slots__ = ("is_file", "mtime", "name", "size")

    def __init__(self, name: str, is_file: bool, size: int, mtime: float) -> None:
        self.name, self.is_file, self.size, self.mtime = name, is_file, size, mtime


def look(client: Client, place: Place, path: str) -> Stats | None:
    """None where nothing is there."""
    target = place.target("stats", path)
    try:
        found = client.call("GET", target)
    except NotFound:
        # Of a whole place that is missing the service has words of its own, better than ours.
        if path.strip("/"):
            client.call("GET", place.target("stats", ""))
        else:
            raise
        return None
    return Stats(found["isFile"], found["size"], found["mtime"])


def get(client: Client, place: Place, path: str) -> Stats:
    found = look(client, place, path)
    if found is None:
        raise NotFound(f'"{path}" does not exist in {place.entity}')
    return found


def names(client: Client, place: Place, path: str) -> tuple[list[str], list[str]]:
    """Of the directories and files in a directory."""
    found = client.call("GET", place.target("content", path), limit_s=600)
    return found["dirs"], found["files"]


def entries(client: Client, place: Place, path: str) -> list[Entry]:
    """With sizes and times, by name."""
    from json import loads

    lines = client.answer("GET", place.target("content", path, details=1), limit_s=600).read().splitlines()
    found = [Entry(*entry) for line in lines for entry in loads(line)]
    found.sort(key=lambda entry: entry.name)
    return found


def whole(client: Client, place: Place) -> Stats:
    """A place itself; its "no" has words. Whether there is room left is asked where one may write."""
    found = client.call("GET", place.target("stats", "", room=1 if place.writable else None))
    return Stats(found["isFile"], found["size"], found["mtime"], found.get("overLimit", ""))


def make_file(client: Client, place: Place, path: str, coming: int = 0) -> None:
    """An empty one. Where the bytes that are to come do not fit, it is not made."""
    client.call("PUT", place.target("stats", path), {"type": "file", "coming": coming})


def make_directory(client: Client, place: Place, path: str) -> None:
    client.call("PUT", place.target("stats", path), {"type": "directory"})


def delete(client: Client, place: Place, path: str) -> None:
    client.call("DELETE", place.target("stats", path), limit_s=600)


def move(client: Client, place: Place, old: str, new: str) -> None:
    client.call("POST", place.target("stats", new), {"from": old})


# ---------------------------------------------------------------------------------------------------------------- down


def piece(client: Client, place: Place, path: str, start: int, end: int) -> bytes:
    """Some bytes of a file."""
    answer = client.answer("GET", place.target("content", path), headers={"Range": f"bytes={start}-{end - 1}"})
    _refuse_all(answer)
    return answer.read()


def receive(
    client: Client, place: Place, path: str, write: Callable[[bytes], object], offset: int, told: Told = lambda _: None
) -> None:
    """The bytes of a file from `offset` on. One that changes between two connections is an error, never a mixture."""
    target, tag, stuck = place.target("content", path), "", 0
    answer = client.answer("GET", target, headers=_range(offset, tag))
    while True:
        if offset:
            _refuse_all(answer)
        tag, before = answer.headers.get("etag", ""), offset
        try:
            for block in answer.blocks():
                write(block)
                offset += len(block)
                told(offset)
            return
        except LostAnswer:
            stuck = stuck + 1 if offset == before else 0
            if stuck >= TRIES or not tag:
                raise
        answer = _again(client, target, offset, tag)


def _again(client: Client, target: str, offset: int, tag: str) -> Answer:
    return patient(lambda: client.answer("GET", target, headers=_range(offset, tag)))


def _refuse_all(answer: Answer) -> None:
    """Where only a part was asked for."""
    if answer.status != 206:
        raise SnakepitError("The file changed while it was transferred: try again")


def _range(offset: int, tag: str) -> dict[str, str]:
    if not offset:
        return {}
    return {"Range": f"bytes={offset}-", **({"If-Range": tag} if tag else {})}


# ------------------------------------------------------------------------------------------------------------------ up


def send(client: Client, place: Place, path: str, read_into: ReadInto, offset: int, told: Told = lambda _: None) -> int:
    """What `read_into` gives, from `offset` of an existing file on; gives where it ends.

    One piece is kept, to be sent again when its connection breaks; always the same memory, as fresh pages cost as much
    as the transfer itself.
    """
    space, piece = memoryview(bytearray(PIECE)), PIECE
    while length := _filled(read_into, space):
        sent = stuck = 0
        while sent < length:
            part = space[sent : min(sent + piece, length)]
            try:
                _append(client, place, path, offset + sent, part, told)
                sent, stuck = sent + len(part), 0
            except TooLarge:  # a proxy on the way takes less at once
                if piece <= SMALLEST:
                    raise
                piece //= 4
            except (NoConnection, Unavailable):
                stuck += 1
                if stuck >= TRIES:
                    raise
                sent = _arrived(client, place, path, offset, length)
        offset += length
    return offset


def _filled(read_into: ReadInto, space: memoryview) -> int:
    """A whole piece, unless it is the last: pipes give less at once."""
    length = 0
    while length < len(space) and (count := read_into(space[length:])):
        length += count
    return length


def _append(client: Client, place: Place, path: str, offset: int, data: memoryview, told: Told) -> None:
    def blocks() -> Iterator[bytes]:
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            yield block  # type: ignore[misc]
            told(offset + start + len(block))

    headers = {"Content-Offset": str(offset)}
    client.put_blocks(place.target("content", path), blocks(), len(data), headers)


def _arrived(client: Client, place: Place, path: str, offset: int, length: int) -> int:
    """How much of a piece the head has, after its connection broke."""
    client.close()
    found = patient(lambda: look(client, place, path))
    if found is None or not offset <= found.size <= offset + length:
        raise SnakepitError("Somebody else changed the file while it was transferred: try again")
    return found.size - offset


# --------------------------------------------------------------------------------------------------------- directories


def receive_tree(client: Client, place: Place, path: str, into: int, told: Told = lambda _: None) -> list[str]:
    """A directory with all that is in it, below the open directory `into`; gives what the head had to leave out."""
    source = _Blocks(client.answer("GET", place.target("content", path, archive="tar"), limit_s=600), told)
    problems = tree.unpack(source, into)
    while source.read(BLOCK):
        pass
    return problems


def send_tree(
    client: Client, place: Place, path: str, top: int, size: int, replace: bool, told: Told = lambda _: None
) -> list[str]:
    """The open directory `top` becomes one at the head; gives what could not be read."""
    problems: list[str] = []

    def blocks() -> Iterator[bytes]:
        done = 0
        for block in tree.gathered(tree.pack(top, problems=problems)):
            yield block
            done += len(block)
            told(min(done, size - 1) if size else done)  # headers travel too; the end is told when it is one

    target = place.target("content", path, archive="tar", size=size, replace=1 if replace else None)
    try:
        client.put_blocks(target, blocks(), None)
    except TooLarge as problem:
        raise TooLarge(f"{problem.message}: a proxy on the way limits what is sent at once; use pit sync") from None
    told(size)
    return problems


def tree_size(top: int) -> int:
    """Bytes of all files below an open directory."""
    total = 0
    for level in tree.walk(top):
        for entry in level.entries:
            if entry.is_file(follow_symlinks=False):
                total += os.stat(entry.name, dir_fd=level.handle, follow_symlinks=False).st_size
    return total


class _Blocks:
    """An answer's body as a file."""

    def __init__(self, answer: Answer, told: Told) -> None:
        self._blocks, self._told = answer.blocks(), told
        self._left = b""
        self._done = 0

    def read(self, size: int) -> bytes:
        if not self._left:
            self._left = next(self._blocks, b"")
            self._done += len(self._left)
            self._told(self._done)
        part, self._left = self._left[:size], self._left[size:]
        return part
