"""The one writer. All writes that wait at a moment share one transaction and one durable commit (group commit).

Each runs in a savepoint: one that raises is undone alone, and its caller gets its exception. When the transaction
itself fails (disk full, PostgreSQL gone), all of it is undone, everyone in it is told so, the next one starts afresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from snakepit import errors
from snakepit.store.connect import for_the_caller, is_trouble, words_of

LARGEST_BATCH = 256  # bounds how long the first of a transaction waits for the last


@dataclass(frozen=True, slots=True)
class Write:
    """One change: what to call, and who waits (a future of `loop`, or of a thread where there is none)."""

    call: Callable[[Connection], Any]
    future: asyncio.Future[Any] | Future[Any]
    loop: asyncio.AbstractEventLoop | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    error: Exception


class Writer:
    """A thread with the only connection that writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._closed = False
        self._gate = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        # The gate keeps a write from slipping in behind the end mark, where nobody would answer it.
        with self._gate:
            if self._closed:
                raise errors.Unavailable("the database is closed")
            self._queue.put(write)

    def close(self) -> None:
        """Everything that was put is still written."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            if batch:
                _answer(batch, self._commit(batch))
        if self._connection is not None:
            self._connection.close()

    def _next_batch(self) -> tuple[list[Write], bool]:
        batch: list[Write] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == LARGEST_BATCH:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[Write]) -> list[Any]:
        try:
            connection, transaction = self._begin()
            if len(batch) == 1:
                return [_alone(connection, transaction, batch[0])]
            with transaction:
                return [_among_others(connection, write) for write in batch]
        except Exception as error:
            self._drop()
            return [Failed(_trouble(error)) for _ in batch]

    def _begin(self) -> tuple[Connection, RootTransaction]:
        """PostgreSQL may have been restarted since the last time; that is noticed before anything is done."""
        if self._connection is not None and self._engine.dialect.name == "postgresql":
            try:
                transaction = self._connection.begin()
                self._connection.exec_driver_sql("SELECT 1")
                return self._connection, transaction
            except DBAPIError:
                self._drop()
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection, self._connection.begin()

    def _drop(self) -> None:
        """The next transaction gets a new connection: a lost one is never worth mending."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.invalidate()
            with contextlib.suppress(Exception):
                connection.close()
        self._engine.dispose()


def _alone(connection: Connection, transaction: RootTransaction, write: Write) -> Any:
    """A single write needs no savepoint: its transaction is undone as a whole."""
    try:
        value = write.call(connection)
    except Exception as error:
        if is_trouble(error):
            raise
        transaction.rollback()
        return Failed(for_the_caller(error))
    transaction.commit()
    return value


def _among_others(connection: Connection, write: Write) -> Any:
    # Straight to the driver: SQLAlchemy would spend more on these words than the database does.
    say = connection.connection.driver_connection.execute  # type: ignore[union-attr]
    say("SAVEPOINT one")
    try:
        value = write.call(connection)
    except Exception as error:
        if is_trouble(error):
            raise
        say("ROLLBACK TO SAVEPOINT one")
        say("RELEASE SAVEPOINT one")
        return Failed(for_the_caller(error))
    say("RELEASE SAVEPOINT one")
    return value


def _trouble(error: Exception) -> errors.Unavailable:
    told = errors.Unavailable(f"the database cannot be written at the moment: {words_of(error)}")
    told.__cause__ = error
    return told


def _answer(batch: list[Write], outcomes: list[Any]) -> None:
    """Waking a loop costs a system call, so each is woken once for all its writes."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any] | Future[Any], Any]]] = defaultdict(list)
    for write, outcome in zip(batch, outcomes, strict=True):
        if write.loop is None:
            _settle([(write.future, outcome)])
        else:
            by_loop[write.loop].append((write.future, outcome))
    for loop, settled in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: list[tuple[asyncio.Future[Any] | Future[Any], Any]]) -> None:
    for future, outcome in settled:
        if future.done():  # its caller stopped waiting; what was written stays written
            continue
        if isinstance(outcome, Failed):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
