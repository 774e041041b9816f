"""`pit tensorboard` and `pit jupyter`: what a job has to show, in the browser here."""

from __future__ import annotations

from snakepit.client import places, transfer, within
from snakepit.client.client import DONE, Client
from snakepit.client.entities import job_numbers
from snakepit.client.forward import Door, Forward, door_of
from snakepit.client.http import query
from snakepit.client.ports import listen
from snakepit.errors import Forbidden, NotFound, SnakepitError
from snakepit.pit import render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError
from snakepit.pit.forwarding import WORKER, one_job, worker_of
from snakepit.pit.looking import Look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RUNNING = 4
PORT = Option("-p --port", "the local port (any that is free when left out)", "number")
OPEN = Option("--open", "opens it in the browser")


def tensorboard(arguments: Arguments) -> int:
    numbers = job_numbers(arguments.words("jobNumber"))
    directory, port = arguments.text("logdir") or "", _port(arguments)
    client = session.open_client()
    jobs = [client.job(number) for number in numbers]
    server, path = None, ""
    if len(jobs) == 1 and jobs[0]["state"] == RUNNING and not arguments.on("head"):
        server = _within(client, numbers[0], worker_of(arguments), directory)
    if server is not None:
        remote, path = server.address()
        door = door_of(numbers[0], worker_of(arguments), port, remote)
    else:
        _look_for(client, jobs, directory)
        asked = query({"jobs": ",".join(map(str, numbers)), "logdir": directory or None})
        door = Door(listen(port), f"/pipes/tensorboard{asked}", "the head")
    return _look(client, door, "TensorBoard", path, server, arguments)


def _look_for(client: Client, jobs: list[dict[str, Any]], directory: str) -> None:
    """Says where there is nothing to show: a job that runs may still make it, ended ones will not."""
    lacking = [job for job in jobs if not _is_there(client, int(job["id"]), directory)]
    if lacking and len(lacking) == len(jobs) and all(job["state"] == DONE for job in jobs):
        which = " and ".join(f"job {job['id']}" for job in jobs)
        raise NotFound(f"There is no directory {directory} in {which} (nor below src/)")
    for job in lacking:
        yet = "" if job["state"] == DONE else " yet; it is shown once it is there"
        render.talk(f"There is no directory {render.clean(directory)} in job {job['id']}{yet}.")


def _is_there(client: Client, job: int, directory: str) -> bool:
    """A path that may not be looked at counts as there: what is wrong with it is the service's to say."""
    if not directory or directory.startswith("/") or ".." in directory.split("/"):
        return True
    place, _, _ = places.parse([str(job)])
    try:
        found = (transfer.look(client, place, path) for path in (directory, f"src/{directory}"))
        return any(each is not None and not each.is_file for each in found)
    except SnakepitError:
        return True


def _within(client: Client, job: int, worker: int, directory: str) -> within.Server | None:
    """In the job, if it has one and we may; on the head it is the same to look at."""
    import secrets

    server = None
    try:
        server = within.start_tensorboard(client, job, worker, directory, secrets.token_urlsafe(24))
        server.address()
    except (within.NotInJob, NotFound, Forbidden):
        if server is not None:
            server.close()
        return None
    except BaseException:
        if server is not None:
            server.close()
        raise
    return server


def jupyter(arguments: Arguments) -> int:
    import secrets

    job, worker, port = one_job(arguments), worker_of(arguments), _port(arguments)
    client = session.open_client()
    client.job(job)
    token = secrets.token_urlsafe(24)
    server = within.start_jupyter(client, job, worker, token)
    try:
        door = door_of(job, worker, port, server.address()[0])
    except BaseException:
        server.close()
        raise
    return _look(client, door, "Jupyter", f"?token={token}", server, arguments)


def _look(client: Client, door: Door, name: str, path: str, server: within.Server | None, arguments: Arguments) -> int:
    forward = Forward(client, [door], render.talk)
    return Look(forward, door.port, name, path, server, arguments.on("open")).run()


def _port(arguments: Arguments) -> int:
    port = arguments.number("port") or 0
    if port > 65535:
        raise UsageError(f"--port {port}: there are ports up to 65535")
    return port


COMMANDS = (
    Command(
        "tensorboard",
        "shows jobs in TensorBoard",
        tensorboard,
        (Argument("jobNumber", many=True),),
        (
            Option(
                "--logdir", "where the job writes its events, like keep/logs (all of the job's directory)", "directory"
            ),
            WORKER,
            PORT,
            OPEN,
            Option("--head", "on the head, even if the job has a TensorBoard itself"),
        ),
        examples=("pit tensorboard 190", "pit tensorboard 190 191 --logdir keep/logs --open"),
        notes="""
It runs in the job where that is running and has it, else on the head, where it sees nothing but the directories of
these jobs. Several jobs are shown together. It ends with Ctrl-C. In a job it answers only below the path of the link,
which nobody else knows: the network of jobs is that of their node.""",
    ),
    Command(
        "jupyter",
        "opens Jupyter in a running job",
        jupyter,
        (Argument("jobNumber"),),
        (WORKER, PORT, OPEN),
        examples=("pit jupyter 190 --open",),
        notes="""
Starts the Jupyter that the job has (lab, notebook or server) in its working directory, forwards it to a local port and
prints the link with its token, which nobody else knows. It ends with Ctrl-C.""",
    ),
)
