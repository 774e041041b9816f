"""What a mount says, and that it goes on answering, when its connections fail again and again."""

import contextlib
import os
import subprocess
from pathlib import Path

from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

MORE_THAN_A_PIPE_HOLDS = 1 << 18


def test_a_mount_tells_why_it_fails_once_and_never_hangs_on_its_own_words(serving: Serving, tmp_path: Path) -> None:
    admin = Pit.of(serving, tmp_path / "admin").registered("tilman")
    member = Pit.of(serving, tmp_path / "member").registered("anna")
    admin.ok("add", "group:students", "title=Students")
    admin.ok("add-group", "user:anna", "students")
    mountpoint = member.project / "here"
    mountpoint.mkdir()
    said = tmp_path / "said"
    with (
        said.open("wb") as words,
        subprocess.Popen(
            [PROGRAMS / "pit", "mount", "group:students", "here"],
            cwd=member.project,
            env=member.environment(),
            stderr=words,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"mounted ")
            admin.ok("remove-group", "user:anna", "students")
            for _ in range(3):
                assert subprocess.run(["ls", mountpoint], stderr=subprocess.DEVNULL, timeout=30).returncode != 0
            wait_until(lambda: "here: Only members of group" in said.read_text())
            _write_to_stderr_of(_child_of(process.pid), MORE_THAN_A_PIPE_HOLDS)
            assert said.read_text().count("Only members") == 1
        finally:
            process.terminate()
            process.wait(timeout=30)


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _write_to_stderr_of(pid: int, size: int) -> None:
    """As sshfs does, some hundred bytes for each attempt to connect."""
    stderr = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
    left = size

    def written() -> bool:
        nonlocal left
        with contextlib.suppress(BlockingIOError):
            left -= os.write(stderr, b"read: Connection reset by peer\n" * 1000)
        return left <= 0

    try:
        wait_until(written, message="everything was read from the stderr of sshfs")
    finally:
        os.close(stderr)
