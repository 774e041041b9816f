"""Deciding: what happened comes in, changes to write down and deeds to do come out. No IO, no waiting.

Each public method is one thing that can happen, named as the deed that tells it; it is called by the loop alone,
one at a time. Jobs wait in the order of their numbers: a slow preparation or a second attempt keeps its place.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

from snakepit.core import lifecycle
from snakepit.core.job import AttemptId, Cause, Ended, Outcome, ProcessId, State
from snakepit.core.lifecycle import Event
from snakepit.core.placement import Placement, summary
from snakepit.core.request import Request, parse
from snakepit.core.schedule import Start, next_preparations, plan
from snakepit.errors import SnakepitError, WrongState
from snakepit.loop.deeds import Deeds, Later, LoopSettings, Tell
from snakepit.loop.live import Changes, Live, LiveAttempt, LiveJob, LiveProcess
from snakepit.loop.logbook import LogBooks
from snakepit.store import attempts
from snakepit.store.rows import JobInput, JobRow

MOST_START_FAILURES = 3
START_PAUSES_S = (2, 20)  # a full disk or a lost mount is not mended in a moment
MOST_STARTS = 200  # in one turn: what happens meanwhile is not kept waiting
SMALL_SCRIPT = 10_000  # what is kept in memory for a job that waits
UNFULFILLABLE = "Cluster cannot fulfill resource request anymore"


class Decisions:
    def __init__(
        self, live: Live, deeds: Deeds, books: LogBooks, settings: LoopSettings, tell: Tell, later: Later
    ) -> None:
        self._live, self._deeds, self._books, self._settings, self._tell, self._later = (
            live,
            deeds,
            books,
            settings,
            tell,
            later,
        )
        self._replan = True
        self._requests: dict[str, Request] = {}

    def request_of(self, text: str) -> Request:
        request = self._requests.get(text)
        if request is None:
            if len(self._requests) > 10_000:
                self._requests.clear()
            request = self._requests[text] = parse(text)
        return request

    # --- a job's way -------------------------------------------------------------------------------------------

    def submitted(self, changes: Changes, row: JobRow, given: JobInput | None) -> None:
        if row.id in self._live.jobs or row.state is State.DONE:
            return
        job = self._adopt(row)
        if given is not None and len(given.script) <= SMALL_SCRIPT:
            job.given = given
        changes.news = True
        self._take_up(changes, job)

    def prepared(self, changes: Changes, id: int, attempt_number: int, problem: str) -> None:
        job = self._live.jobs.get(id)
        if job is None or job.attempt_number != attempt_number:
            return
        job.preparing = None
        self._live.preparing.pop(id, None)
        if job.state is State.STOPPING:
            changes.move(job, Event.ENDED)
            self._finish(changes, job)
        elif job.state is not State.PREPARING:
            return
        elif problem:
            changes.after.append(lambda: self._books.say(id, "prepare", problem))
            changes.move(job, Event.ENDED, problem, Outcome.FAILED)
            self._finish(changes, job)
        else:
            changes.move(job, Event.PREPARED)
            self._live.enqueue(job)
            self._replan = True

    def started(self, changes: Changes, id: AttemptId) -> None:
        if (found := self._live.attempt(id)) is None:
            return
        job, attempt = found
        attempt.starting = None
        if job.state is State.STARTING:
            self._now_running(changes, job, attempt)

    def start_interrupted(self, changes: Changes, id: AttemptId) -> None:
        """The word to run may or may not have arrived: go on when the node is back."""
        if (found := self._live.attempt(id)) is not None:
            found[1].starting = None

    def start_failed(self, changes: Changes, id: AttemptId, reason: str, node: str, final: bool) -> None:
        if (found := self._live.attempt(id)) is None:
            return None
        job, attempt = found
        attempt.starting = None
        if job.state is not State.STARTING:
            return None  # a stop is under way and ends it
        job.start_failures += 1
        self._release(job, attempt)
        job.attempt = None
        for name in attempt.nodes:
            changes.acts.append(self._deeds.clean_on(name, [id]))
        if final or job.start_failures >= MOST_START_FAILURES:
            changes.write(job.id, attempts.end, id, Outcome.FAILED, reason, changes.now)
            changes.move(job, Event.ENDED, f"Problem during startup: {reason}", Outcome.FAILED)
            return self._finish(changes, job)
        changes.write(job.id, attempts.end, id, None, f"could not be started: {reason}", changes.now)
        job.avoid |= {node} if node and len(self._live.nodes) > 1 else set()
        job.attempt_number += 1
        changes.move(job, Event.PUT_BACK, f"Problem during startup: {reason}", attempt=job.attempt_number)
        pause_s = START_PAUSES_S[min(job.start_failures, len(START_PAUSES_S)) - 1]
        words = f"Could not be started, tried again in {pause_s} s: {reason}"
        changes.after.append(lambda: self._books.say(job.id, "daemon", words))
        changes.after.append(lambda: self._later(pause_s, "try_again", job.id, id))
        return None

    def try_again(self, changes: Changes, id: int, failed: AttemptId) -> None:
        """After the pause that follows a failed start."""
        job = self._live.jobs.get(id)
        if job is not None and job.state is State.WAITING and job.attempt_number == failed.attempt + 1:
            self._live.enqueue(job)
            self._replan = True

    def ended(self, changes: Changes, id: ProcessId, ended: Ended) -> None:
        """A process ended; the first word counts."""
        if (found := self._live.attempt(id.attempt)) is None:
            return
        job, attempt = found
        process = next((each for each in attempt.processes if each.id == id), None)
        if process is None or process.ended is not None:
            return
        if not ended.at:
            ended = Ended(ended.cause, ended.code, ended.note, ended.result, changes.now.timestamp())
        process.ended = ended
        if job.state is State.STARTING and ended.cause is not Cause.LOST:
            self._now_running(changes, job, attempt)
        changes.write(job.id, attempts.process_ended, id, ended, self._books.open(job.id).length(id))
        changes.after.append(lambda: self._say_ended(id, ended))
        self._maybe_over(changes, job, attempt)

    def stop(self, changes: Changes, id: int, reason: str, answer: asyncio.Future[None]) -> None:
        job = self._live.jobs.get(id)
        try:
            if job is None:
                raise WrongState("Only jobs before or in running state can be stopped")
            self.end(changes, job, reason)
        except SnakepitError as error:
            changes.answers.append((answer, error))
        else:
            changes.answers.append((answer, None))

    def _after_cleaning(self, changes: Changes, job: LiveJob) -> None:
        again = job.outcome is Outcome.FAILED and job.attempt_number - job.start_failures < job.row.retries
        again |= job.outcome is Outcome.LOST and job.row.on_node_loss == "rerun"
        if not again:
            return self._finish(changes, job)
        job.attempt, job.outcome, job.wished = None, None, None
        job.attempt_number += 1
        number = job.attempt_number
        event = Event.READY if job.row.script_only else Event.RETRY
        changes.move(job, event, f"attempt {number}: {job.reason}", attempt=number)
        words = f"Trying again: attempt {number + 1} (ATTEMPT={number})"
        changes.after.append(lambda: self._books.say(job.id, "daemon", words))
        return self._take_up(changes, job)

    def call(self, changes: Changes, function: Callable[[Changes], None], answer: asyncio.Future[None]) -> None:
        """Something the loop itself wants done in its turn."""
        function(changes)
        changes.answers.append((answer, None))

    # --- once per turn -----------------------------------------------------------------------------------------

    def decide(self, changes: Changes) -> None:
        self._prepare_next(changes)
        if not self._replan:
            return
        starts = plan(self._live.queue, self._live.free, MOST_STARTS)
        self._replan = len(starts) == MOST_STARTS
        for start in starts:
            self._place(changes, start)
        if self._replan:
            self._tell("decide")

    def load(
        self, job_rows: list[JobRow], live_attempts: list[tuple[AttemptId, list[LiveProcess]]], changes: Changes
    ) -> None:
        """After a start of the service: everything is taken up where it was written down."""
        by_job = {id.job: (id, processes) for id, processes in live_attempts}
        for row in job_rows:
            job = self._adopt(row)
            if row.id in by_job:
                id, processes = by_job[row.id]
                placement = Placement(tuple(process.placed for process in processes))
                job.attempt = LiveAttempt(id, placement, processes, gone=True)
            self._take_up(changes, job)

    def replan(self) -> None:
        """Something changed that the next plan should see."""
        self._replan = True

    # --- helpers -----------------------------------------------------------------------------------------------

    def _adopt(self, row: JobRow) -> LiveJob:
        job = LiveJob(row, self.request_of(row.request), self._live.who(row.user), row.state, row.attempt)
        job.outcome, job.reason = row.outcome, row.reason
        self._live.jobs[job.id] = job
        self._books.begin(job.id)
        return job

    def _take_up(self, changes: Changes, job: LiveJob) -> None:
        attempt = job.attempt
        match job.state:
            case State.NEW | State.PREPARING:
                self._live.new[job.id] = job
            case State.WAITING:
                self._live.enqueue(job)
                self._replan = True
            case State.STARTING | State.RUNNING | State.STOPPING if attempt is not None:
                # The nodes say the rest when they are online.
                self._live.free.take(attempt.placement)
                job.wished = job.outcome if job.state is State.STOPPING else None
                self._maybe_over(changes, job, attempt)
            case State.STOPPING:
                changes.move(job, Event.ENDED)
                self._finish(changes, job)
            case State.CLEANING:
                # Its processes ended and that is written down; a node that still has traces is cleaned when it is met.
                self._after_cleaning(changes, job)
            case _:
                changes.move(job, Event.ENDED, "The record of its attempt was lost", Outcome.LOST)
                self._finish(changes, job)

    def _prepare_next(self, changes: Changes) -> None:
        live = self._live
        if live.new:
            users = [job.row.user for job in live.preparing.values()]
            waiting = [(job.id, job.row.user) for job in live.new.values()]
            for number in next_preparations(waiting, users, self._settings.max_parallel_prep):
                self._prepare(changes, live.new[number])

    def _prepare(self, changes: Changes, job: LiveJob) -> None:
        if job.state is State.NEW:
            changes.move(job, Event.PREPARE)
        self._live.new.pop(job.id, None)
        self._live.preparing[job.id] = job

        def go() -> None:
            job.preparing = asyncio.ensure_future(self._deeds.prepare(job))

        changes.after.append(go)

    def _place(self, changes: Changes, start: Start) -> None:
        self._live.queue.remove(start.waiting.job, start.waiting.task)
        job = self._live.jobs[start.waiting.job]
        id = AttemptId(job.id, 0, job.attempt_number)
        processes = [
            LiveProcess(ProcessId(id, index), placed) for index, placed in enumerate(start.placement.processes)
        ]
        attempt = job.attempt = LiveAttempt(id, start.placement, processes)
        cores = [node.core() for node in self._live.nodes.values()]
        changes.move(job, Event.PLACE, allocation=summary(start.placement, cores))
        changes.write(job.id, attempts.begin, id, start.placement, changes.now)
        self.start(changes, job, attempt)

    def start(self, changes: Changes, job: LiveJob, attempt: LiveAttempt) -> None:
        def go() -> None:
            attempt.starting = asyncio.ensure_future(self._deeds.start(job, attempt))

        changes.after.append(go)

    def _now_running(self, changes: Changes, job: LiveJob, attempt: LiveAttempt) -> None:
        changes.move(job, Event.STARTED)
        for process in attempt.processes:
            if process.ended is None:
                changes.write(job.id, attempts.process_running, process.id)

    def end(self, changes: Changes, job: LiveJob, reason: str) -> None:
        before = job.state
        after = lifecycle.follow(before, Event.STOP)
        changes.move(job, Event.STOP, reason, Outcome.STOPPED)
        job.wished = Outcome.STOPPED
        if after is State.DONE:
            if job.preparing is not None:
                job.preparing.cancel()
            self._forget(job)
        elif before is State.PREPARING:
            self._cancel_preparation(changes, job)
        elif before is State.WAITING:
            self._live.queue.remove(job.id, 0)
            self._finish(changes, job)
        elif job.attempt is not None:
            self.stop_attempt(changes, job.attempt, Cause.STOPPED, reason)

    def _cancel_preparation(self, changes: Changes, job: LiveJob) -> None:
        preparing = job.preparing
        if preparing is None:
            changes.move(job, Event.ENDED)
            return self._finish(changes, job)

        async def wait_for_its_end() -> None:
            preparing.cancel()
            await asyncio.wait([preparing])
            self._tell("prepared", job.id, job.attempt_number, "")

        changes.acts.append(wait_for_its_end())
        return None

    def stop_attempt(self, changes: Changes, attempt: LiveAttempt, cause: Cause, note: str) -> None:
        async def stop() -> None:
            if attempt.starting is not None and not attempt.gone:
                attempt.starting.cancel()
                await asyncio.wait([attempt.starting])
                attempt.starting = None
            await self._deeds.stop(attempt, cause, note)

        changes.acts.append(stop())

    def _maybe_over(self, changes: Changes, job: LiveJob, attempt: LiveAttempt) -> None:
        ends = [process.ended for process in attempt.processes]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            return self._over(changes, job, attempt, known)
        if known and lifecycle.attempt_over(ends, job.row.until) and not attempt.ending:
            attempt.ending = True
            first = next(index for index, end in enumerate(ends) if end is not None)
            self.stop_attempt(changes, attempt, Cause.STOPPED, f"worker {first} ended")
        return None

    def _over(self, changes: Changes, job: LiveJob, attempt: LiveAttempt, ends: list[Ended]) -> None:
        outcome, reason = lifecycle.outcome_of(ends, job.row.until, job.wished)
        reason = reason or (job.reason if job.wished is not None else "")
        self._release(job, attempt)
        for index, end in enumerate(ends):
            if end.cause is Cause.EXIT:
                text = f"Worker {index} requested stop. Stopping pit..."
                changes.after.append(lambda text=text: self._books.say(job.id, "daemon", text))  # type: ignore[misc]
        changes.write(job.id, attempts.end, attempt.id, outcome, reason, changes.now)
        mean = max(1, attempt.samples)
        changes.move(
            job, Event.ENDED, reason, outcome, util_comp=attempt.compute / mean, util_mem=attempt.memory / mean
        )
        # Nobody need wait for a node to forget: what is left there is cleaned whenever the node is met again.
        changes.acts.append(self._deeds.clean(attempt))
        self._after_cleaning(changes, job)

    def _release(self, job: LiveJob, attempt: LiveAttempt) -> None:
        self._live.free.give(attempt.placement)
        self._replan = True

    def _finish(self, changes: Changes, job: LiveJob) -> None:
        """From CLEANING to DONE."""
        src_until = changes.now + dt.timedelta(seconds=self._settings.keep_src_s)
        changes.move(job, Event.CLEANED, job.reason, src_until=src_until)
        changes.after.append(lambda: self._say_finished(job, src_until))
        self._forget(job)

    def _forget(self, job: LiveJob) -> None:
        for where in (self._live.jobs, self._live.new, self._live.preparing):
            where.pop(job.id, None)

    def _say_ended(self, id: ProcessId, ended: Ended) -> None:
        book = self._books.open(id.attempt.job)
        book.end_of(id, ended.at)
        worker = id.process
        text = (
            f"Worker {worker} ended with exit code {ended.code}" if ended.code is not None else f"Worker {worker} ended"
        )
        if ended.note:
            text += f" ({ended.note})"
        book.say(f"worker {worker}", text, ended.at)

    def _say_finished(self, job: LiveJob, src_until: dt.datetime) -> None:
        source = self._settings.root / "pits" / str(job.id) / "src"
        try:
            empty = not any(source.iterdir())
        except OSError:
            empty = True
        if job.outcome is not Outcome.SUCCEEDED and job.reason:
            self._books.say(job.id, "daemon", f"Job {job.outcome or ''}: {job.reason}")
        if not empty:
            self._books.say(job.id, "clean", f"src/ is kept until {src_until:%Y-%m-%d %H:%M} UTC")
