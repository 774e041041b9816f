"""Staying with a job in a terminal: its log on stdout, Ctrl-C lets go of it, and its outcome becomes an exit code."""

from __future__ import annotations

from snakepit.client.client import Client, exit_code
from snakepit.pit import render

DETACHED = 130


def follow(client: Client, job: int, lines: int | None = None) -> int | None:
    """Prints the log until the job is done: None. Ctrl-C detaches, says so, and gives the exit code for that."""
    try:
        for block in client.log(job, follow=True, lines=lines):
            render.out_bytes(block)
    except KeyboardInterrupt:
        render.talk(f"\nDetached; job {job} goes on. To follow it: pit log {job}. To stop it: pit stop {job}")
        return DETACHED
    return None


def follow_to_outcome(client: Client, job: int) -> int:
    detached = follow(client, job)
    if detached is not None:
        return detached
    ended = client.wait(job)
    if ended.get("outcome") not in (None, "succeeded"):
        render.talk(f"Job {job}: {sentence(ended)}")
    return exit_code(ended)


def sentence(job: dict[str, object]) -> str:
    """`failed (exit code 3)`, `stopped - Stopped by user tilman`."""
    outcome, code, reason = job.get("outcome") or "ended", job.get("exitCode"), job.get("reason")
    text = f"{outcome} (exit code {code})" if outcome == "failed" and code else str(outcome)
    return render.clean(f"{text} - {reason}" if reason else text)
