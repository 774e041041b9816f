"""Sizes as people write them: decimal (`24G` = 24·10⁹ bytes, what is sold as a 24 GB card has that), `GiB` exact.

A size always has a unit, because half of the world's tools mean megabytes by a bare number and the other half bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction

from snakepit.errors import BadRequest

MAX_SIZE_BYTES = 10**18
_STEPS = "KMGTP"
UNITS = (
    {"B": 1}
    | {letter: 1000**power for power, letter in enumerate(_STEPS, 1)}
    | {letter + "B": 1000**power for power, letter in enumerate(_STEPS, 1)}
    | {letter + "IB": 1024**power for power, letter in enumerate(_STEPS, 1)}
)
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")


def parse_size(text: str) -> int:
    """`64G`, `1.5TB`, `512MiB` in bytes; raises BadRequest with one line that says what is wrong."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadRequest("expected a size like 64G or 512MiB")
    number, unit = match[1], match[2].upper()
    if not unit:
        raise BadRequest(f"a size needs a unit: {number}G, {number}M")
    if unit not in UNITS:
        raise BadRequest(f"'{match[2]}' is no unit of size; use K, M, G, T or KiB, MiB, GiB, TiB")
    exact = Fraction(number) * UNITS[unit]
    if exact > MAX_SIZE_BYTES:
        raise BadRequest("a size is at most 1000P")
    if exact.denominator != 1:
        raise BadRequest("a size is a whole number of bytes")
    return int(exact)


def render_size(size_bytes: int) -> str:
    """The shortest exact spelling; `parse_size` reads it back to the same number."""
    for step, suffix in ((1000, ""), (1024, "iB")):
        for power in range(len(_STEPS), 0, -1):
            if size_bytes and size_bytes % step**power == 0:
                return f"{size_bytes // step**power}{_STEPS[power - 1]}{suffix}"
    return f"{size_bytes}B"


def rough_size(size_bytes: int) -> str:
    """For people: at most one decimal, `11.5G`."""
    for power in range(len(_STEPS), 0, -1):
        if size_bytes >= 1000**power:
            tenths = size_bytes * 10 // 1000**power
            whole, rest = divmod(tenths, 10)
            return f"{whole}.{rest}{_STEPS[power - 1]}" if rest else f"{whole}{_STEPS[power - 1]}"
    return f"{size_bytes}B"
