"""The bar of a transfer: painted ten times a second at most, its speed the mean of the last second."""

from __future__ import annotations

import time

from snakepit.pit import render

SLOT_S = 0.1
SLOTS = 10


class Bar:
    """Told how many bytes are done; `begun` of them were there before. A total of 0 is an unknown one."""

    def __init__(self, doing: str, total: int = 0, begun: int = 0) -> None:
        self._doing, self._total = doing, total
        self._times: list[tuple[float, int]] = [(time.monotonic(), begun)]
        self._painted = False

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._times[-1][0] < SLOT_S and not (self._total and done >= self._total):
            return
        self._times = [*self._times[-SLOTS:], (now, done)]
        (before, then), (_, last) = self._times[0], self._times[-1]
        speed = (last - then) / max(0.001, now - before)
        left_s = (self._total - done) / speed if self._total and speed > 0 else None
        render.progress(self._doing, done, self._total, speed, left_s)
        self._painted = not (self._total and done >= self._total)

    def close(self) -> None:
        """Whatever is said next begins on a line of its own."""
        if self._painted:
            render.progress_end()
        self._painted = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
