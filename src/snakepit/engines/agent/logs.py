"""Sending output on: a chunk, then its acknowledgement, then the next, so that a slow head costs no memory here.

The end of a process is told when every byte was acknowledged, and told again to each new listener.
"""

import os
import time
from typing import Any, Callable, Dict, Optional

from snakepit.engines.agent.records import Record, Records, read_text

CHUNK = 256 << 10
Tell = Callable[[Dict[str, Any], bytes], None]


class Tail:
    """The output of one process on its way to the one listener."""

    def __init__(self, record: Record, records: Records) -> None:
        self.record = record
        self._path = records.file(record["id"], "out")
        self._dropped_path = records.file(record["id"], "dropped")
        self._tell: Optional[Tell] = None
        self._sent = 0
        self._dropped = 0
        self._waiting = False
        self._told = False

    def follow(self, tell: Tell, offset: int) -> None:
        """A listener came, who has the bytes below `offset` already."""
        self._tell, self._sent, self._dropped = tell, min(offset, self.length()), 0
        self._waiting = self._told = False
        self.push()

    def leave(self) -> None:
        self._tell = None

    def length(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def dropped(self) -> int:
        return int(read_text(self._dropped_path) or 0)

    def ack(self, offset: int) -> None:
        if self._waiting and offset >= self._sent:
            self._waiting = False
            self.push()

    def push(self) -> None:
        """Sends what may be sent now."""
        if self._tell is None or self._waiting or self._told:
            return
        data = b"" if self.length() <= self._sent else self._read()
        dropped = self.dropped() if not data and self.record["phase"] == "ended" else self._dropped
        if data or dropped != self._dropped:
            header = {"event": "output", "id": self.record["id"], "offset": self._sent, "at": time.time()}
            header["dropped"] = self._dropped = dropped
            self._sent += len(data)
            self._waiting = True
            self._tell(header, data)
        elif self.record["phase"] == "ended":
            self._told = True
            word = {"event": "exited", "id": self.record["id"], "ended": self.record["ended"], "log_bytes": self._sent}
            self._tell(word, b"")

    def _read(self) -> bytes:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, CHUNK, self._sent)
        finally:
            os.close(descriptor)
