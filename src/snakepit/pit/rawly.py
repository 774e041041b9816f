"""Our terminal lent to a program elsewhere: every key goes there, and whatever happens the terminal is as it was.

`~.` at the beginning of a line lets go, as with ssh: in raw mode there is no other way out of a connection that hangs.
"""

from __future__ import annotations

import os
import signal
import termios
import tty

from snakepit.errors import SnakepitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

BLOCK = 1 << 16
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Raw:
    """While in it: raw mode, and a handle that can be read whenever the window changed its size."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._before = termios.tcgetattr(terminal)
        self.resized, self._alarm = os.pipe()
        self._escape = Escape()

    def __enter__(self) -> Raw:
        os.set_blocking(self._alarm, False)
        for number in ENDING:
            signal.signal(number, _leave)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        tty.setraw(self._terminal, termios.TCSADRAIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        try:
            # What was typed for the other side and never got there is not for the shell here.
            termios.tcsetattr(self._terminal, termios.TCSAFLUSH if kind else termios.TCSADRAIN, self._before)
        except termios.error:
            pass  # the terminal itself is gone
        finally:
            os.close(self.resized)
            os.close(self._alarm)

    def size(self) -> tuple[int, int]:
        os.read(self.resized, 4096)
        columns, rows = os.get_terminal_size(self._terminal)
        return columns, rows

    def read(self, handle: int) -> bytes:
        try:
            typed = os.read(handle, BLOCK)
        except OSError:
            return b""  # the terminal went away
        if self._escape.find(typed):
            raise LetGo("let go by ~.")
        return typed


def _leave(number: int, _: object) -> None:
    for each in ENDING:  # a terminal that is closed says so more than once, and it is restored all the same
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


class LetGo(SnakepitError):
    """Somebody typed `~.`."""

    exit_code = 255


class Escape:
    """Looks through what is typed for `~.` at the beginning of a line."""

    def __init__(self) -> None:
        self._state = "start"

    def find(self, typed: bytes) -> bool:
        for byte in typed:
            if self._state == "tilde" and byte == ord("."):
                return True
            if byte in b"\r\n":
                self._state = "start"
            else:
                self._state = "tilde" if self._state == "start" and byte == ord("~") else "middle"
        return False
