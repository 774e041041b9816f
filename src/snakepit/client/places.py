"""Where files are: `home`, `user:x`, `group:x`, `shared`, `job:n` or plain `n`; the path behind a colon
(`190:keep/x`), or as a word of its own, as the seed has it."""

from __future__ import annotations

from snakepit.client.entities import LONGEST_NUMBER, Unreadable
from snakepit.client.http import query, quote
from snakepit.errors import NotFound

KNOWN = "home, user:<name>, group:<name>, shared, job:<number> or <number>"
ROOMS = {"user": "users", "group": "groups", "job": "jobs"}


class Place:
    """A directory at the head that files can be in."""

    __slots__ = ("entity", "root", "writable")

    def __init__(self, entity: str, root: str, writable: bool) -> None:
        self.entity, self.root, self.writable = entity, root, writable

    def __repr__(self) -> str:
        return f"Place({self.entity})"

    @property
    def name(self) -> str:
        """What a copy of all of it is called."""
        return self.entity.replace(":", "")

    def target(self, aspect: str, path: str, **more: str | int | None) -> str:
        """The address of a path below it; names are bytes, each encoded by itself."""
        if ".." in path.split("/"):
            # A web server on the way would resolve it, and the address be one of something else.
            raise NotFound("There is nothing outside of this directory")
        names = "/".join(quote(name) for name in path.split("/") if name != ".")
        return f"{self.root}/simplefs/{aspect}/{names}" + query(more)


HOME = Place("home", "/users/~", True)


def find(word: str) -> tuple[Place, str | None] | None:
    """The place and, where a second colon or one behind a plain place says so, the path; None for other words."""
    kind, colon, rest = word.partition(":")
    if kind in ("home", "shared"):
        return (HOME if kind == "home" else Place("shared", "/shared", False)), (rest if colon else None)
    if kind.isdigit() and kind.isascii():
        return _place("job", kind), (rest if colon else None)
    if kind in ROOMS and colon:
        id, colon, path = rest.partition(":")
        if not id:
            raise Unreadable(f'"{word}" names no {kind} (expected {kind}:<id>)')
        return _place(kind, id), (path if colon else None)
    return None


def parse(words: list[str]) -> tuple[Place, str, list[str]]:
    """`190:keep/x …` or `190 keep/x …`: place, path, and the words after them."""
    found = find(words[0])
    if found is None:
        raise Unreadable(f'"{words[0]}" is no place for files (expected {KNOWN})')
    place, path = found
    if path is not None:
        return place, path, words[1:]
    return place, (words[1] if len(words) > 1 else ""), words[2:]


def _place(kind: str, id: str) -> Place:
    if kind == "job" and not (id.isdigit() and id.isascii() and len(id) <= LONGEST_NUMBER):
        raise Unreadable(f'"{id}" is no job number')
    return Place(f"{kind}:{id}", f"/{ROOMS[kind]}/{quote(id)}", kind != "job")
