"""`pit forward`: ports of a job, here on localhost."""

from __future__ import annotations

from snakepit.client import ports
from snakepit.client.client import DONE, Client
from snakepit.client.forward import Door, Forward, door_of
from snakepit.errors import BadRequest
from snakepit.pit import render, session
from snakepit.pit.arguments import Argument, Arguments, Command, UsageError
from snakepit.pit.following import sentence
from snakepit.pit.forwarding import WORKER, keep_forwarding, one_job, worker_of

ENDS_S = 2


def forward(arguments: Arguments) -> int:
    try:
        pairs = [ports.parse(word) for word in arguments.words("ports")]
    except BadRequest as problem:
        raise UsageError(problem.message) from None
    if not pairs:
        raise UsageError("missing ports: local[:remote], like 8080 or 8080:80")
    job, worker = one_job(arguments), worker_of(arguments)
    client = session.open_client()
    client.job(job)  # so that a login that has ended is renewed here, where somebody can be asked
    doors: list[Door] = []
    try:
        for pair in pairs:
            doors.append(door_of(job, worker, pair.local, pair.remote))
    except BaseException:
        for door in doors:
            door.close()
        raise

    def announce() -> None:
        render.talk("Start")
        for door, pair in zip(doors, pairs, strict=True):
            render.out(f"Forwarding port {pair.remote} of worker {worker} to port {door.port} on localhost...\n")
        render.flush()
        render.talk("Hit Ctrl-C to stop forwarding.")

    return keep_forwarding(Forward(client, doors, render.talk), announce, lambda: _part(client, job, worker))


def _part(client: Client, job: int, worker: int) -> None:
    """An end that was to be expected. The job of a worker that ended often ends a moment later."""
    found = client.call("GET", f"/jobs/{job}/wait?timeout={ENDS_S}", limit_s=ENDS_S + 30)
    if found["state"] == DONE:
        render.talk(f"Job {job} has ended: {sentence(found)}")
    else:
        render.talk(f"Worker {worker} of job {job} has ended.")


COMMANDS = (
    Command(
        "forward",
        "forwards ports of a job's worker to localhost",
        forward,
        (Argument("jobNumber"), Argument("ports", required=False, many=True)),
        (WORKER,),
        examples=("pit forward 190 8080", "pit forward -w 1 190 8080:80 0:6006"),
        notes="""
"ports" are pairs local[:remote]. A local 0 takes any free port and says which. It listens on localhost only. While the
service is away connections wait for it; the command ends with the worker, or with Ctrl-C (exit code 0).""",
    ),
)
