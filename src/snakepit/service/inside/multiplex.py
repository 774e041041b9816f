"""The original's way to carry many connections in one (npm `multiplex` 6): frames of a header, a length, the bytes.

Both numbers are varints; the header is channel << 3 | type. Pure: bytes in, frames out, and back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from snakepit.errors import BadRequest

LONGEST_VARINT = 8
LARGEST_FRAME = 8 << 20


class Kind(enum.IntEnum):
    """The one who opened a channel says 2, 4, 6; the other says 1, 3, 5."""

    OPEN = 0
    ANSWER = 1
    DATA = 2
    ANSWER_END = 3
    END = 4
    ANSWER_BROKEN = 5
    BROKEN = 6


@dataclass(frozen=True, slots=True)
class Frame:
    channel: int
    kind: Kind
    data: bytes = b""


def encode(frame: Frame) -> bytes:
    return _varint(frame.channel << 3 | frame.kind) + _varint(len(frame.data)) + frame.data


class Decoder:
    """Bytes as they come; a frame may be spread over many pieces, and a piece may hold many frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._rest += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> Frame | None:
        header = self._number(0)
        length = self._number(header[1]) if header is not None else None
        if header is None or length is None:
            return None
        if length[0] > LARGEST_FRAME or header[0] & 7 == 7:
            raise BadRequest("Not a frame of the multiplexer")
        end = length[1] + length[0]
        if len(self._rest) < end:
            return None
        frame = Frame(header[0] >> 3, Kind(header[0] & 7), bytes(self._rest[length[1] : end]))
        del self._rest[:end]
        return frame

    def _number(self, at: int) -> tuple[int, int] | None:
        """The varint at this place, and where it ends; None while it is not whole."""
        value = 0
        for place, byte in enumerate(self._rest[at : at + LONGEST_VARINT]):
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value, at + place + 1
        if len(self._rest) - at >= LONGEST_VARINT:
            raise BadRequest("Not a frame of the multiplexer")
        return None


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
