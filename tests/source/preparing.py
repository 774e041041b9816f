"""Preparing jobs in tests: a data root, and a call that gives the lines that were said."""

import asyncio
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from snakepit.source.layout import pit_dir
from snakepit.source.provision import Work, provision

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@dataclass(frozen=True, slots=True)
class Head:
    root: Path
    confined: bool = True

    def work(self, job: int = 1, source: str = "script", user: str = "anna", **more: object) -> Work:
        plain = Work(self.root, job, user, source, confined=self.confined, allow_file=True, time_limit_s=120)
        return replace(plain, **more)  # type: ignore[arg-type]

    def prepare(self, job: int = 1, source: str = "script", user: str = "anna", **more: object) -> list[str]:
        said: list[str] = []
        asyncio.run(provision(self.work(job, source, user, **more), said.append))
        assert not list((self.root / "pits").glob(".prep-*"))
        return said

    def pit(self, job: int = 1) -> Path:
        return pit_dir(self.root, job)

    def src(self, job: int = 1) -> Path:
        return self.pit(job) / "src"


def processes_naming(text: str) -> list[str]:
    """Command lines and working directories of living processes that contain `text`. One without a command line has
    let go of its files and is about to be gone."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            place = str((process / "cwd").readlink())
        except OSError:
            continue
        if line and (text in line or text in place):
            found.append(f"{process.name}: {line} in {place}")
    return found
