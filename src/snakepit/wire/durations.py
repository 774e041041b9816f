"""Time-values as people write them: `1h 30m`, `500ms`, `7d`. A plain number is milliseconds, as in the original.

Pure text to seconds; used by the configuration, by `timeLimit` of a job and by the client.
"""

from __future__ import annotations

import re

UNITS_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "w": 604800.0,
    "wk": 604800.0,
    "month": 2629800.0,
    "y": 31557600.0,
    "yr": 31557600.0,
}
SPOKEN = {"second": "s", "minute": "m", "hour": "h", "week": "w", "year": "y", "mo": "month"}
LONGEST_S = 100 * UNITS_S["y"]
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zµ]*)\s*,?", re.ASCII)


def parse_duration_s(text: str | int | float) -> float:
    """Seconds of a time-value; ValueError with words when it is none."""
    if isinstance(text, bool):
        raise ValueError("expected a time-value such as '1h 30m'")
    if isinstance(text, int | float):
        return _bounded(text / 1000)
    written = text.strip().lower()
    total_s, position = 0.0, 0
    while position < len(written):
        part = _PART.match(written, position)
        if part is None or len(part[1]) > 20:
            raise ValueError(f"{text!r} is no time-value (write it like '1h 30m', '500ms', '7d')")
        total_s += float(part[1]) * _unit_s(part[2], text)
        position = part.end()
    if not written:
        raise ValueError("an empty text is no time-value")
    return _bounded(total_s)


def render_duration(seconds: float) -> str:
    """`5400` gives `1h 30m`; what parse_duration_s reads back."""
    parts = []
    rest_ms = round(seconds * 1000)
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest_ms = divmod(rest_ms, size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def _unit_s(unit: str, text: str) -> float:
    if unit == "":
        return 1e-3
    singular = unit[:-1] if unit.endswith("s") and unit not in UNITS_S else unit
    singular = SPOKEN.get(singular, singular)
    if singular not in UNITS_S:
        raise ValueError(f"{text!r}: {unit!r} is no unit of time (ms, s, m, h, d, w, y)")
    return UNITS_S[singular]


def _bounded(seconds: float) -> float:
    if not 0 <= seconds <= LONGEST_S:
        raise ValueError("a time-value must be between 0 and 100 years")
    return seconds
