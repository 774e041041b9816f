"""The log of a job: every byte kept, every line told once, whatever is killed when."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.job import AttemptId, ProcessId
from snakepit.engines.base import Output
from snakepit.loop.logbook import LogBook, LogBooks, keep_output

WORKER = ProcessId(AttemptId(7), 0)
OTHER = ProcessId(AttemptId(7), 1)


def texts(directory: Path, source: str = "worker 0") -> list[bytes]:
    path = directory / "pit.log"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    head = re.compile(rb"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[" + source.encode() + rb"\] (.*)$", re.DOTALL)
    return [match[1] for line in lines if (match := head.match(line))]


def test_lines_look_as_in_the_seed(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.say("daemon", "Pit daemon started", at=1544806801.0)
    book.output(WORKER, 0, b"Model: GTX\n", at=1544806801.0)
    assert (tmp_path / "pit.log").read_text() == (
        "[2018-12-14 17:00:01] [daemon] Pit daemon started\n[2018-12-14 17:00:01] [worker 0] Model: GTX\n"
    )


def test_carriage_returns_of_progress_bars_make_lines(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.output(WORKER, 0, b"\r 10%\r 20%\r", at=1.0)
    book.output(WORKER, 11, b"\nnext\r\n\nlast", at=1.0)
    book.end_of(WORKER)
    assert texts(tmp_path) == [b" 10%", b" 20%", b"next", b"", b"last"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(alphabet="ab\r\n", max_size=8).map(str.encode), max_size=12), st.integers(0, 12))
def test_cuts_and_repeats_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], crash: int
) -> None:
    """Chunks may be cut anywhere and come twice, and the service may be started anew in between."""
    whole = b"".join(chunks)
    once, often = tmp_path_factory.mktemp("once"), tmp_path_factory.mktemp("often")
    plain = LogBook(once)
    plain.output(WORKER, 0, whole, 1.0)
    plain.end_of(WORKER, 1.0)
    book, offset = LogBook(often), 0
    for index, chunk in enumerate(chunks):
        assert book.output(WORKER, offset, chunk, 1.0) == offset + len(chunk)
        if index == crash:
            book = LogBook(often)
        book.output(WORKER, offset, chunk, 1.0)
        offset += len(chunk)
    book.end_of(WORKER, 1.0)
    assert book.length(WORKER) == len(whole)
    assert texts(often) == texts(once)


def test_what_a_kill_cut_off_is_merged_again(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.output(WORKER, 0, b"one\ntwo\n", 1.0)
    state = (tmp_path / "merged.state").read_bytes()
    book.output(WORKER, 8, b"three\nfo", 1.0)
    # Killed after the copy and half of the merged line were written, before they were confirmed.
    (tmp_path / "merged.state").write_bytes(state)
    with (tmp_path / "pit.log").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 3)
    again = LogBook(tmp_path)
    assert again.length(WORKER) == 16
    again.output(WORKER, 16, b"ur\n", 1.0)
    assert texts(tmp_path) == [b"one", b"two", b"three", b"four"]


def test_long_lines_and_raw_bytes_break_nothing(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    line = bytes(range(14, 256)) * 5000
    book.output(WORKER, 0, line, 1.0)
    book.output(WORKER, len(line), b"\nend\n", 1.0)
    assert texts(tmp_path) == [line, b"end"]


def test_the_size_cap_is_said_once(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.output(WORKER, 0, b"some", 1.0, dropped_bytes=10)
    LogBook(tmp_path).output(WORKER, 4, b"", 1.0, dropped_bytes=20)
    assert texts(tmp_path) == [b"some", b"Log limit reached: further output is thrown away"]


def test_a_disk_that_was_full_loses_nothing(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.output(WORKER, 0, b"one\n", 1.0)
    (tmp_path / "pit.log").rename(tmp_path / "aside")
    (tmp_path / "pit.log").mkdir()  # the copy can be written, the merged file cannot
    with pytest.raises(OSError, match="directory"):
        book.output(WORKER, 4, b"two\n", 1.0)
    (tmp_path / "pit.log").rmdir()
    (tmp_path / "aside").rename(tmp_path / "pit.log")
    assert book.output(WORKER, 4, b"two\nthree\n", 1.0) == 14
    assert texts(tmp_path) == [b"one", b"two", b"three"]


def test_a_follower_sees_every_line_once_and_ends_with_the_job(tmp_path: Path) -> None:
    async def scenario() -> bytes:
        books = LogBooks(tmp_path)
        books.begin(7)
        books.say(7, "daemon", "Pit daemon started")
        seen = bytearray()

        async def follow() -> None:
            async for data in books.follow(7):
                seen.extend(data)

        follower = asyncio.create_task(follow())
        for number in range(200):
            books.open(7).output(WORKER, books.open(7).length(WORKER), b"%d\n" % number, 1.0)
            if number % 7 == 0:
                await asyncio.sleep(0)
        books.finish(7)
        await asyncio.wait_for(follower, 10)
        return bytes(seen)

    assert asyncio.run(scenario()) == (tmp_path / "pits" / "7" / "log" / "pit.log").read_bytes()


@settings(deadline=None)
@given(st.integers(0, 30))
def test_the_last_lines_are_found(tmp_path_factory: pytest.TempPathFactory, lines: int) -> None:
    books = LogBooks(tmp_path_factory.mktemp("root"))
    for number in range(20):
        books.say(7, "daemon", str(number))
    tail = books.read(7, books.tail_offset(7, lines), 1 << 20).splitlines()
    assert [line.split()[-1] for line in tail] == [b"%d" % number for number in range(max(0, 20 - lines), 20)]


def test_output_goes_on_behind_a_gap_when_what_came_before_was_removed(tmp_path: Path) -> None:
    book = LogBook(tmp_path / "log")
    book.output(WORKER, 0, b"one\ntw", at=1.0)
    shutil.rmtree(tmp_path / "log")
    event = Output(WORKER, 6, b"o\nthree\n", 1.0)
    assert asyncio.run(keep_output(book, event)) == 14
    assert texts(tmp_path / "log") == [b"Output is missing here", b"o", b"three"]
    again = LogBook(tmp_path / "log")
    assert again.length(WORKER) == 14
    again.output(WORKER, 14, b"four\n", at=1.0)
    assert texts(tmp_path / "log")[-1] == b"four"


def test_output_that_cannot_be_kept_is_given_up_and_nobody_waits_for_it(tmp_path: Path) -> None:
    book = LogBook(tmp_path / "log")
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "log").write_text("in the way")
    assert asyncio.run(keep_output(book, Output(WORKER, 0, b"one\n", 1.0))) == 4
    (tmp_path / "log").unlink()
    assert asyncio.run(keep_output(book, Output(WORKER, 4, b"two\n", 1.0))) == 8
    assert texts(tmp_path / "log") == [b"Output is missing here", b"two"]


def test_times_do_not_run_backwards_within_a_log_but_follow_the_clock_when_it_is_set(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    for at in (100.2, 99.9, 101.0, 40.0):
        book.say("daemon", "x", at=at)
    assert re.findall(r":(\d\d:\d\d)\]", (tmp_path / "pit.log").read_text()) == ["01:40", "01:40", "01:41", "00:40"]
