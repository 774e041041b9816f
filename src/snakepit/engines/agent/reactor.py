"""One thread that waits for descriptors and for times. Nothing in the agent blocks outside `turn`."""

import heapq
import itertools
import selectors
import time
from typing import Any, Callable, List, Tuple

from snakepit.engines.agent.complaint import complain


class Reactor:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def on_readable(self, file: Any, act: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, [act, None])

    def want_write(self, file: Any, act: Callable[[], None], wanted: bool) -> None:
        key = self._selector.get_key(file)
        key.data[1] = act
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        if key.events != events:
            self._selector.modify(file, events, key.data)

    def forget(self, file: Any) -> None:
        try:
            self._selector.unregister(file)
        except (KeyError, ValueError):
            pass

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Once, at this monotonic time. There is no taking back: `act` looks whether it is still wanted."""
        heapq.heappush(self._timers, (when, next(self._numbers), act))

    def soon(self, delay_s: float, act: Callable[[], None]) -> None:
        self.at(time.monotonic() + delay_s, act)

    def turn(self) -> None:
        timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, events in self._selector.select(timeout):
            if events & selectors.EVENT_READ:
                _do(key.data[0])
            if events & selectors.EVENT_WRITE and key.data[1] is not None:
                _do(key.data[1])
        while self._timers and self._timers[0][0] <= time.monotonic():
            _do(heapq.heappop(self._timers)[2])


def _do(act: Callable[[], None]) -> None:
    """What fails for one process (a full disk, say) must not end the supervisor of all."""
    try:
        act()
    except Exception:
        complain()
