"""Waiting for a fact instead of sleeping: a test goes on the moment the fact holds, and says what it waited for when it
never does."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.1


def wait_until(fact: Callable[[], T], timeout_s: float = 30, message: str = "") -> T:
    """The first truthy value of `fact()`; AssertionError, with the last value seen, when there is none in time."""
    end = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(_complaint(fact, value, timeout_s, message))
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


async def await_until(fact: Callable[[], T | Awaitable[T]], timeout_s: float = 30, message: str = "") -> T:
    """The same for async tests; `fact` may be a coroutine function."""
    end = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        answer = fact()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(_complaint(fact, value, timeout_s, message))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


def _complaint(fact: object, value: object, timeout_s: float, message: str) -> str:
    what = message or getattr(fact, "__qualname__", repr(fact))
    return f"not true within {timeout_s:g} s: {what} (last seen: {value!r})"
