"""Dates as the original writes them, and as people ask for them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from snakepit.wire.shapes import Since

# What the original took beside ISO 8601, as far as it names a day; the first is the example in its client's help.
DAYS = (
    "%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%Y",
    "%Y-%m",
    "%b %Y",
    "%B %Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d %Y",
    "%B %d %Y",
)
CLOCKS = ("", " %H:%M", " %H:%M:%S")


def iso(at: datetime) -> str:
    """`2019-02-28T23:41:24.123Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def elapsed(since: datetime, now: datetime) -> Since:
    seconds = max(0, int((now - since).total_seconds()))
    return {
        "days": seconds // 86400,
        "hours": seconds // 3600 % 24,
        "minutes": seconds // 60 % 60,
        "seconds": seconds % 60,
    }


def parse_date(text: str) -> datetime:
    """ISO 8601, or a day as people write it (`4/2010`, `1 Apr 2010`); without a zone it is UTC. ValueError when it is
    no date."""
    try:
        at = _iso_date(text) or _day(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise ValueError(f"{text[:40]!r} is no date") from problem


def _iso_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip().replace(" ", "T", 1))
    except ValueError:
        return None


def _day(text: str) -> datetime:
    plain = " ".join(text[:40].replace(",", " ").split())
    for day in DAYS:
        for clock in CLOCKS:
            with suppress(ValueError):
                return datetime.strptime(plain, day + clock).replace(tzinfo=UTC)
    raise ValueError("none of the known forms")
