"""The holder: a small process forked from the agent that keeps one payload and outlives the agent.

It stands ready before there is anything to run, with the child that will become the payload: two forks of a Python
program take longer than the rest of a start. At its gate it waits for the words that say what to run (bubblewrap, or
the bare program); when the gate closes without them, both go home. It makes the status file first, so that where there
is none, nothing ran. Then it copies the payload's output from a pipe to a file, and leaves the exit code in the status
file. A file handed to the payload would be emptied by every `echo … > /dev/stderr`; a pipe read by the agent would
break with it. As a subreaper the holder inherits whatever the payload leaves behind, and ends it before it says how the
payload ended.
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

STATUS_FD = 3  # fixed, so that bubblewrap's argv can name it
GATE_FD = 4
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


def fork() -> Tuple[int, int]:
    """A holder standing at its gate, and the gate: `open_gate` lets it run, closing it sends it home."""
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _stand(gate)
        finally:
            os._exit(70)
    os.close(gate)
    return pid, opener


def open_gate(opener: int, payload: Payload) -> None:
    """The holder runs `payload` once the gate is closed behind these words; half of them are none. One that was killed
    where it stood takes none: that it is gone, and that nothing ran, is for its agent to see, as at any other time."""
    try:
        _write_all(opener, json.dumps(payload._asdict()).encode())
    except BrokenPipeError:
        pass


def _stand(gate: int) -> None:
    os.setsid()
    os.dup2(gate, GATE_FD)
    close_all_but((2, GATE_FD))  # everything of the agent's, its lock above all
    null = os.open(os.devnull, os.O_RDWR)  # 0, as the lowest free number
    os.set_inheritable(null, True)
    os.dup2(null, 1)
    os.dup2(null, STATUS_FD)
    signal.set_wakeup_fd(-1)
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    waker, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(alarm)
    output, writer = os.pipe()
    inner, passer = os.pipe()
    child = os.fork()
    if child == 0:
        _stand_within(inner, passer, writer)
    os.close(writer)
    os.close(inner)
    _hold(child, passer, output, waker)


def _hold(child: int, passer: int, output: int, waker: int) -> None:
    words = _read_all(GATE_FD)
    os.close(GATE_FD)
    payload = _payload(words)
    if payload is None:
        os._exit(0)  # the child goes home as well: its gate closes with us
    log = _Log(payload)
    _open_status(payload)
    _write_all(passer, words)
    os.close(passer)
    ended = _pump(log, child, output, waker)
    log.finish()
    _say(ended)
    os._exit(0)


def _stand_within(inner: int, passer: int, writer: int) -> None:
    """In the child: ready to become the payload, or to say on its log why it cannot."""
    name = ""
    try:
        os.setsid()
        for descriptor in (GATE_FD, passer):
            os.close(descriptor)
        signal.set_wakeup_fd(-1)
        for number in DEAF_TO + (signal.SIGCHLD, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        payload = _payload(_read_all(inner))
        if payload is None:
            os._exit(0)
        name = payload.argv[0]
        _open_status(payload)
        for file in payload.cgroups:
            _join(file)
        os.set_inheritable(STATUS_FD, payload.sandboxed)  # the payload itself never sees it: bubblewrap closes it
        os.chdir(payload.cwd)
        os.execvpe(name, payload.argv, payload.environment)
    except OSError as error:
        os.write(2, "{}: {}\n".format(error.filename or name, error.strerror).encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)


def _payload(words: bytes) -> Optional[Payload]:
    """None where the agent ended before it had said all of it."""
    try:
        return Payload(**json.loads(words.decode()))
    except ValueError:
        return None


def _open_status(payload: Payload) -> None:
    file = os.open(payload.status, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, STATUS_FD, inheritable=False)
    os.close(file)


def _join(file: str) -> None:
    door = os.open(file, os.O_WRONLY)
    os.write(door, b"0")
    os.close(door)


def _read_all(descriptor: int) -> bytes:
    parts: List[bytes] = []
    while True:
        try:
            part = os.read(descriptor, CHUNK)
        except InterruptedError:
            continue
        if not part:
            return b"".join(parts)
        parts.append(part)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _say(word: Dict[str, Any]) -> None:
    while True:
        try:
            os.write(STATUS_FD, b"\n" + json.dumps(word).encode() + b"\n")
            return
        except OSError:
            time.sleep(FULL_DISK_S)  # the disk is full: the exit code is worth waiting for


def _pump(log: "_Log", child: int, output: int, waker: int) -> Dict[str, Any]:
    """Copies output to the file until the payload and all it started are gone; how it ended."""
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
        self.counted = True

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
        self.counted = self._count()

    def _count(self) -> bool:
        try:
            file = os.open(self.counter, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError:
            return False
        try:
            os.write(file, b"%020d" % self.dropped)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def finish(self) -> None:
        """What was dropped is told, however long the disk is full."""
        while not self.counted:
            time.sleep(FULL_DISK_S)
            self.counted = self._count()


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
