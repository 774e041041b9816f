"""A command inside a running process's world: same sandbox, environment, directory and limits; a terminal of its own,
or three pipes.

Two forks: the *porter* joins the group and the namespaces, drops what it thereby gained and opens the terminal in
there; when it is told to, it forks the command, which alone has a process number inside, and goes. The command is then
a child of the keeper (`keeper`), which speaks for it.
"""

import errno
import fcntl
import os
import pty
import signal
import socket
import struct
import termios
from typing import Dict, List, NamedTuple, Optional

from snakepit.engines.agent import enter, handing
from snakepit.engines.agent.aside import close_all_but

PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
OWN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)


class Visit(NamedTuple):
    """What is to be run, and where. No argv: a login shell. `size` is (columns, rows) where a terminal is wanted."""

    argv: List[str]
    environment: Dict[str, str]
    cwd: str
    holder: int
    inner: int  # bubblewrap's inner process; 0 where nothing confines
    cgroups: List[str]
    size: Optional[List[int]]


class Ends(NamedTuple):
    """The keeper's ends of the command: with a terminal all of them are the same."""

    stdin: int
    stdout: int
    stderr: int


class Porter(NamedTuple):
    line: socket.socket
    ends: Ends


def prepare(visit: Visit) -> Porter:
    """A porter that stands inside; OSError with words when there is no way in."""
    ours, theirs = socket.socketpair()
    pipes = [] if visit.size else [_pipe() for _ in range(3)]
    if os.fork() == 0:
        try:
            ours.close()
            _carry_in(visit, theirs, [pipes[0][0], pipes[1][1], pipes[2][1]] if pipes else [])
        finally:
            os._exit(70)
    theirs.close()
    for at, (reader, writer) in enumerate(pipes):
        os.close(reader if at == 0 else writer)
    word, descriptors = handing.receive(ours)
    if word != b"+":
        raise OSError(word.decode() or "cannot enter the sandbox")
    if visit.size:
        return Porter(ours, Ends(descriptors[0], descriptors[0], descriptors[0]))
    return Porter(ours, Ends(pipes[0][1], pipes[1][0], pipes[2][0]))


def start(porter: Porter) -> int:
    """The command's process number, here outside."""
    porter.line.send(b"!")
    word = porter.line.recv(64)
    porter.line.close()
    if not word.startswith(b"+"):
        raise OSError(word.decode() or "the command could not be started")
    return int(word[1:])


def set_size(terminal: int, columns: int, rows: int) -> None:
    words = [min(65535, max(0, number)) for number in (rows, columns, 0, 0)]
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *words))


def _pipe() -> "tuple[int, int]":
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # only slower: the account has used up its share of large pipes
    return reader, writer


def _carry_in(visit: Visit, line: socket.socket, streams: List[int]) -> None:
    """In the porter."""
    try:
        close_all_but([2, line.fileno()] + streams)
        for file in visit.cgroups:
            with open(file, "w") as procs_file:
                procs_file.write("0")
        if visit.inner:
            enter.join(enter.open_namespaces(visit.inner, visit.holder))
            enter.drop_capabilities()
        master = -1
        if visit.size:
            master, slave = pty.openpty()
            set_size(slave, *visit.size)
            streams = [slave, slave, slave]
        handing.send(line, b"+", [master] if visit.size else [])
        if visit.size:
            os.close(master)
    except OSError as error:
        line.send((error.strerror or str(error)).encode())
        os._exit(1)
    if line.recv(1) != b"!":
        os._exit(0)
    try:
        pid = os.fork()
    except OSError as error:
        line.send("cannot start: {}".format(error.strerror).encode())
        os._exit(1)
    if pid:
        line.send(b"+%d" % pid)
        os._exit(0)
    line.close()
    _become(visit, streams)


def _become(visit: Visit, streams: List[int]) -> None:
    """In the command, which has a number inside: a session of its own, nothing of ours left but its three streams."""
    name = visit.argv[0] if visit.argv else "a shell"
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if visit.size:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        # Above 9 first, so that none is overwritten before it found its place.
        for place, copy in enumerate([fcntl.fcntl(stream, fcntl.F_DUPFD, 10) for stream in streams]):
            os.dup2(copy, place)
        os.closerange(3, 64)
        os.chdir(visit.cwd)
        if visit.argv:
            os.execvpe(visit.argv[0], visit.argv, visit.environment)
        for shell in SHELLS:
            if os.access(shell, os.X_OK):
                os.execve(shell, ["-" + os.path.basename(shell)], dict(visit.environment, SHELL=shell))
        raise FileNotFoundError(errno.ENOENT, "there is no shell here")
    except OSError as error:
        # A directory that was removed meanwhile is the only other thing that can be missing.
        what = error.filename if isinstance(error.filename, str) and error.filename == visit.cwd else name
        os.write(2, "{}: {}\n".format(what, error.strerror).encode("utf-8", "replace"))
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)
