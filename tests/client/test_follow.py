"""Following a log through all that can happen to a connection."""

import pytest

from snakepit import Client
from snakepit.client.http import NoConnection
from tests.client.services import chunked, ok, says, serving

RUNNING, DONE = ok(b'{"state": 4}'), ok(b'{"state": 7}')


def targets(heads: list[str]) -> list[str]:
    return [head.split(" ")[1] for head in heads]


def test_a_log_is_followed_to_the_jobs_end() -> None:
    with serving(says(chunked(b"one\n", b"two\n"), DONE, ok(b""))) as (url, seen):
        assert b"".join(Client(url).log(5)) == b"one\ntwo\n"
    assert targets(seen.heads) == ["/jobs/5/log?follow=1", "/jobs/5", "/jobs/5/log?follow=0&offset=8"]


def test_a_broken_log_goes_on_at_its_byte() -> None:
    with serving(
        says(chunked(b"one\ntw", end=False)),
        says(RUNNING, chunked(b"o\n", end=False)),
        says(RUNNING, chunked(b"three\n"), DONE, ok(b"last\n"), DONE, ok(b"")),
    ) as (url, seen):
        assert b"".join(Client(url).log(5)) == b"one\ntwo\nthree\nlast\n"
    assert [target for target in targets(seen.heads) if "offset" in target] == [
        "/jobs/5/log?follow=1&offset=6",
        "/jobs/5/log?follow=1&offset=8",
        "/jobs/5/log?follow=0&offset=14",
    ]


def test_a_service_that_ends_the_stream_in_good_order_is_not_believed_while_the_job_runs() -> None:
    with serving(says(chunked(b"one\n"), RUNNING, chunked(b"two\n"), DONE, ok(b""))) as (url, _):
        assert b"".join(Client(url).log(5)) == b"one\ntwo\n"


def test_a_tail_goes_on_where_the_service_said_it_began() -> None:
    tail = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Offset: 100\r\n\r\n4\r\ntwo\n\r\n"
    with serving(says(tail), says(RUNNING, chunked(b"three\n"), DONE, ok(b""))) as (url, seen):
        assert b"".join(Client(url).log(5, lines=1)) == b"two\nthree\n"
    assert targets(seen.heads)[2] == "/jobs/5/log?follow=1&offset=104"


def test_without_following_a_break_is_an_error() -> None:
    with serving(says(chunked(b"one", end=False))) as (url, _), pytest.raises(NoConnection):
        list(Client(url).log(5, follow=False))


def test_waiting_outlives_a_restart() -> None:
    stopping = b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"
    with serving(says(RUNNING, stopping), says(b""), says(DONE)) as (url, _):
        assert Client(url).wait(5) == {"state": 7}
