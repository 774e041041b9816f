"""This very `pit`, as a command that other programs (sshfs, rsync) start: the same program, files and account."""

from __future__ import annotations

import os
import sys

from snakepit.client import files
from snakepit.client.client import Client


def pipe(*words: str) -> list[str]:
    """`pit pipe …`; it looks for its files where we are, wherever it is started."""
    return [*_program(), "pipe", "-C", os.getcwd(), *words]


def environment(client: Client) -> dict[str, str]:
    """With the token, where it is in no file that `pit pipe` could find."""
    account = files.load_account()
    if account is not None and account.token == client.token:
        return dict(os.environ)
    return {**os.environ, "PIT_TOKEN": client.token, "PIT_USER": client.user}


def _program() -> list[str]:
    path = os.path.abspath(sys.argv[0])
    if os.path.basename(path) == "pit" and os.access(path, os.X_OK):
        return [path]
    return [sys.executable, "-m", "snakepit.pit.main"]
