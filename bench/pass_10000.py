"""A pass of the scheduler over 10,000 waiting jobs and 50 nodes: at most 20 ms.

The passes that matter: nothing can start; one job ended and another takes its place (what happens all day); a node went
or came. The same, without a limit, with many more kinds of requests than people type, and for a whole empty cluster
that is filled at once (after a restart). A pass does nothing but compute, so its CPU time is what is measured.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from snakepit.core.placement import Free, Placement, Who
from snakepit.core.request import parse
from snakepit.core.resources import Node, Resource
from snakepit.core.schedule import Queue, Start, Waiting, plan

JOBS, NODES, LIMIT_MS = 10_000, 50, 20.0
MODELS = (("NVIDIA GeForce GTX 1070", 8), ("NVIDIA GeForce RTX 3090", 24), ("NVIDIA A100-SXM4-80GB", 80))
REQUESTS = (
    "[gpu]", "[2:gpu]", "[gtx1070]", "[2:gtx1070]", "[3090]", "[4:rtx3090]", "[a100]", "[8:a100]", "2:[8:a100]",
    "[gpu/24G]", "[0.5:gpu/10G]", "[a100|rtx3090,8:cpu]", "[gpu,8:cpu,64G:mem]", "[node]", "2:[],4:[gtx1070,2:gpu]",
    "4:[2:gtx1070]", "[16:cpu]", "[gtx1070]@n0+n3", "[8:gpu,node]", "[2:gpu/40G]",
)  # fmt: skip


def nodes() -> list[Node]:
    result = []
    for at in range(NODES):
        model, gigabytes = MODELS[at % len(MODELS)]
        owners = frozenset({"alpha"}) if at % 10 == 9 else frozenset()
        cards = [Resource(i, model, uuid=f"{at}-{i}", memory_bytes=gigabytes * 10**9, groups=owners) for i in range(8)]
        result.append(Node(f"n{at}", 64, 512 * 10**9, 512, tuple(cards)))
    return result


def waiting_jobs(kinds: int) -> list[Waiting]:
    """Jobs of 40 users (some in a group that owns cards, or in one that does not matter), `kinds` distinct requests."""
    texts = list(REQUESTS[:kinds])
    variants = itertools.product(range(1, 1000), ("[{0}:cpu,gpu]", "[{0}:cpu]", "[gpu,{0}G:mem]", "[{0}G:mem,a100]"))
    while len(texts) < kinds:
        number, form = next(variants)
        texts.append(form.format(number % 64 + 1 if "cpu" in form else number))
    requests = [parse(text) for text in texts]
    who = [Who(f"user{at}", frozenset({("alpha", "beta", "gamma")[at % 3]})) for at in range(40)]
    return [Waiting(at, 0, who[at % 40], requests[(at * 7 + at // 40) % kinds], at, at % 2) for at in range(JOBS)]


def filled(queue: Queue, free: Free) -> list[Start]:
    starts = plan(queue, free)
    for start in starts:
        queue.remove(start.waiting.job, start.waiting.task)
    return starts


def measure(name: str, prepare: Callable[[], object], run: Callable[[], int], rounds: int, limited: bool) -> bool:
    times, started = [], 0
    for _ in range(rounds):
        prepare()
        begin = time.process_time()
        started = run()
        times.append((time.process_time() - begin) * 1000)
    median, worst = statistics.median(times), max(times)
    verdict = "" if not limited else f"  limit {LIMIT_MS:.0f} ms  {'ok' if median <= LIMIT_MS else 'TOO SLOW'}"
    print(f"{name:58} median {median:8.2f} ms  worst {worst:8.2f} ms  {started:4} started{verdict}")
    return not limited or median <= LIMIT_MS


def passes(kinds: int, limited: bool) -> bool:
    free, queue = Free(nodes()), Queue()
    for waiting in waiting_jobs(kinds):
        queue.add(waiting)
    running = filled(queue, free)
    plan(queue, free)
    title = f"{len(queue)} waiting, {len(queue.classes)} classes"
    good = measure(f"{title}, nothing can start", lambda: None, lambda: len(plan(queue, free)), 20, limited)

    ended = iter(running)
    back: list[Placement] = []

    def one_ends() -> None:
        for placement in back:
            free.give(placement)
        back.clear()
        free.give(next(ended).placement)

    def one_pass() -> int:
        starts = plan(queue, free)
        back.extend(start.placement for start in starts)
        return len(starts)

    good = measure(f"{title}, one job ended before", one_ends, one_pass, 20, limited) and good

    def one_node_blinks() -> None:
        node = free.nodes[7]
        free.set_node(replace(node, online=not node.online))

    return measure(f"{title}, a node went or came", one_node_blinks, one_pass, 20, limited) and good


def empty_cluster() -> None:
    free, queue = Free(nodes()), Queue()
    for waiting in waiting_jobs(len(REQUESTS)):
        queue.add(waiting)
    title = f"{len(queue)} waiting, the whole empty cluster is filled"
    measure(title, lambda: None, lambda: len(plan(queue, free)), 1, limited=False)


def main() -> int:
    good = passes(len(REQUESTS), limited=True)
    passes(500, limited=False)
    empty_cluster()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
