"""The Store: open, write, read, close. What `write` returned is on disk; what `read` sees was committed.

Functions of this room take a Connection first; `write` runs them on the one writer thread (see writer), `read` on a
small pool of readers that neither wait for the writer nor hold it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from snakepit import errors
from snakepit.store import connect, migrate
from snakepit.store.writer import Write, Writer

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """One database, open. Safe to use from any thread and any event loop."""

    def __init__(self, url: URL, writing: Engine) -> None:
        self._url = url
        self._writing = writing
        self._closed = False
        self._reading = connect.reading(url)
        self._writer = Writer(writing)
        self._readers = ThreadPoolExecutor(connect.READERS, thread_name_prefix="store-reader")

    @classmethod
    def open(cls, url: str) -> Self:
        """Makes the database where there is none, and brings an older one up to date."""
        parsed = connect.parse_url(url)
        connect.make_file(parsed)
        writing = connect.writing(parsed)
        try:
            migrate.to_head(writing)
        except DBAPIError as error:
            writing.dispose()
            shown = parsed.render_as_string(hide_password=True)
            raise errors.Unavailable(f"cannot open the database {shown}: {connect.words_of(error)}") from error
        except BaseException:
            writing.dispose()
            raise
        return cls(parsed, writing)

    async def write(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`fn(connection, …)` in a transaction; returns after the durable commit.

        A caller that stops waiting does not undo the write.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._writer.put(Write(_bound(fn, args, kwargs), future, loop))
        return await future

    def write_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for code without an event loop."""
        future: Future[T] = Future()
        self._writer.put(Write(_bound(fn, args, kwargs), future))
        return future.result()

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`fn(connection, …)` on one snapshot of the database."""
        self._refuse_when_closed()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, _bound(fn, args, kwargs))

    def read_now(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for code without an event loop."""
        self._refuse_when_closed()
        return self._read(_bound(fn, args, kwargs))

    def close(self) -> None:
        """Writes that were asked for are still done; then every connection is closed."""
        self._closed = True
        self._writer.close()
        self._readers.shutdown(wait=True)
        self._reading.dispose()
        self._writing.dispose()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise errors.Unavailable("the database is closed")

    def _read(self, call: Callable[[Connection], T]) -> T:
        try:
            try:
                return self._read_once(call)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # PostgreSQL was restarted: the pool has thrown its dead connections away, a new one may do.
                return self._read_once(call)
        except (DBAPIError, OverflowError) as error:
            if connect.is_trouble(error):
                words = connect.words_of(error)
                raise errors.Unavailable(f"the database cannot be read at the moment: {words}") from error
            raise connect.for_the_caller(error) from error

    def _read_once(self, call: Callable[[Connection], T]) -> T:
        with self._reading.connect() as connection:
            return call(connection)


def _bound(
    fn: Callable[Concatenate[Connection, P], T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[Connection], T]:
    return lambda connection: fn(connection, *args, **kwargs)
