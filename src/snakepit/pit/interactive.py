"""`pit run --interactive`: a job that is nothing but a shell. It waits in the queue as any other, and ends with it.

The job's script waits at a door (a named pipe in its private temporary directory); the shell's own process holds the
other end while it lives. So however the shell ends, with a killed client or a cut network too, the job ends with it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from functools import partial

from snakepit.client.client import DONE, Client
from snakepit.client.follow import patient
from snakepit.errors import NotFound, SnakepitError
from snakepit.pit import render
from snakepit.pit.arguments import Arguments, UsageError
from snakepit.pit.following import DETACHED, sentence
from snakepit.wire import carried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREPARING, WAITING, STARTING, RUNNING = 1, 2, 3, 4
BEGUN = "is being started"  # what it waits for, in the moment before its state says so
LOOK_S = 10
ENTER_S = 15
FAREWELL_S = 10
COMES_S = 120
ENDING = (signal.SIGTERM, signal.SIGHUP)

SCRIPT = f"""\
# Made by `pit run --interactive`: waits for a shell, and ends with it.
[ "$WORKER_INDEX" = 0 ] || exec sleep infinity
umask 077
door=${{TMPDIR:-/tmp}}/pit-interactive
mkdir "$door" && mkfifo "$door/in" || exit 1
exec 3<> "$door/in"
read -r -t {COMES_S} -u 3 _ || {{ echo "Nobody came: the shell that this job was made for never began."; exit 1; }}
exec 4< "$door/in" 3>&-
read -r -u 4 _
exit 0
"""
ENTER = """\
unset SNAKEPIT_SCRIPT
export SHELL=/bin/bash
door=${TMPDIR:-/tmp}/pit-interactive/in
for _ in {1..300}; do [ -p "$door" ] && break; sleep 0.1; done
exec 9> "$door" || exit 1
echo here >&9
if [ $# -gt 0 ]; then "$@" 9>&-; else /bin/bash -l 9>&-; fi
"""


def check(arguments: Arguments) -> None:
    for option in ("direct", "execute", "log", "json", "retries", "until", "on-node-loss"):
        if arguments.on(option):
            raise UsageError(f"--interactive and --{option} exclude each other")


def stay(client: Client, job: int, argv: list[str] | None) -> int:
    """Waits for its turn, goes in, and comes back with the shell's exit code; the job is over then."""
    with _signals_as_errors():
        try:
            _wait_for_start(client, job)
            code = _enter(client, job, argv)
        except KeyboardInterrupt:
            _end(client, job)
            render.talk(f"\nStopped job {job}.")
            return DETACHED
        except BaseException:
            _end(client, job)
            raise
    _see_it_end(client, job, code)
    return code


def _wait_for_start(client: Client, job: int) -> None:
    version, said = "", ""
    while True:
        found = patient(lambda: client.job(job))
        if found["state"] == RUNNING:
            return
        if found["state"] > RUNNING:
            raise SnakepitError(f"job {job} ended before it began: {sentence(found)}. See pit log {job}")
        if (words := _why(client, found)) != said:
            said = words
            render.talk(f"Waiting: {words}")
        version, _ = patient(partial(client.status_after, version, LOOK_S))


def _why(client: Client, job: dict[str, Any]) -> str:
    if job["state"] == WAITING:
        reasons = patient(lambda: client.why(job["id"]))
        if not any(reason.startswith(BEGUN) for reason in reasons):
            return render.clean("; ".join(reasons)) or "for its turn"
        return "it is being started"
    return "it is being started" if job["state"] == STARTING else "its code is being prepared"


def _enter(client: Client, job: int, argv: list[str] | None) -> int:
    from snakepit.pit.commands.exec import on_terminal, run_inside

    entering, end = carried.command_of("interactive", *(argv or [])), time.monotonic() + ENTER_S
    while True:
        try:
            return run_inside(client, job, 0, entering, on_terminal(), {carried.VARIABLE: ENTER})
        except NotFound:  # its state is told a moment before it can be entered
            if time.monotonic() > end or client.job(job)["state"] > RUNNING:
                raise
        time.sleep(0.1)


def _see_it_end(client: Client, job: int, code: int) -> None:
    from snakepit.pit.commands.exec import below

    with contextlib.suppress(SnakepitError, KeyboardInterrupt):
        found = client.call("GET", f"/jobs/{job}/wait?timeout={FAREWELL_S}")
        if found["state"] < DONE:
            client.stop(job)
            words = "is being stopped."
        else:
            succeeded = found.get("outcome") in (None, "succeeded")
            words = "has ended." if succeeded else f"has ended: {sentence(found)}"
        render.talk(f"{below(code)}Job {job} {words}")


def _end(client: Client, job: int) -> None:
    _hear_no_more()
    with contextlib.suppress(SnakepitError):
        client.stop(job)


@contextlib.contextmanager
def _signals_as_errors() -> Iterator[None]:
    """A terminal that is closed, or a kill: the job is not left waiting for nobody."""

    def leave(number: int, _: object) -> None:
        _hear_no_more()
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hear_no_more() -> None:
    """A terminal that is closed says so more than once, and the job is stopped all the same."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
