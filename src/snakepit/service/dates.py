"""Dates as the original writes them, and as people ask for them."""

from __future__ import annotations

from datetime import UTC, datetime

from snakepit.wire.shapes import Since


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
    """ISO 8601; without a zone it is UTC. ValueError when it is no date."""
    try:
        at = datetime.fromisoformat(text.strip().replace(" ", "T", 1))
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise ValueError(f"{text[:40]!r} is no date") from problem
