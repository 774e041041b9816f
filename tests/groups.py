"""Control groups that a test's cluster was given: nobody else removes them, and they are known by the cluster's id."""

import contextlib
import os
from pathlib import Path

from snakepit.engines.agent.limits import base_name

TOP = Path("/sys/fs/cgroup")


def groups_of(cluster: str) -> list[Path]:
    return [tree / base_name(cluster) for tree in (TOP, *TOP.glob("*/")) if (tree / base_name(cluster)).is_dir()]


def remove_groups(cluster: str) -> None:
    """Those in which nothing lives any more."""
    for base in groups_of(cluster):
        for directory, _, _ in os.walk(base, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
