"""The log of every job: a byte-for-byte copy per process, and the merged, stamped file people read.

A copy's length is the offset to go on from after a crash. `merged.state` says how far each copy went into the
merged file and how long that was; what a kill cut off between the writes is taken back and merged again. Followers
see only what is confirmed there, hence every line once. Times are UTC.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from snakepit.core.job import ProcessId
from snakepit.engines.base import Output

log = logging.getLogger(__name__)
CHUNK_BYTES = 256 * 1024
PAGE_BYTES = 4096
LONGEST_LINE_BYTES = 4 * 1024 * 1024
DISK_TROUBLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
OTHER_TRIES = 10
DISORDER_S = 5.0
ATTEMPTS = 2  # the second opens the way again, where a job shut it
_PIECES = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")


class LogBook:
    """The log of one live job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._merged = directory / "pit.log"
        self.size = 0
        self._merged_to: dict[str, int] = {}
        self._pending: dict[str, bytes] = {}
        self._dropped: set[str] = set()
        self._broken = False  # a write failed half-way (disk full): look at the files again before the next
        self._latest = 0.0
        self.torn = False  # some output will never come: what follows it is kept all the same
        self.changed = asyncio.Event()
        self.finished = False
        try:
            self._open_up()
            self._recover()
        except OSError:  # a full disk: whoever writes next tries again
            self._broken = True

    def say(self, source: str, text: str, at: float | None = None) -> None:
        """One or more lines of our own. A full disk costs the line, not the job."""
        self.say_all([(source, text)], at)

    def say_all(self, words: Sequence[tuple[str, str]], at: float | None = None) -> None:
        """Several, each with its source, in one go."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(OSError):
                with self._writing():
                    for source, text in words:
                        self._append(source, [line.encode(errors="replace") for line in text.splitlines() or [""]], at)
                return

    def length(self, process: ProcessId) -> int:
        """How many bytes of a process's output are kept."""
        try:
            return self._copy(process).stat().st_size
        except (FileNotFoundError, PermissionError):
            return 0

    def output(self, process: ProcessId, offset: int, data: bytes, at: float, dropped_bytes: int = 0) -> int:
        """Keep bytes that begin at `offset`; what is there already is skipped. Gives the new length.

        Raises OSError when the disk is full; the same call can be made again later.
        """
        with self._writing():
            length = self.length(process)
            if offset > length and self.torn:
                length = self._skip(process, offset, at)
            fresh = data[max(0, length - offset) :] if offset <= length else b""
            if fresh:
                _append_bytes(self._copy(process), fresh)
                self._merge(process, fresh, at, last=False)
            if dropped_bytes and str(process) not in self._dropped:
                self._dropped.add(str(process))
                self._flush(process, at)
                self._append(_worker(process), [b"Log limit reached: further output is thrown away"], at)
        return length + len(fresh)

    def end_of(self, process: ProcessId, at: float | None = None) -> None:
        """The process ended: its last line may lack an end."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(OSError):
                with self._writing():
                    self._flush(process, at or time.time())
                return

    def finish(self) -> None:
        """The job is over: let followers go."""
        self.finished = True
        self._wake()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self._broken:
            self._open_up()
            self._recover()
        self._broken = True
        yield
        self._confirm()
        self._broken = False

    def _open_up(self) -> None:
        """Makes the way to our files, or opens it again: a job can shut its own directory, which ours lies in."""
        for place in (self._directory.parent, self._directory):
            place.mkdir(parents=True, exist_ok=True)
            mode = place.lstat().st_mode
            if not stat.S_ISDIR(mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(place))
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                place.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)

    def _merge(self, process: ProcessId, data: bytes, at: float, last: bool) -> None:
        """Give every complete line of what is pending and new to the merged file; keep the rest pending."""
        key = str(process)
        text = self._pending.get(key, b"") + data
        # A final \r may be half of \r\n: it waits for what follows.
        end = len(text) if last else max(text.rfind(b"\n"), text.rfind(b"\r", 0, max(0, len(text) - 1))) + 1
        if not last and end == 0 and len(text) > LONGEST_LINE_BYTES:
            end = LONGEST_LINE_BYTES
        whole, rest = text[:end], text[end:]
        if lines := _lines(whole) if whole else []:
            self._append(_worker(process), lines, at)
        if whole:
            self._merged_to[key] = self._merged_to.get(key, 0) + len(whole)
        self._pending[key] = rest

    def _skip(self, process: ProcessId, offset: int, at: float) -> int:
        """Goes on behind a gap: offsets stay those of the process, so the copy gets a hole."""
        self._flush(process, at)
        _append_bytes(self._copy(process), b"")
        os.truncate(self._copy(process), offset)
        self._merged_to[str(process)] = offset
        self._append(_worker(process), [b"Output is missing here"], at)
        return offset

    def _flush(self, process: ProcessId, at: float) -> None:
        if self._pending.get(str(process)):
            self._merge(process, b"", at, last=True)

    def _append(self, source: str, lines: list[bytes], at: float | None) -> None:
        at = at or time.time()
        # Output is stamped when it was read, an end when it was: the two may come a little out of their order.
        self._latest = self._latest if at < self._latest < at + DISORDER_S else at
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._latest))
        prefix = f"[{stamp}] [{source}] ".encode()
        text = prefix + (b"\n" + prefix).join(lines) + b"\n"
        _append_bytes(self._merged, text)
        self.size += len(text)

    def _confirm(self) -> None:
        state = json.dumps({"size": self.size, "merged": self._merged_to, "dropped": sorted(self._dropped)}).encode()
        path = self._directory / "merged.state"
        if len(state) < PAGE_BYTES:
            # One write within a page: a kill leaves the old or the new.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                os.pwrite(descriptor, state.ljust(PAGE_BYTES), 0)
            finally:
                os.close(descriptor)
        else:
            fresh = path.with_suffix(".new")
            fresh.write_bytes(state)
            fresh.replace(path)
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def _recover(self) -> None:
        try:
            state = json.loads((self._directory / "merged.state").read_bytes())
        except (FileNotFoundError, ValueError):
            state = {"size": 0, "merged": {}}
        self.size, self._merged_to, self._pending = state["size"], dict(state["merged"]), {}
        self._dropped = set(state.get("dropped", ()))
        if self._merged.exists():
            os.truncate(self._merged, self.size)
        for copy in sorted(self._directory.glob("worker-*.log")):
            process = ProcessId.parse(copy.name[len("worker-") : -len(".log")])
            with copy.open("rb") as file:
                file.seek(self._merged_to.get(str(process), 0))
                while data := file.read(CHUNK_BYTES):
                    self._merge(process, data, time.time(), last=False)
        if self.size or self._merged_to:
            self._confirm()

    def _copy(self, process: ProcessId) -> Path:
        return self._directory / f"worker-{process}.log"


async def keep_output(book: LogBook, event: Output) -> int:
    """The output of a process kept, as soon as it can be; how much of it there is now."""
    job, tries = event.id.attempt.job, 0
    while True:
        try:
            return book.output(event.id, event.offset, event.data, event.at, event.dropped_bytes)
        except OSError as error:
            tries += 1
            if error.errno in DISK_TROUBLE:
                # Not acknowledged, so the node keeps it; this holds up only this node's log.
                log.error("the log of job %d cannot be written: %s", job, error)
                await asyncio.sleep(1)
                continue
            book.torn = True
            if tries > OTHER_TRIES:  # the job's own doing (it shuts its directory): others must not wait for it
                log.error("output of job %d is thrown away: %s", job, error)
                return event.offset + len(event.data)


class LogBooks:
    """The logs of all jobs; a book is open from a living job's first word to its end."""

    def __init__(self, root: Path) -> None:
        self._pits = root / "pits"
        self._open: dict[int, LogBook] = {}
        self._begun: set[int] = set()

    def begin(self, job: int) -> None:
        """The job lives: followers wait for what it will say. Its files are made with its first word."""
        self._begun.add(job)

    def open(self, job: int) -> LogBook:
        book = self._open.get(job)
        if book is None:
            book = self._open[job] = LogBook(self._directory(job))
        return book

    def say(self, job: int, source: str, text: str) -> None:
        self.open(job).say(source, text)

    def finish(self, job: int) -> None:
        self._begun.discard(job)
        if (book := self._open.pop(job, None)) is not None:
            book.finish()

    def sync(self, job: int) -> None:
        """Put a log on the disk, before the node forgets its own copy. Blocking: call it in a thread."""
        for path in self._directory(job).iterdir():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, job: int, offset: int = 0, limit: int = CHUNK_BYTES) -> bytes:
        """Confirmed bytes of the merged log."""
        book = self._open.get(job)
        if book is not None:
            limit = min(limit, max(0, book.size - offset))
        return _read_at(self._directory(job) / "pit.log", offset, limit)

    def size(self, job: int) -> int:
        book = self._open.get(job)
        if book is not None:
            return book.size
        try:
            return (self._directory(job) / "pit.log").stat().st_size
        except (FileNotFoundError, PermissionError):
            return 0

    def tail_offset(self, job: int, lines: int) -> int:
        """Where the last `lines` lines begin."""
        position, found = self.size(job), 0
        while position > 0 and lines > 0:
            start = max(0, position - CHUNK_BYTES)
            block = self.read(job, start, position - start)
            for index in range(len(block) - 1, -1, -1):
                if block[index] == 10:
                    found += 1
                    if found > lines:
                        return start + index + 1
            position = start
        return 0 if lines > 0 else self.size(job)

    async def follow(self, job: int, offset: int = 0) -> AsyncIterator[bytes]:
        """The merged log from `offset`, until the job is over; each follower at its own pace."""
        book = self.open(job) if job in self._begun else None
        while True:
            waiting = book.changed if book is not None else None
            finished = book is None or book.finished
            data = await asyncio.to_thread(self.read, job, offset)
            if data:
                offset += len(data)
                yield data
            elif finished:
                return
            elif waiting is not None:
                await waiting.wait()

    def _directory(self, job: int) -> Path:
        return self._pits / str(job) / "log"


def _worker(process: ProcessId) -> str:
    return f"worker {process.process}"


def _lines(text: bytes) -> list[bytes]:
    """Lines end with \\n, \\r\\n or the lone \\r of a progress bar (an empty piece before that is nothing)."""
    if b"\r" in text:
        pieces = _PIECES.findall(text)
        return [line for line, end in pieces if line or end in (b"\n", b"\r\n")]
    return (text[:-1] if text.endswith(b"\n") else text).split(b"\n")


def _append_bytes(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _read_at(path: Path, offset: int, limit: int) -> bytes:
    if limit <= 0:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return b""
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
