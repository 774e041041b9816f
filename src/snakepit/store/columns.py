"""How Python values lie in the database, the same in SQLite and PostgreSQL.

Moments are whole microseconds since 1970, so that both compare and sort them alike. Text is unbounded, sorted by code
point in both, and freed from what PostgreSQL cannot hold, because a job must never hang on the words it ended with.
"""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, TypeVar

from sqlalchemy import BigInteger, Integer, SmallInteger, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite numbers rows by themselves only where the type is INTEGER (which has 64 bits there).
ID = BigInteger().with_variant(Integer, "sqlite")

Word = TypeVar("Word", bound=enum.StrEnum)
Number = TypeVar("Number", bound=enum.IntEnum)


class Moment(TypeDecorator[datetime]):
    """An aware datetime, in UTC when read."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - EPOCH) // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else EPOCH + timedelta(microseconds=value)


class _Textual(TypeDecorator[Any]):
    impl = TEXT
    cache_ok = True


class Words(_Textual):
    """Text; NUL and broken surrogates become the replacement character."""

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean(value)


class Json(_Textual):
    """A JSON value as text."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"), sort_keys=True)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class JsonTuple(Json):
    """A JSON list, a tuple in Python."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(list(value), separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Any, ...]:
        return () if value is None else tuple(json.loads(value))


class Names(_Textual):
    """What `aggregate_strings` gives, names joined by commas: a sorted tuple."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        return tuple(sorted(value.split(","))) if value else ()


class Share(_Textual):
    """A fraction, "1/2"."""

    cache_ok = True

    def process_bind_param(self, value: Fraction | None, dialect: Dialect) -> str | None:
        return None if value is None else f"{value.numerator}/{value.denominator}"

    def process_result_value(self, value: str | None, dialect: Dialect) -> Fraction | None:
        return None if value is None else Fraction(value)


class Chosen(_Textual):
    """One word of an enumeration."""

    cache_ok = True

    def __init__(self, words: type[Word]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> enum.StrEnum | None:
        return None if value is None else self.words(value)


class Numbered(TypeDecorator[Any]):
    """One number of an enumeration."""

    impl = SmallInteger
    cache_ok = True

    def __init__(self, numbers: type[Number]) -> None:
        super().__init__()
        self.numbers = numbers

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> enum.IntEnum | None:
        return None if value is None else self.numbers(value)


def clean(text: str) -> str:
    """`text` as both databases can hold it."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8") if any("\ud800" <= c <= "\udfff" for c in text) else text
