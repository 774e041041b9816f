"""The language between head and agent: a JSON line, then as many raw bytes as its `size` says. Both sides use it."""

import json
from typing import Any, Dict, List, Tuple

Header = Dict[str, Any]
LONGEST_LINE = 64 << 20  # a create of thousands of processes fits; a stranger's noise does not


class Garbled(Exception):
    """What came over the connection is not our language."""


def encode(header: Header, payload: bytes = b"") -> bytes:
    if payload:
        header = dict(header, size=len(payload))
    return json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n" + payload


class Decoder:
    """Bytes in as they come, whole frames out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._header: Any = None

    def feed(self, data: bytes) -> List[Tuple[Header, bytes]]:
        self._rest += data
        frames: List[Tuple[Header, bytes]] = []
        while True:
            if self._header is None:
                end = self._rest.find(b"\n")
                if end < 0:
                    if len(self._rest) > LONGEST_LINE:
                        raise Garbled("a header without an end")
                    return frames
                self._header = _read_header(bytes(self._rest[:end]))
                del self._rest[: end + 1]
            size = self._header.get("size", 0)
            if len(self._rest) < size:
                return frames
            frames.append((self._header, bytes(self._rest[:size])))
            del self._rest[:size]
            self._header = None


def _read_header(line: bytes) -> Header:
    try:
        header = json.loads(line.decode("utf-8"))
    except ValueError:
        raise Garbled("not JSON: {!r}".format(line[:80])) from None
    if not isinstance(header, dict) or not isinstance(header.get("size", 0), int) or header.get("size", 0) < 0:
        raise Garbled("not a frame: {!r}".format(line[:80]))
    return header
