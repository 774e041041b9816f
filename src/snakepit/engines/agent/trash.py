"""Removing what processes left on the node's disk, however large, and whatever modes they gave it."""

import os
import shutil
import uuid
from typing import Any

from snakepit.engines.agent.aside import fork_aside
from snakepit.engines.agent.refusal import rejected


def throw_away(top: str, directory: str) -> None:
    """A large /tmp takes its time to remove, so that is left to a child; a small one goes at once."""
    aside = os.path.join(top, "trash", os.path.basename(directory) + "-" + uuid.uuid4().hex[:8])
    try:
        os.rename(directory, aside)
        small = not os.listdir(os.path.join(aside, "tmp"))
    except OSError:
        return
    if small:
        empty(aside)
    else:
        fork_aside(lambda: empty(aside))


def forget_home(top: str, user: str) -> None:
    """The home of a user who is no more. One that still runs there writes into the trash from now on."""
    if not user or "/" in user or user in (".", ".."):
        raise rejected("not a user id: {!r}".format(user))
    aside = os.path.join(top, "trash", "home-" + uuid.uuid4().hex[:8])
    try:
        os.rename(os.path.join(top, "homes", user), aside)
    except OSError:
        return  # never had one
    fork_aside(lambda: empty(aside))


def take_out(top: str) -> None:
    """What an agent before us did not come to."""
    leftovers = [os.path.join(top, "trash", name) for name in os.listdir(os.path.join(top, "trash"))]
    if leftovers:
        fork_aside(lambda: _empty_all(leftovers))


def _empty_all(directories: Any) -> None:
    for directory in directories:
        empty(directory)


def empty(directory: str) -> None:
    """Removes a tree, also directories that its owner closed to himself."""
    for here, below, _ in os.walk(directory):
        for name in below:
            path = os.path.join(here, name)
            if not os.path.islink(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                try:
                    os.chmod(path, 0o700)
                except OSError:
                    continue
    shutil.rmtree(directory, ignore_errors=True)
