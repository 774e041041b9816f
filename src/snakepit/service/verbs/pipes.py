"""Pipes: the connection becomes stdin and stdout of a confined program on the head."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from snakepit.core.access import Person
from snakepit.errors import BadRequest
from snakepit.service.auth import digest
from snakepit.service.call import Call, token_of
from snakepit.service.pipes import boards, programs, repository
from snakepit.service.pipes.entity import Place, resolve
from snakepit.service.pipes.programs import Program
from snakepit.service.pipes.registry import Right
from snakepit.service.pipes.rsync import rsync as rsync_program
from snakepit.service.pipes.rsync import ways_of as rsync_ways
from snakepit.service.pipes.upgrade import handover_of
from snakepit.service.usage import Owner, owner_of
from snakepit.wire.fields import Field, table

ENTITY = Field("entity", words="home, user:<name>, group:<name>, shared, job:<number>")
SFTP = table(ENTITY)
RSYNC = table(
    ENTITY,
    Field("path", longest=4096, words="below the entity"),
    Field("args", "texts", longest=100, words="the options of rsync --server, one by one"),
)
GIT = table(Field("repository", words="snapshots"), Field("service", words="receive-pack or upload-pack"))


TENSORBOARD = table(
    Field("jobs", longest=1000, words="numbers, with commas between them"),
    Field("logdir", longest=1000, words="below the directory of each job, or below its src/"),
)


class Switched(Response):
    """Everything was said already, on a connection that is no longer ours."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        return


async def sftp(call: Call) -> Response:
    """A pipe to sftp-server in the directory of an entity. Open also above the limit: this is how one makes room."""
    place, right = await _entity(call)
    return await _open(call, programs.sftp(place), right)


async def rsync(call: Call) -> Response:
    """A pipe to rsync --server in the directory of an entity."""
    place, right = await _entity(call)
    options = call.query.get("args", [])
    if place.writable and "--sender" not in options:
        await call.service.limits.check(owner_of(place.directory))
    ways = await rsync_ways(programs.installed("rsync"))
    return await _open(call, rsync_program(place, _path(call), options, ways), right)


def _path(call: Call) -> str:
    """Names are bytes: what is not UTF-8 comes through as it is."""
    text = call.request.scope["query_string"].decode("latin-1")
    pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape")
    return next((value for name, value in reversed(pairs) if name == "path"), "")


async def git(call: Call) -> Response:
    """A pipe to git in the repository of one's own snapshots."""
    if call.query.get("repository", "snapshots") != "snapshots":
        raise BadRequest("No such repository: there is snapshots")
    settings = call.service.settings
    if call.query.get("service") == "receive-pack":
        await call.service.limits.check(Owner("user", call.person.id))
    path = await repository.snapshots(settings.data_root, call.person.id)
    program = repository.git(path, call.query.get("service", ""), settings.max_snapshot_size_bytes)

    async def right(person: Person) -> Place:
        return program.place  # one's own, as long as one is somebody

    return await _open(call, program, right)


async def tensorboard(call: Call) -> Response:
    """A spare connection (as into a job) to a TensorBoard over the directories of jobs."""
    handover = handover_of(call.request)
    service, root = call.service, call.service.settings.data_root.absolute()
    words = list(dict.fromkeys(call.query.get("jobs", "").split(",")))
    if len(words) > boards.MOST_JOBS or not all(word.isascii() and word.isdigit() for word in words):
        raise BadRequest(f"Which jobs? (numbers with commas between them, {boards.MOST_JOBS} at most)")
    directory = call.query.get("logdir", "")
    boards.check_directory(directory, len(words) > 1)

    async def places(person: Person) -> list[Place]:
        return [await resolve(service.store, root, person, f"job:{word}") for word in words]

    async def right(person: Person) -> Place:
        return (await places(person))[0]

    found = await places(call.person)
    jobs = tuple((int(word), place.directory) for word, place in zip(words, found, strict=True))
    key = digest(token_of(call.request))
    await service.boards.open(handover, boards.Wanted(call.person.id, key, jobs, directory), right)
    return Switched(status_code=101)


async def _entity(call: Call) -> tuple[Place, Right]:
    service, entity = call.service, call.query.get("entity", "")

    async def right(person: Person) -> Place:
        return await resolve(service.store, service.settings.data_root.absolute(), person, entity)

    return await right(call.person), right


async def _open(call: Call, program: Program, right: Right) -> Response:
    handover = handover_of(call.request)
    await call.service.pipes.open(handover, call.person.id, digest(token_of(call.request)), program, right)
    return Switched(status_code=101)
