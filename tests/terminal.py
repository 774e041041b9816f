"""A program in a real terminal (a pty of its own session), typed into and read from as a person would."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from fcntl import ioctl
from pathlib import Path
from typing import Self

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    def __init__(self, *command: str, cwd: Path, env: dict[str, str], columns: int = 120, rows: int = 40) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # setsid makes the pty the controlling terminal, so that Ctrl-C is a signal and not just a character.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env
        )
        os.close(slave)
        self.raw = b""
        self._read_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(timeout=10)
        os.close(self._master)

    @property
    def shown(self) -> str:
        """All that was printed, without colours and cursor movements."""
        return ESCAPES.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")

    def expect(self, text: str, timeout_s: float = 60) -> str:
        """Reads on until `text` appears after what was expected before; gives what stood in between."""
        end = time.monotonic() + timeout_s
        while (place := self.shown.find(text, self._read_to)) < 0:
            if not self._read(end - time.monotonic()):
                raise AssertionError(f"{text!r} did not appear; shown: {self.shown!r}")
        between = self.shown[self._read_to : place]
        self._read_to = place + len(text)
        return between

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def end(self, timeout_s: float = 60) -> int:
        """Reads to the end; the exit code."""
        limit = time.monotonic() + timeout_s
        while self._read(limit - time.monotonic()):
            pass
        return self.process.wait(timeout=max(1, limit - time.monotonic()))

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, timeout_s))
        if not ready:
            return False
        try:
            block = os.read(self._master, 65536)
        except OSError:  # the last program that had it open is gone
            return False
        self.raw += block
        return bool(block)
