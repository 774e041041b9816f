"""An archive on its way to the user's home at the head, in pieces: what arrived stays there, so it can go on later."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from snakepit.client.client import Client
from snakepit.client.follow import patient
from snakepit.errors import SnakepitError, TooLarge

PIECE = 16 * 1024 * 1024  # at once; proxies limit bodies, some to 1 MB
SMALLEST = 256 * 1024
BLOCK = 256 * 1024
TRIES = 20


def upload(client: Client, local: str, remote: str, progress: Callable[[int, int, float], None]) -> None:
    """Sends what is missing of `local`; `progress` hears of bytes there, bytes in all, and bytes a second."""
    total = os.stat(local).st_size
    there = _begin(client, remote, total)
    started, first = time.monotonic(), there
    stuck, piece = 0, PIECE
    while there < total:
        before = there
        with open(local, "rb") as file:
            file.seek(there)
            length = min(piece, total - there)
            try:
                there = _piece(client, remote, there, _blocks(file.read, length), length)
            except TooLarge:  # a proxy on the way takes less at once
                if piece <= SMALLEST:
                    raise
                piece //= 4
                continue
        progress(there, total, (there - first) / max(0.001, time.monotonic() - started))
        stuck = stuck + 1 if there <= before else 0
        if stuck >= TRIES:
            raise SnakepitError(
                f"the upload does not get on ({there} of {total} bytes); run the same command again later"
            )


def _begin(client: Client, remote: str, total: int) -> int:
    there = client.file_size(remote)
    if there is None or there > total:
        client.create_file(remote)
        return 0
    return there


def _piece(client: Client, remote: str, offset: int, blocks: Iterator[bytes], length: int) -> int:
    """Sends one piece and gives what the head has now: a broken connection may have brought a part of it."""
    from snakepit.client.http import NoConnection

    try:
        client.append_file(remote, offset, blocks, length)
        return offset + length
    except NoConnection:
        return patient(lambda: client.file_size(remote)) or 0


def _blocks(read: Callable[[int], bytes], length: int) -> Iterator[bytes]:
    while length:
        block = read(min(BLOCK, length))
        if not block:
            raise SnakepitError("the archive became shorter while it was sent")
        length -= len(block)
        yield block
