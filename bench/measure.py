"""Measuring and saying it: medians of alternating runs, so that a machine that slows down slows both sides."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.conftest import pick_free_port
from tests.serving import PASSWORD, Serving


def side_by_side(ours: Callable[[], object], peer: Callable[[], object], rounds: int = 15) -> tuple[float, float]:
    """Median seconds of both, run in turns after one round to warm up."""
    mine, others = in_turns(ours, peer, rounds=rounds)
    return mine, others


def in_turns(*runs: Callable[[], object], rounds: int = 20) -> list[float]:
    """Median seconds of each, run in turns after one round to warm up."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds + 1):
        for run, kept in zip(runs, times, strict=True):
            seconds = seconds_of(run)
            if turn:
                kept.append(seconds)
    return [statistics.median(kept) for kept in times]


def seconds_of(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def say_ratio(what: str, ours_s: float, peer: str, peer_s: float, at_most: float) -> None:
    ratio = ours_s / peer_s
    verdict = "ok" if ratio <= at_most else "TOO SLOW"
    times = f"{ours_s * 1000:.1f} ms, {peer}: {peer_s * 1000:.1f} ms"
    print(f"{what}: {times}, ratio {ratio:.2f} (at most {at_most:g}): {verdict}")


def say_rate(what: str, rate: float, at_least: float) -> None:
    print(f"{what}: {rate:.0f} per second (at least {at_least:g}): {'ok' if rate >= at_least else 'TOO SLOW'}")


@contextmanager
def running_service() -> Iterator[Serving]:
    serving = Serving.start(pick_free_port())
    try:
        yield serving
    finally:
        serving.stop()


__all__ = ["PASSWORD", "in_turns", "running_service", "say_rate", "say_ratio", "seconds_of", "side_by_side"]
