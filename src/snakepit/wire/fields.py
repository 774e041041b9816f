"""What a body or a query may contain, as a table that both checks it and describes it in OpenAPI.

Plain dicts on purpose: `POST /jobs` is asked hundreds of times a second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snakepit.errors import BadRequest

LONGEST_TEXT = 50_000_000


@dataclass(frozen=True, slots=True)
class Field:
    """One member. `kind`: text, whole, flag, texts, map, time (seconds or a time-value), job (a number or digits)."""

    name: str
    kind: str = "text"
    required: bool = False
    longest: int = 255  # characters of a text, members of a list or map
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    lines: bool = False  # a text of several lines, control characters and all
    words: str = ""


def check(fields: Mapping[str, Field], body: object) -> dict[str, Any]:
    """The members that were given, checked; null counts as not given. BadRequest names the member."""
    if not isinstance(body, dict):
        raise BadRequest("Expected a JSON object")
    checked: dict[str, Any] = {}
    for name, value in body.items():
        field = fields.get(name)
        if field is None:
            raise BadRequest(f'Unknown property "{_shown(name)}"')
        if value is not None:
            checked[name] = _CHECKS[field.kind](field, value)
    for field in fields.values():
        if field.required and field.name not in checked:
            raise BadRequest(f'Missing property "{field.name}"')
    return checked


def table(*fields: Field) -> dict[str, Field]:
    return {field.name: field for field in fields}


def schema(fields: Mapping[str, Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.name: _described(field) for field in fields.values()},
        "required": [field.name for field in fields.values() if field.required],
        "additionalProperties": False,
    }


def value_schema(field: Field) -> dict[str, Any]:
    match field.kind:
        case "text":
            shape: dict[str, Any] = {"type": "string", "maxLength": field.longest}
            return {**shape, "enum": list(field.choices)} if field.choices else shape
        case "whole":
            return {"type": "integer", "minimum": field.low, "maximum": field.high}
        case "flag":
            return {"type": "boolean"}
        case "texts":
            return {"type": "array", "items": {"type": "string"}, "maxItems": field.longest}
        case "map":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case "time":
            return {"type": ["number", "string"], "minimum": 0}
        case _:
            return {"type": ["integer", "string"], "pattern": "^[0-9]{1,10}$", "minimum": 0}


def _described(field: Field) -> dict[str, Any]:
    shape = value_schema(field)
    if not field.required:
        kinds = shape["type"] if isinstance(shape["type"], list) else [shape["type"]]
        shape = {**shape, "type": [*kinds, "null"]}
        if "enum" in shape:
            shape["enum"] = [*shape["enum"], None]
    return {**shape, "description": field.words} if field.words else shape


def _text(field: Field, value: object) -> str:
    if not isinstance(value, str):
        raise BadRequest(f'"{field.name}" must be a text')
    if len(value) > field.longest:
        raise BadRequest(f'"{field.name}" is too long ({field.longest} characters max)')
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            raise BadRequest(f'"{field.name}" contains half of a character pair (a lone surrogate)') from problem
    if (unfit := _CONTROL.search(value)) and (not field.lines or unfit[0] == "\0" or "\0" in value):
        raise BadRequest(f'"{field.name}" contains a control character')
    if field.choices and value not in field.choices:
        raise BadRequest(f'"{field.name}" must be one of {", ".join(field.choices)}')
    return value


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def _whole(field: Field, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f'"{field.name}" must be a whole number')
    if not field.low <= value <= field.high:
        raise BadRequest(f'"{field.name}" must be from {field.low} to {field.high}')
    return value


def _flag(field: Field, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadRequest(f'"{field.name}" must be true or false')
    return value


def _texts(field: Field, value: object) -> list[str]:
    if not isinstance(value, list) or len(value) > field.longest:
        raise BadRequest(f'"{field.name}" must be a list of texts')
    one = Field(field.name)
    return [_text(one, member) for member in value]


def _map(field: Field, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > field.longest:
        raise BadRequest(f'"{field.name}" must be an object of texts')
    name_field, value_field = Field(field.name), Field(field.name, longest=100_000, lines=True)
    return {_text(name_field, name): _text(value_field, member) for name, member in value.items()}


def _time(field: Field, value: object) -> float | str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest(f'"{field.name}" must be a number of seconds or a time-value such as "1h 30m"')
    return value if isinstance(value, str) else float(min(max(value, -1), 1e12))


def _job(field: Field, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,100}", text):
        raise BadRequest(f'"{field.name}" must be a job number')
    return int(text)


def _shown(name: str) -> str:
    return name[:40].encode("ascii", "backslashreplace").decode()


_CHECKS = {
    "text": _text,
    "whole": _whole,
    "flag": _flag,
    "texts": _texts,
    "map": _map,
    "time": _time,
    "job": _job,
}
