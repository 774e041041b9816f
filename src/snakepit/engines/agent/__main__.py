"""Started as `python3 agent.pyz STATE_DIR CLUSTER VERSION`: detaches, takes the lock, serves until told to retire.

The command itself ends when a head may connect, having said `ready`, or says why not.
"""

import fcntl
import gc
import os
import signal
import socket
import sys
import time
from typing import List

from snakepit.engines.agent import procs
from snakepit.engines.agent.complaint import complain
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Records
from snakepit.engines.agent.server import SOCKET, Server
from snakepit.engines.agent.supervisor import Supervisor
from snakepit.engines.agent.trash import take_out

LOG_LIMIT = 1 << 20
HOME_EVERY_S = 5
LOCK_TRIES = 150
LOCK_PAUSE_S = 0.02


def main(arguments: List[str]) -> int:
    top, cluster, version = arguments
    if os.getuid() == 0:
        print("the agent does not run as root: what users send would run as root too")
        return 2
    os.chdir(top)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _detached(top, cluster, version, writer)
    os.close(writer)
    with os.fdopen(reader) as news:
        word = news.read()
    print(word or "the agent died at its start; see {}/agent.log".format(top))
    return 0 if word == "ready" else 1


def _detached(top: str, cluster: str, version: str, writer: int) -> None:
    """In the child: a session of its own, deaf to hangups, with a log file for what it has to say."""
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        os.umask(0o022)
        log = os.open("agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if os.fstat(log).st_size > LOG_LIMIT:
            os.ftruncate(log, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(source, target)
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _take(lock):
            os.pwrite(lock, str(os.getpid()).ljust(20).encode(), 0)  # for people: always as long, so never without room
            _serve(top, cluster, version, writer)
        else:
            os.write(writer, b"ready")  # another one serves here already
    except Exception:
        complain()
    finally:
        os._exit(0)


def _take(lock: int) -> bool:
    """Whether the place is ours. A child that a dead agent had just forked may hold its lock a moment longer."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            pass
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(SOCKET)
                return False
            except OSError:
                time.sleep(LOCK_PAUSE_S)
    return False


def _serve(top: str, cluster: str, version: str, writer: int) -> None:
    records, reactor = Records(top), Reactor()
    take_out(top)
    supervisor = Supervisor(records, reactor, cluster)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(SOCKET):
        os.unlink(SOCKET)
    listener.bind(SOCKET)  # relative, as a whole path may be longer than a socket's name can be
    listener.listen(512)  # hundreds of commands may be started inside jobs at one moment
    server = Server(listener, records, reactor, supervisor, version)
    os.write(writer, b"ready")
    os.close(writer)
    gc.collect()
    if hasattr(gc, "freeze"):
        gc.freeze()  # holders are forks: what is never touched stays shared
    look_after_home(reactor, server, _inode("lock"))
    while not server.retired:
        reactor.turn()


def look_after_home(reactor: Reactor, server: Server, home: int) -> None:
    """An agent whose directory was removed can neither start anything nor keep how anything ended: it ends what it
    runs, which then is lost in truth, and makes room for one with a directory."""
    if _inode(os.path.join(server.records.top, "lock")) != home:
        end_all(server.supervisor)
        server.retired = True
    reactor.soon(HOME_EVERY_S, lambda: look_after_home(reactor, server, home))


def end_all(supervisor: Supervisor) -> None:
    for record in supervisor.table.values():
        if record["phase"] == "running":
            found = procs.below(record["pid"], procs.everyone())
            procs.send(found + supervisor.limits.members(record["id"]), signal.SIGKILL)
            procs.kill_marked(supervisor.node.mark(record))


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
