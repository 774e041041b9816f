"""Slow work beside the agent: a forked child that holds nothing of it (its lock above all), never waited for."""

import os
from typing import Callable, Container


def fork_aside(work: Callable[[], None]) -> None:
    """Forks twice, so that the worker is init's child and leaves us no corpse."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        if os.fork() == 0:
            os.setsid()
            close_all_but((0, 1, 2))
            work()
    finally:
        os._exit(0)


def close_all_but(kept: Container[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue
