"""Submitting a job, and submitting one again. Checked in the original's order, then written down in one go.

An archive is copied out of its user's home first, so that what was submitted is what runs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import math
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from snakepit.core import access, request
from snakepit.core.access import JobRights
from snakepit.core.job import State, Until
from snakepit.core.origin import read_origin
from snakepit.errors import BadRequest, CannotFulfill, Forbidden, NotFound, WrongState
from snakepit.service import beneath
from snakepit.service.call import Call
from snakepit.service.pipes import repository
from snakepit.service.usage import Owner
from snakepit.service.verbs.login import seconds
from snakepit.source import snapshots
from snakepit.store import jobs
from snakepit.store.rows import JobInput, JobRow, NewJob, new_row
from snakepit.wire import shapes
from snakepit.wire.fields import LONGEST_TEXT, Field, table
from snakepit.wire.names import COMPUTE, LARGEST_JOB, TITLE_LENGTH, VARIABLE, is_reserved

JOB = table(
    Field("clusterRequest", required=True, longest=10_000),
    Field("description", required=True, longest=10_000, words="the title, at most 40 characters"),
    Field("private", "flag"),
    Field("continueJob", "job"),
    Field("script", longest=LONGEST_TEXT, lines=True),
    Field("origin", longest=4096),
    Field("hash", longest=64),
    Field("diff", longest=LONGEST_TEXT, lines=True),
    Field("diffBase64", longest=LONGEST_TEXT, lines=True, words="instead of diff, where it is not all UTF-8"),
    Field("archive", longest=4096),
    Field("snapshot", longest=64, words="a commit that was pushed through /pipes/git"),
    Field("diffLoC", "whole", high=2**31 - 1, words="lines that a snapshot changes"),
    Field("env", "map", longest=1000),
    Field("until", choices=("all", "any")),
    Field("retries", "whole", high=1000),
    Field("timeLimit", "time", words="seconds or a time-value"),
    Field("onNodeLoss", choices=("wait", "rerun")),
    Field("priority", "whole", low=-1000, high=1000),
)
HASH = re.compile(r"[0-9a-fA-F]{4,64}")
log = logging.getLogger(__name__)
KEY = re.compile(r"[\x21-\x7e]{1,255}")
COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """Where the code of a job comes from; of `origin`, only `shown` is for people."""

    kind: str
    words: str
    origin: str = ""
    shown: str = ""
    hash: str = ""
    diff: bytes = b""
    archive: str = ""
    changed_lines: int = 0
    snapshot: str = ""


async def submit(call: Call) -> shapes.JobId:
    """Submit a job."""
    body, person = call.body, call.person
    title = _title(body["description"])
    key = _idempotency_key(call)
    environment, time_limit_s = _environment(body.get("env", {})), seconds(body.get("timeLimit", 0), "timeLimit")
    wanted = body["clusterRequest"].strip()
    check_request(call, wanted)
    continued = body.get("continueJob")
    if continued is not None:
        await _check_continued(call, continued)
    if body.get("priority", 0) > 0:
        access.administer(person)
    await call.service.limits.check(Owner("user", person.id))
    source = await _source(call, key)
    new = NewJob(
        user=person.id,
        description=title,
        request=wanted,
        source=source.kind,
        provisioning=source.words,
        origin_shown=source.shown,
        hash=source.hash,
        diff_loc=source.changed_lines,
        private=body.get("private", False),
        continues=continued,
        until=Until(body.get("until", call.service.settings.until)),
        on_node_loss=body.get("onNodeLoss", "wait"),
        retries=body.get("retries", 0),
        environment=environment,
        time_limit_s=math.ceil(time_limit_s),
        priority=body.get("priority", 0),
        groups=() if body.get("private") else call.signed_in.autoshare,
        script=body.get("script") or COMPUTE,
        origin=source.origin,
        diff=source.diff,
        archive=source.archive,
        snapshot=source.snapshot,
    )
    return await _insert(call, new, key)


async def rerun(call: Call) -> shapes.JobId:
    """Submit a job again, exactly as it was."""
    row, given = await call.service.store.read(_job_and_input, call.job)
    access.change_job(call.person, JobRights(row.user, row.groups))
    check_request(call, row.request)
    await call.service.limits.check(Owner("user", call.person.id))
    if row.snapshot:
        await _offer_again(call, row)
    archive = ""
    if given.archive:
        archive = await asyncio.to_thread(_same_archive, call.service.settings.data_root, Path(given.archive))
    copied = {
        name: getattr(row, name)
        for name in NewJob.__slots__
        if name not in ("user", "groups", "script", "origin", "diff", "archive")
    }
    new = NewJob(
        **copied,
        user=call.person.id,
        groups=() if row.private else call.signed_in.autoshare,
        script=given.script,
        origin=given.origin,
        diff=given.diff,
        archive=archive,
    )
    return await _insert(call, new, _idempotency_key(call))


def check_request(call: Call, text: str) -> None:
    """400 when it does not parse, 406 when no set of known nodes could ever hold it."""
    refusal = call.service.loop.never_fits(request.parse(text), call.person.id)
    if refusal is not None:
        reasons = "".join(f"\n  {reason}" for reason in refusal.reasons)
        raise CannotFulfill(f"Cluster cannot fulfill resource request{':' if reasons else ''}{reasons}")


async def _insert(call: Call, new: NewJob, key: str) -> shapes.JobId:
    service, now = call.service, call.service.clock()
    state = State.WAITING if new.script_only else State.NEW
    try:
        id, created = await service.store.write(jobs.insert, new, now, key, state)
    except BaseException:
        if new.archive and not key:  # with a key it may be the archive of the job that has it already
            await asyncio.to_thread(Path(new.archive).unlink, True)
        raise
    if created:
        if new.snapshot:
            await _keep(call, id, new)
        given = JobInput(new.script, new.origin, new.hash, new.diff, new.archive) if state is State.WAITING else None
        service.loop.submitted(new_row(id, new, state, now), given)
    return {"id": id}


async def _check_continued(call: Call, job: int) -> None:
    row = await call.service.store.read(jobs.find, job) if job <= LARGEST_JOB else None
    if row is None:
        raise NotFound("The job to continue is not existing")
    if not access.may_read_job(call.person, JobRights(row.user, row.groups)):
        raise Forbidden("Continuing provided job not allowed for current user")


def _title(text: str) -> str:
    title = text.strip()
    if not title:
        raise BadRequest("The job needs a title")
    if len(title) > TITLE_LENGTH:
        raise BadRequest(f"Job title too long ({TITLE_LENGTH} characters max)")
    return title


def _environment(given: dict[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if not re.fullmatch(VARIABLE, name):
            raise BadRequest(f'"env": {name[:40]!r} is no name of an environment variable')
        if is_reserved(name):
            raise BadRequest(f'"env": {name} is set by the scheduler: choose another name')
        if "\0" in value:
            raise BadRequest(f'"env": the value of {name} contains a control character')
    return given


def _idempotency_key(call: Call) -> str:
    key: str = call.request.headers.get("idempotency-key", "")
    if key and not KEY.fullmatch(key):
        raise BadRequest("Idempotency-Key: expected 1 to 255 printable ASCII characters without blanks")
    return key


# --------------------------------------------------------------------------------------------------- where code is from


async def _source(call: Call, key: str) -> Source:
    body = call.body
    if "snapshot" in body:
        return await _snapshot(call)
    diff = _diff(body)
    changed = _changed_lines(diff)
    suffix = f" with {changed} LoC diff" if diff else ""
    if "archive" in body:
        if "origin" in body:
            raise BadRequest('Give either "origin" or "archive", not both')
        root = call.service.settings.data_root
        path, size = await asyncio.to_thread(_take_archive, root, call.person.id, body["archive"], key)
        return Source("archive", f"Archive ({size} bytes){suffix}", diff=diff, archive=str(path), changed_lines=changed)
    if "origin" not in body:
        return Source("script", f"Script{suffix}", diff=diff, changed_lines=changed)
    shown = read_origin(body["origin"]).shown
    hash = body.get("hash", "")
    if hash and not HASH.fullmatch(hash):
        raise BadRequest('"hash" must be the hash of a commit (hexadecimal digits)')
    words = f"Git commit {hash} from {shown}" if hash else f"Git clone of {shown}"
    return Source("git", f"{words}{suffix}", body["origin"], shown, hash, diff, changed_lines=changed)


async def _snapshot(call: Call) -> Source:
    """Of the address only what may be shown is wanted here, and only that is kept."""
    body, root = call.body, call.service.settings.data_root
    for other in ("archive", "diff", "diffBase64"):
        if other in body:
            raise BadRequest(f'Give either "snapshot" or "{other}", not both')
    commit, hash = body["snapshot"], body.get("hash", "")
    if not snapshots.FULL_HASH.fullmatch(commit) or (hash and not HASH.fullmatch(hash)):
        raise BadRequest('"snapshot" and "hash" must be hashes of commits (hexadecimal digits)')
    if not await asyncio.to_thread(snapshots.has, root, call.person.id, commit):
        raise BadRequest(f"The snapshot {commit[:12]} is not on the head: push it first, to {snapshots.INCOMING}")
    shown = read_origin(body["origin"]).shown if body.get("origin") else ""
    loc = body.get("diffLoC", 0)
    words = f"Snapshot {commit[:12]}" + (f": Git commit {hash}" if hash else "") + (f" from {shown}" if shown else "")
    words += f" with {loc} LoC diff" if loc else ""
    return Source("snapshot", words, shown, shown, hash, changed_lines=loc, snapshot=commit)


async def _offer_again(call: Call, row: JobRow) -> None:
    """The snapshot of an earlier job, for a new one that may be of somebody else."""
    root = call.service.settings.data_root
    if await asyncio.to_thread(snapshots.kept, root, row.user, row.id) != row.snapshot:
        raise WrongState("The snapshot of this job is no longer kept: submit it anew")
    if row.user == call.person.id:
        await asyncio.to_thread(snapshots.offer, root, row.user, row.snapshot)
    else:
        await repository.snapshots(root, call.person.id)
        await snapshots.bring(root, row.user, call.person.id, row.id, row.snapshot)


async def _keep(call: Call, job: int, new: NewJob) -> None:
    try:
        await asyncio.to_thread(snapshots.keep, call.service.settings.data_root, new.user, job, new.snapshot)
    except OSError as problem:  # the preparation will do it; until then the push keeps it
        log.warning("the snapshot of job %d is not kept yet: %s", job, problem)


def _diff(body: dict[str, Any]) -> bytes:
    if "diffBase64" in body:
        if "diff" in body:
            raise BadRequest('Give either "diff" or "diffBase64", not both')
        try:
            return base64.b64decode(body["diffBase64"], validate=True)
        except ValueError as problem:
            raise BadRequest('"diffBase64" is not valid base64') from problem
    text: str = body.get("diff", "")
    # The original client trims its diff, which `git apply` calls corrupt.
    return (text if not text or text.endswith("\n") else text + "\n").encode()


def _changed_lines(diff: bytes) -> int:
    lines = diff.split(b"\n") if diff else ()
    return sum(line[:1] in (b"+", b"-") and line[:4] not in (b"+++ ", b"--- ") for line in lines)


def _take_archive(root: Path, user: str, name: str, key: str) -> tuple[Path, int]:
    """A copy of the archive in `inputs/`, on the disk when this returns, and its size."""
    try:
        handle = beneath.open_file(root / "home" / user, name, os.O_RDONLY)
    except (NotFound, Forbidden) as problem:
        outside = isinstance(problem, Forbidden) or ".." in name.split("/")
        raise (Forbidden("Archive outside user home") if outside else NotFound("Archive not found")) from problem
    inputs = root / "inputs"
    inputs.mkdir(mode=0o700, exist_ok=True)
    # The same submission sent again must find the same path, or it would look like another one.
    nonce = hashlib.sha256(f"{user} {key}".encode()).hexdigest()[:32] if key else secrets.token_hex(16)
    target, fresh = inputs / f"{nonce}.archive", inputs / f".{secrets.token_hex(16)}.part"
    try:
        with os.fdopen(handle, "rb") as source, fresh.open("xb") as copy:
            shutil.copyfileobj(source, copy, COPY_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
            size = copy.tell()
        fresh.rename(target)
    except OSError as problem:
        fresh.unlink(missing_ok=True)
        with beneath.speaking(name):
            raise problem
    _sync_directory(inputs)
    return target, size


def _same_archive(root: Path, old: Path) -> str:
    target = root / "inputs" / f"{secrets.token_hex(16)}.archive"
    try:
        os.link(old, target)  # nobody writes to an input, so both may be one
    except FileNotFoundError as problem:
        raise WrongState("The archive of this job is no longer kept: submit it anew") from problem
    _sync_directory(target.parent)
    return str(target)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _job_and_input(c: Connection, job: int) -> tuple[JobRow, JobInput]:
    return jobs.get(c, job), jobs.input_of(c, job)
