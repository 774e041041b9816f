"""The holder: a small process forked from the agent that keeps one payload and outlives the agent.

It waits at a gate until the agent has written down its pid, then starts the payload (bubblewrap, or the bare program),
copies its output from a pipe to a file, and leaves the exit code in the status file. A file handed to the payload
would be emptied by every `echo … > /dev/stderr`; a pipe read by the agent would break with it. As a subreaper the
holder inherits whatever the payload leaves behind, and ends it before it says how the payload ended.
"""

import ctypes
import errno
import json
import os
import select
import signal
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from snakepit.engines.agent import procs
from snakepit.engines.agent.aside import close_all_but

STATUS_FD = 3  # fixed, so that bubblewrap's argv can name it before the fork
GATE_FD = 5
FULL_DISK_S = 1.0
CHUNK = 256 << 10
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)  # found once, in the agent: it would cost each holder a millisecond
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)


class Payload(NamedTuple):
    """What is to be run and where its traces go."""

    argv: List[str]
    environment: Dict[str, str]
    cwd: str
    sandboxed: bool
    out: str
    dropped: str
    status: str
    limit_bytes: int
    cgroups: List[str]  # files to write 0 to, to join


def fork(payload: Payload) -> Tuple[int, int]:
    """A holder standing at its gate, and the gate: one byte lets it run, closing it sends it home."""
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _hold(payload, gate)
        finally:
            os._exit(70)
    os.close(gate)
    return pid, opener


def _hold(payload: Payload, gate: int) -> None:
    os.setsid()
    gate = _close_all_but(gate, payload.status)
    signal.set_wakeup_fd(-1)
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    if not _may_pass(gate):
        _say({"unstarted": True})
        os._exit(0)
    os.close(gate)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    waker, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm)
    output, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become(payload, writer)
    os.close(writer)
    ended = _pump(payload, child, output, waker)
    _say(ended)
    os._exit(0)


def _close_all_but(gate: int, status: str) -> int:
    """Drops everything of the agent's (its lock above all), and puts the status file at its fixed number."""
    os.dup2(gate, GATE_FD)
    close_all_but((2, GATE_FD))
    null = os.open(os.devnull, os.O_RDWR)  # 0, as the lowest free number
    os.set_inheritable(null, True)
    os.dup2(null, 1)
    file = os.open(status, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if file != STATUS_FD:
        os.dup2(file, STATUS_FD)
        os.close(file)
    return GATE_FD


def _may_pass(gate: int) -> bool:
    while True:
        try:
            return os.read(gate, 1) != b""
        except InterruptedError:
            continue


def _say(word: Dict[str, Any]) -> None:
    while True:
        try:
            os.write(STATUS_FD, b"\n" + json.dumps(word).encode() + b"\n")
            return
        except OSError:
            time.sleep(FULL_DISK_S)  # the disk is full: the exit code is worth waiting for


def _become(payload: Payload, writer: int) -> None:
    """In the child: becomes the payload, or says on its log why it cannot."""
    try:
        os.setsid()
        for number in DEAF_TO + (signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        for file in payload.cgroups:
            with open(file, "w") as procs_file:
                procs_file.write("0")
        os.set_inheritable(STATUS_FD, payload.sandboxed)  # the payload itself never sees it: bubblewrap closes it
        os.chdir(payload.cwd)
        os.execvpe(payload.argv[0], payload.argv, payload.environment)
    except OSError as error:
        os.write(2, "{}: {}\n".format(error.filename or payload.argv[0], error.strerror).encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)


def _pump(payload: Payload, child: int, output: int, waker: int) -> Dict[str, Any]:
    """Copies output to the file until the payload and all it started are gone; how it ended."""
    log = _Log(payload)
    status: Optional[int] = None
    open_ends: List[int] = [output, waker]
    while status is None or output in open_ends:
        ready = select.select(open_ends, [], [], 1.0 if status is not None else None)[0]
        if output in ready:
            data = os.read(output, CHUNK)
            log.write(data)
            if not data:
                open_ends.remove(output)
        if waker in ready:
            os.read(waker, 4096)
            status, alone = _reap(child, status)
            if status is not None and not alone:
                _end_strays(child)
        elif not ready:
            break  # all children are gone, yet somebody holds the pipe: he got it by other ways and is no part of this
    assert status is not None
    return {"code": _code(status), "killed": os.WIFSIGNALED(status), "at": time.time()}


def _reap(child: int, status: Optional[int]) -> Tuple[Optional[int], bool]:
    """The payload's wait status, once it ended, and whether no child is left."""
    while True:
        try:
            pid, word = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, True
        if pid == 0:
            return status, False
        if pid == child:
            status = word


def _end_strays(child: int) -> None:
    """Ends what the payload left behind; those that are born meanwhile come by again as orphans."""
    for _ in range(1000):
        found = procs.below(os.getpid(), procs.everyone())
        procs.send(found, signal.SIGKILL)
        if _reap(child, 0)[1]:
            return
        select.select([], [], [], 0.002)


def _code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


class _Log:
    """The output file up to its limit; what comes after, or finds no room on the disk, is only counted."""

    def __init__(self, payload: Payload) -> None:
        self.file = os.open(payload.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.counter = payload.dropped
        self.room = max(0, payload.limit_bytes - os.fstat(self.file).st_size)
        self.dropped = 0

    def write(self, data: bytes) -> None:
        kept = data[: self.room]
        while kept:
            try:
                written = os.write(self.file, kept)
            except OSError:
                break
            kept, self.room = kept[written:], self.room - written
            data = data[written:]
        if data:
            self._drop(len(data))

    def _drop(self, count: int) -> None:
        self.dropped += count
        try:
            file = os.open(self.counter, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            return
        os.write(file, b"%020d" % self.dropped)
        os.close(file)


def read_status(text: str) -> Dict[str, Any]:
    """The status file's lines (bubblewrap's and the holder's) as one word; unreadable ones are passed over."""
    found: Dict[str, Any] = {}
    for line in text.splitlines():
        try:
            word = json.loads(line)
        except ValueError:
            continue
        if isinstance(word, dict):
            found.update(word)
    return found
