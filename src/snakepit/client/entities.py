"""How things are named by people: entities `type:id[:index]`, properties `name=value`, sets of job numbers."""

from __future__ import annotations

from snakepit.errors import BadRequest

TYPES = ("user", "group", "node", "job", "alias")
ISOLATIONS = ("auto", "sandbox", "none")
MAX_JOBS = 10_000
LONGEST_NUMBER = 100  # far beyond all jobs: that there is none of this number is for the service to say


class Unreadable(BadRequest):
    """What was written names nothing that could exist."""

    exit_code = 2


class Entity:
    __slots__ = ("id", "index", "type")

    def __init__(self, type: str, id: str, index: int | None = None) -> None:
        self.type, self.id, self.index = type, id, index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and (self.type, self.id, self.index) == (other.type, other.id, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.id, self.index))

    def __repr__(self) -> str:
        return f"Entity({self})"

    def __str__(self) -> str:
        return f"{self.type}:{self.id}" + ("" if self.index is None else f":{self.index}")

    @property
    def path(self) -> str:
        from snakepit.client.http import quote

        return f"/{plural(self.type)}/{'~' if self.id == '~' else quote(self.id)}"


def plural(type: str) -> str:
    return "aliases" if type == "alias" else type + "s"


def parse(text: str, types: tuple[str, ...] = TYPES, index_for: tuple[str, ...] = ()) -> Entity:
    """An entity of one of these types; only those in `index_for` may have an index (`node:n0:1`)."""
    if text == "me" and "user" in types:
        return Entity("user", "~")
    if text.isdigit() and text.isascii() and "job" in types:
        return Entity("job", text)
    parts = text.split(":")
    type = parts[0]
    if type not in types:
        known = ", ".join(f"{name}:<id>" for name in types)
        raise Unreadable(f'Unknown entity type "{type}" (expected {known})')
    if len(parts) < 2 or not parts[1]:
        raise Unreadable(f'"{text}" names no {type} (expected {type}:<id>)')
    if len(parts) == 2:
        return Entity(type, parts[1])
    if type not in index_for:
        raise Unreadable(f"Indices not allowed for {type} entities")
    if len(parts) > 3 or not (parts[2].isdigit() and parts[2].isascii()):
        raise Unreadable(f'"{text}": expected a number as index, as in {type}:{parts[1]}:0')
    return Entity(type, parts[1], int(parts[2]))


def properties(words: list[str]) -> dict[str, str]:
    """`name=value` each; the value is everything after the first `=`."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise Unreadable(f'"{word}" is no assignment (expected property=value)')
        if name in values:
            raise Unreadable(f'property "{name}" is given twice')
        values[name] = value
    return values


def converted(type: str, values: dict[str, str]) -> dict[str, object]:
    """The few properties that are no plain texts on the wire."""
    return {name: _converted(type, name, value) for name, value in values.items()}


def _converted(type: str, name: str, value: str) -> object:
    if (type, name) == ("user", "autoshare"):
        return [group for group in value.split(",") if group]
    if (type, name) == ("user", "admin"):
        if value.lower() in ("yes", "y", "true", "1"):
            return True
        if value.lower() in ("no", "n", "false", "0"):
            return False
        raise Unreadable(f'admin={value}: expected "yes" or "no"')
    if (type, name) == ("node", "isolation") and value not in ISOLATIONS:
        raise Unreadable(f"isolation={value}: expected one of {', '.join(ISOLATIONS)}")
    if (type, name) == ("node", "slots"):
        if not (value.isdigit() and value.isascii()):
            raise Unreadable(f"slots={value}: expected a number")
        return int(value)
    return value


def job_numbers(words: list[str]) -> list[int]:
    """`190`, `job:190`, `190-195` and `190,192`, in the order given, each once."""
    numbers: dict[int, None] = {}
    for word in words:
        for part in word.split(","):
            for number in _range(part.strip(), word):
                numbers[number] = None
            if len(numbers) > MAX_JOBS:
                raise Unreadable(f"more than {MAX_JOBS} jobs at once")
    return list(numbers)


def _range(part: str, word: str) -> range:
    first, dash, last = part.removeprefix("job:").partition("-")
    last = last.removeprefix("job:") if dash else first
    for number in (first, last):
        if not (number.isdigit() and number.isascii()) or len(number) > LONGEST_NUMBER:
            raise Unreadable(f'"{word}" is no job number (expected 190, job:190, 190-195 or 190,192)')
    if int(last) < int(first):
        raise Unreadable(f'"{part}": the range goes backwards')
    if int(last) - int(first) >= MAX_JOBS:
        raise Unreadable(f"more than {MAX_JOBS} jobs at once")
    return range(int(first), int(last) + 1)
