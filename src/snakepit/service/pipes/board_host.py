"""Inside the sandbox of a TensorBoard on the head: starts it, and joins connections to it that come in over stdin.

Standard library only, run as a file. stdin is a unix socket; every message on it brings the socket of somebody who was
let in. On such a socket things go as on a spare connection into a job (engines/agent/switchboard): a byte calls, a byte
answers, frames both ways, and again. Without connections for a while it all ends.
"""

import array
import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time

LENGTH = struct.Struct("!I")
CHUNK = 256 << 10
STARTS_S = 60
ALONE_S = 20
CONNECTED, NOBODY = b"\0", b"\1"


class Board:
    def __init__(self, argv: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._program = subprocess.Popen(
            [*argv, "--host", "127.0.0.1", "--port", str(self._port)], stdin=subprocess.DEVNULL, stdout=2
        )
        self._guests = 0
        self._alone_since = time.monotonic()
        self._lock = threading.Lock()

    def run(self, orders: socket.socket) -> None:
        orders.settimeout(1)
        while self._program.poll() is None and not self._alone():
            try:
                data, ends = receive(orders)
            except TimeoutError:
                continue
            if not data:
                break
            for end in ends:
                with self._lock:
                    self._guests += 1
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()
        self._program.kill()

    def _alone(self) -> bool:
        with self._lock:
            return not self._guests and time.monotonic() > self._alone_since + ALONE_S

    def _serve(self, end: socket.socket) -> None:
        try:
            with end:
                while end.recv(1):
                    target = self._connect()
                    end.sendall(NOBODY if target is None else CONNECTED)
                    if target is None:
                        break
                    with target:
                        join(end, target)
        except OSError:
            pass  # one side is gone, and so is the other
        finally:
            with self._lock:
                self._guests -= 1
                self._alone_since = time.monotonic()

    def _connect(self) -> "socket.socket | None":
        """As soon as it answers: it takes seconds to start."""
        end = time.monotonic() + STARTS_S
        while self._program.poll() is None and time.monotonic() < end:
            try:
                return socket.create_connection(("127.0.0.1", self._port), 10)
            except OSError:
                time.sleep(0.1)
        return None


def join(end: socket.socket, target: socket.socket) -> None:
    """Until both directions have ended in good order; OSError else."""
    target.settimeout(None)
    broken = threading.Event()
    out = threading.Thread(target=_unframe, args=(end, target, broken), daemon=True)
    out.start()
    try:
        while True:
            data = target.recv(CHUNK)
            end.sendall(LENGTH.pack(len(data)) + data)
            if not data:
                break
    except OSError:
        broken.set()
        for one in (end, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
    out.join()
    if broken.is_set():
        raise OSError("broken off")


def _unframe(end: socket.socket, target: socket.socket, broken: threading.Event) -> None:
    try:
        while left := LENGTH.unpack(_exactly(end, LENGTH.size))[0]:
            while left:
                data = end.recv(min(left, CHUNK))
                if not data:
                    raise OSError("broken off")
                target.sendall(data)
                left -= len(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        broken.set()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            raise OSError("broken off")
        data += part
    return data


def receive(orders: socket.socket) -> tuple[bytes, list[socket.socket]]:
    rights = array.array("i")
    data, ancillary, _, _ = orders.recvmsg(64, socket.CMSG_LEN(4 * rights.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    return data, [socket.socket(fileno=number) for number in rights]


def where(jobs: list[str], directory: str) -> list[str]:
    """The options that say what is shown. `directory` counts from the job's own, or from its src/."""
    if len(jobs) == 1 or not directory:
        return ["--logdir", _below("/data", directory)]
    return ["--logdir_spec", ",".join(f"{job}:{_below(f'/data/{job}', directory)}" for job in jobs)]


def _below(top: str, directory: str) -> str:
    for base in (top, f"{top}/src"):
        if directory and os.path.isdir(f"{base}/{directory}"):  # noqa: PTH112
            return f"{base}/{directory}"
    return f"{top}/{directory}" if directory else top


if __name__ == "__main__":
    Board([sys.executable, "-m", "tensorboard.main", "--load_fast=false", *where(sys.argv[2:], sys.argv[1])]).run(
        socket.socket(fileno=0)
    )
