"""Doing what was decided and written down: prepare, start, stop, clean. Concurrent, idempotent by identity.

A deed never changes the live state; it tells the loop what came of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from snakepit.core.domains import Mount, job_mounts
from snakepit.core.environment import Paths, Peer, pit_environment
from snakepit.core.job import AttemptId, Cause, Ended, ProcessId
from snakepit.engines.base import Created, Go, Granted, Launch
from snakepit.errors import EngineError, NotNow, Rejected, SnakepitError, Unreachable
from snakepit.loop.live import LiveAttempt, LiveJob, LiveNode, LiveProcess
from snakepit.loop.logbook import LogBooks
from snakepit.source.layout import intact, prepared
from snakepit.source.provision import Work
from snakepit.store import jobs
from snakepit.store.database import Store

log = logging.getLogger(__name__)
CLEAN_AFTER_S = 0.5
RUNNING_AFTER_S = 0.02  # one that is over before costs no transaction of its own


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop needs of the configuration."""

    root: Path
    max_parallel_prep: int = 2
    max_prep_s: float = 3600
    max_start_s: float = 300
    grace_s: float = 15
    worker_env: Mapping[str, str] | None = None
    log_limit_bytes: int = 1 << 30
    keep_src_s: float = 7 * 86400
    keep_jobs_s: float = 365 * 86400
    keep_audit_s: float = 365 * 86400
    keep_trash_s: float = 30 * 86400
    offline_after_s: float = 5
    confined: bool = True
    allow_file_origins: bool = False


class Provision(Protocol):
    def __call__(self, work: Work, say: Callable[[str], None]) -> Awaitable[None]: ...


class Tell(Protocol):
    def __call__(self, handler: str, *args: object) -> None: ...


class Later(Protocol):
    def __call__(self, pause_s: float, handler: str, *args: object) -> None: ...


class Deeds:
    def __init__(
        self,
        store: Store,
        nodes: Mapping[str, LiveNode],
        books: LogBooks,
        provision: Provision,
        settings: LoopSettings,
        tell: Tell,
        later: Later,
    ) -> None:
        self._store, self._nodes, self._books = store, nodes, books
        self._provision, self._settings, self._tell, self._later = provision, settings, tell, later
        self._over: list[LiveAttempt] = []  # to be cleaned

    async def prepare(self, job: LiveJob) -> None:
        """Build the job's directory; the loop hears `prepared` with a problem, or without one."""
        problem = ""
        try:
            await self._provide(job)
        except SnakepitError as error:
            problem = error.message or "Problem during preparation step"
        except OSError as error:
            log.warning("preparing job %d failed", job.id, exc_info=True)
            problem = f"Problem during preparation step: {error.strerror or error}"
        except Exception as error:  # a job must not stay PREPARING for ever
            log.exception("preparing job %d failed", job.id)
            problem = f"Problem during preparation step: {error}"
        self._tell("prepared", job.id, job.attempt_number, problem)

    async def _provide(self, job: LiveJob) -> None:
        row, settings = job.row, self._settings
        given, job.given = job.given, None
        if given is None:
            given = await self._store.read(jobs.input_of, job.id)
        work = Work(
            root=settings.root,
            job=job.id,
            user=row.user,
            source=row.source,
            origin=given.origin,
            hash=given.hash,
            snapshot=row.snapshot,
            diff=given.diff,
            archive=Path(given.archive) if given.archive else None,
            script=given.script,
            continues=row.continues,
            time_limit_s=settings.max_prep_s,
            confined=self._confined(),
            attempt=job.attempt_number,
            allow_file=settings.allow_file_origins,
            environment=tuple((settings.worker_env or {}).items()),
        )
        await self._provision(work, lambda line: self._books.say(job.id, "prepare", line))

    async def start(self, job: LiveJob, attempt: LiveAttempt) -> None:
        """Create every process; when all stand, let all go. `gone` is set before the first go leaves."""
        try:
            if not self._stands(job):
                await self._provide(job)
            async with asyncio.timeout(self._settings.max_start_s):
                created = await self._create(job, attempt)
        except Rejected as error:
            return self._tell("start_failed", attempt.id, error.message, "", True)
        except (NotNow, Unreachable) as error:
            return self._tell("start_failed", attempt.id, error.message, getattr(error, "node", ""), False)
        except TimeoutError:
            return self._tell("start_failed", attempt.id, "Exceeded max start time", "", False)
        except SnakepitError as error:
            return self._tell("start_failed", attempt.id, error.message, "", True)
        except OSError as error:
            return self._tell("start_failed", attempt.id, f"on the head: {error.strerror or error}", "", False)
        if not attempt.gone:
            workers = [process.id.process for process in attempt.processes]
            begun = [(f"worker {worker}", f"Worker {worker} started") for worker in workers]
            self._books.open(job.id).say_all([("daemon", "Pit daemon started"), *begun])
        attempt.gone = True
        try:
            await asyncio.gather(
                *(self._nodes[node].engine.go(goes) for node, goes in self._goes(job, attempt, created).items())
            )
        except Unreachable:
            return self._tell("start_interrupted", attempt.id)
        except EngineError as error:
            return self._tell("start_failed", attempt.id, error.message, "", False)
        self._later(RUNNING_AFTER_S, "started", attempt.id)
        return None

    def _stands(self, job: LiveJob) -> bool:
        """Whether the job's directory is there. One that is only a script gets it now; of another one, what the head
        had not yet put on the disk is gone when it was restarted since."""
        root = self._settings.root
        return prepared(root, job.id, job.attempt_number) if job.row.script_only else intact(root, job.id)

    async def stop(self, attempt: LiveAttempt, cause: Cause, note: str) -> None:
        """Ask every node to end its processes; what never ran is told as ended here."""
        await asyncio.gather(*(self._stop_on(node, attempt, cause, note) for node in attempt.nodes))

    async def clean(self, attempt: LiveAttempt) -> None:
        """Let the nodes forget the attempt, with others that end about now: whoever waits for its end comes first.
        A node out of reach is cleaned when it is back."""
        self._over.append(attempt)
        if len(self._over) > 1:
            return
        await asyncio.sleep(CLEAN_AFTER_S)
        over, self._over = self._over, []
        await asyncio.to_thread(self._sync_logs, [each.id.job for each in over])
        by_node: dict[str, list[AttemptId]] = {}
        for each in over:
            for node in each.nodes:
                by_node.setdefault(node, []).append(each.id)
        await asyncio.gather(*(self.clean_on(node, ids) for node, ids in by_node.items()))

    def _sync_logs(self, jobs: Sequence[int]) -> None:
        for job in jobs:
            try:
                self._books.sync(job)
            except FileNotFoundError:
                continue  # the job was removed meanwhile
            except OSError as error:
                log.error("the log of job %d may not outlive a power cut: %s", job, error)

    async def clean_on(self, node: str, attempts: Sequence[AttemptId]) -> None:
        try:
            if node in self._nodes:
                await self._nodes[node].engine.clean(attempts)
        except EngineError as error:
            log.info("node %s: cleaning is put off: %s", node, error)

    async def forget_on(self, node: str, user: str) -> None:
        try:
            await self._nodes[node].engine.forget(user)
        except EngineError as error:
            log.warning("node %s keeps the home of user %s, who was removed: %s", node, user, error)

    async def look_for(self, node: str, wanted: Sequence[ProcessId], lost: Ended) -> None:
        """Those that were running before this question and are not there are lost."""
        try:
            there = {each.id for each in await self._nodes[node].engine.look()}
        except EngineError as error:
            log.info("node %s: looking is put off: %s", node, error)
            return
        for id in wanted:
            if id not in there:
                self._tell("ended", id, lost)

    async def _stop_on(self, node: str, attempt: LiveAttempt, cause: Cause, note: str) -> None:
        engine = self._nodes[node].engine
        try:
            await engine.stop([attempt.id], self._settings.grace_s, cause.value, note)
            seen = {each.id: each for each in await engine.look()}
        except EngineError as error:
            log.info("node %s: stopping %s is put off: %s", node, attempt.id, error)
            return
        for process in attempt.on(node):
            known = seen.get(process.id)
            if process.ended is None and (known is None or known.phase == "created"):
                self._tell("ended", process.id, Ended(cause, None, note))

    def _confined(self) -> bool:
        """Preparation is confined, unless an admin chose isolation=none for every node: jobs see all then anyhow, and a
        head without bubblewrap could prepare nothing."""
        trusting = self._nodes and all(node.row.isolation == "none" for node in self._nodes.values())
        return self._settings.confined and not trusting

    async def _create(self, job: LiveJob, attempt: LiveAttempt) -> dict[int, Created]:
        _make_directories(self._settings.root, job, attempt)
        launches: dict[str, list[Launch]] = {}
        for process in attempt.processes:
            node = self._nodes.get(process.placed.node)
            if node is None:
                raise NotNow(f"node {process.placed.node} was removed")
            launches.setdefault(process.placed.node, []).append(self._launch(job, process, node))

        async def create_on(name: str, wanted: list[Launch]) -> Sequence[Created]:
            try:
                return await self._nodes[name].engine.create(wanted)
            except EngineError as error:
                error.node = name  # type: ignore[attr-defined]
                error.message = f"{name}: {error.message}"
                raise

        answers = await asyncio.gather(*(create_on(name, wanted) for name, wanted in launches.items()))
        return {created.id.process: created for answer in answers for created in answer}

    def _launch(self, job: LiveJob, process: LiveProcess, node: LiveNode) -> Launch:
        placed = process.placed
        cards = {resource.index: resource for resource in node.row.resources}
        paths, mounts = self._paths(job, node)
        return Launch(
            id=process.id,
            name=process.id.name(placed.node),
            argv=("/bin/bash", f"{paths.job}/script.sh"),
            cwd=paths.src,
            mounts=mounts,
            granted=tuple(Granted(cards[grant.index], grant.share, grant.mem_bytes) for grant in placed.grants),
            cpus=placed.cpus,
            mem_bytes=placed.mem_bytes,
            cpu_weight=100 * max(1, len(placed.grants)),
            result_file=paths.result(process.id.process),
            log_limit_bytes=self._settings.log_limit_bytes,
            user=job.row.user,
        )

    def _paths(self, job: LiveJob, node: LiveNode) -> tuple[Paths, tuple[Mount, ...]]:
        """Inside a sandbox the seeds' paths under /data; without one the real ones."""
        root, groups = str(self._settings.root), sorted(job.who.groups)
        mounts = job_mounts(root, job.id, job.row.user, groups)
        if node.row.isolation == "none":
            mounts = tuple(replace(mount, path=mount.source) for mount in mounts)
        at = {mount.source: mount.path for mount in mounts}
        return (
            Paths(
                data_root=root if node.row.isolation == "none" else "/data",
                job=at[f"{root}/pits/{job.id}"],
                shared=at[f"{root}/shared"],
                home=at[f"{root}/home/{job.row.user}"],
                groups={group: at[f"{root}/groups/{group}"] for group in groups},
            ),
            mounts,
        )

    def _goes(self, job: LiveJob, attempt: LiveAttempt, created: Mapping[int, Created]) -> dict[str, list[Go]]:
        names = {process.id.process: process.id.name(process.placed.node) for process in attempt.processes}
        by_name = all(self._nodes[node].row.isolation != "none" for node in attempt.nodes)
        hosts = {names[worker]: made.address for worker, made in created.items()}
        peers = [
            Peer(
                worker=process.id.process,
                group_index=process.placed.group_index,
                process_index=process.placed.process_index,
                host=names[process.id.process] if by_name else created[process.id.process].address,
                gpus=len(process.placed.grants),
            )
            for process in attempt.processes
        ]
        ports = created[peers[0].worker].ports
        extra = (self._settings.worker_env or {}, job.row.environment)
        goes: dict[str, list[Go]] = {}
        for index, process in enumerate(attempt.processes):
            node = process.placed.node
            paths, _mounts = self._paths(job, self._nodes[node])
            environment = pit_environment(attempt.id, peers, paths, ports[0] if ports else 29500, extra)[index]
            goes.setdefault(node, []).append(Go(process.id, environment, hosts, job.row.time_limit_s))
        return goes


def _make_directories(root: Path, job: LiveJob, attempt: LiveAttempt) -> None:
    """A user or group that never had data before has an empty directory from now on; old results go."""
    for own in (root / "home" / job.row.user, *(root / "groups" / group for group in job.who.groups)):
        own.mkdir(mode=0o750, exist_ok=True)
    top = root / "pits" / str(attempt.id.job) / "workers"
    for process in attempt.processes:
        directory = top / str(process.id.process)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "result").unlink(missing_ok=True)
