"""The keeper of one command inside a job: between the caller's socket and the command's streams, never blocking, never
holding more than a little of either.

On the caller's socket frames travel: one byte (the channel), four (the length, big-endian), the bytes. To us: 0 control
(JSON: window-resize, signal), 1 stdin, of which an empty one is its end. From us: 1 stdout, 2 stderr, 0 control, of
which `{"exit": code}` is the last. Whoever lets go of the socket, or of the line it came by, hangs up: HUP, then KILL.
"""

import errno
import json
import os
import select
import signal
import socket
import struct
import time
from typing import Any, Dict, List, Optional

from snakepit.engines.agent import frames, handing, procs, visitor
from snakepit.engines.agent.aside import close_all_but
from snakepit.engines.agent.complaint import complain
from snakepit.engines.agent.holder import LIBC
from snakepit.engines.agent.visitor import Porter, Visit

CONTROL, STDIN, STDOUT, STDERR = 0, 1, 1, 2
HEAD = struct.Struct("!BI")
LARGEST_FRAME = 1 << 20
ENOUGH = 1 << 18  # of bytes under way in one direction
CHUNK = 1 << 17
RDHUP = 0x2000
KILL_AFTER_S = 3.0
KNOCK_MS = 5000
SILENCE_MS, AFTERWORDS_S = 200, 5.0
FAREWELL_S = 5.0
END_OF_INPUT = b"\x04"
PR_SET_CHILD_SUBREAPER = 36
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)


def fork(line: socket.socket, ask: Dict[str, Any], visit: Visit) -> int:
    """A keeper with the line on which it was asked for; ours is closed."""
    pid = os.fork()
    if pid == 0:
        try:
            _keep(line.fileno(), ask, visit)
        except Exception:
            complain()
        finally:
            os._exit(0)
    line.close()
    return pid


def _keep(number: int, ask: Dict[str, Any], visit: Visit) -> None:
    os.setsid()
    close_all_but((2, number))
    null = os.open(os.devnull, os.O_RDWR)  # 0, as the lowest free number
    os.dup2(null, 1)
    for one in DEAF_TO:
        signal.signal(one, signal.SIG_IGN)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line = socket.socket(fileno=number)
    line.setblocking(True)
    re = ask.get("number")
    try:
        porter = visitor.prepare(visit)
    except OSError as error:
        line.sendall(frames.encode({"re": re, "error": "NotNow", "message": str(error)}))
        return
    line.sendall(frames.encode({"re": re, "body": {}}))
    end = line
    if ask.get("by") == "handing":
        _, descriptors = handing.receive(line)
        if not descriptors:
            return
        end = socket.socket(fileno=descriptors[0])
    _Keeper(line, end, porter, bool(visit.size)).run()


class _Keeper:
    def __init__(self, line: socket.socket, end: socket.socket, porter: Porter, terminal: bool) -> None:
        self._line, self._end, self._terminal = line, end, terminal
        end.setblocking(False)
        self._stdin = porter.ends.stdin
        self._outs: Dict[int, int] = {porter.ends.stdout: STDOUT}
        if not terminal:
            self._outs[porter.ends.stderr] = STDERR
        for descriptor in [self._stdin] + list(self._outs):
            os.set_blocking(descriptor, False)
        self._input, self._output, self._heard = bytearray(), bytearray(), bytearray()
        self._input_ended = False
        self._status: Optional[int] = None
        self._hung_up_at = 0.0
        self._waker, alarm = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(self._waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(alarm)
        self._pid = 0
        try:
            self._pid = visitor.start(porter)
        except OSError as error:
            self._say(STDERR, "{}\n".format(error).encode())
            self._status = 126 << 8

    def run(self) -> None:
        while self._status is None:
            self._turn()
            self._reap()
        if not self._hung_up_at:
            self._finish()
        if self._hung_up_at:
            self._disperse()

    # -- while it runs

    def _turn(self) -> None:
        poll, timeout_ms = select.poll(), None
        poll.register(self._waker, select.POLLIN)
        if self._hung_up_at:
            timeout_ms = 100
            self._insist()
        else:
            self._listen(poll)
            if len(self._input) >= ENOUGH:
                timeout_ms = KNOCK_MS
        happened = poll.poll(timeout_ms)
        if not happened and not self._hung_up_at and not self._output:
            # We read no further, so we would not hear that the caller is gone: a proxy hears it when it has to pass on.
            self._say(STDERR, b"")
        for descriptor, events in happened:
            if descriptor == self._waker:
                os.read(self._waker, 4096)
            elif descriptor in self._outs:
                self._read_output(descriptor)
            if descriptor == self._stdin and events & (select.POLLOUT | select.POLLERR):
                self._write_input()
            elif descriptor == self._end.fileno():
                self._attend(events)
            elif descriptor == self._line.fileno():
                self._hang_up()

    def _listen(self, poll: "select.poll") -> None:
        wanted: Dict[int, int] = {self._end.fileno(): RDHUP}
        if self._line is not self._end:
            wanted[self._line.fileno()] = select.POLLIN
        if len(self._input) < ENOUGH:
            wanted[self._end.fileno()] |= select.POLLIN
        if self._output:
            wanted[self._end.fileno()] |= select.POLLOUT
        if len(self._output) < ENOUGH:
            for descriptor in self._outs:
                wanted[descriptor] = select.POLLIN
        if self._input:
            wanted[self._stdin] = wanted.get(self._stdin, 0) | select.POLLOUT
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)

    def _attend(self, events: int) -> None:
        if events & select.POLLIN:
            self._read_frames()
        if events & select.POLLOUT:
            self._flush()
        if events & (RDHUP | select.POLLERR | select.POLLHUP | select.POLLNVAL):
            self._hang_up()

    def _read_frames(self) -> None:
        try:
            data = self._end.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up()
        self._heard += data
        while len(self._heard) >= HEAD.size:
            channel, length = HEAD.unpack_from(self._heard)
            if length > LARGEST_FRAME:
                self._hang_up()
                return
            if len(self._heard) < HEAD.size + length:
                return
            self._take(channel, bytes(self._heard[HEAD.size : HEAD.size + length]))
            del self._heard[: HEAD.size + length]

    def _take(self, channel: int, data: bytes) -> None:
        if channel == CONTROL:
            self._control(data)
        elif channel == STDIN and not self._input_ended:
            self._input_ended = not data
            self._input += data if data or not self._terminal else END_OF_INPUT
            self._write_input()

    def _control(self, data: bytes) -> None:
        try:
            word = json.loads(data.decode())
            given = word.get("args") or {}
            if word.get("command") == "window-resize" and self._terminal:
                visitor.set_size(self._stdin, int(given["width"]), int(given["height"]))
            elif word.get("command") == "signal":
                number = _signal(word.get("signal", given.get("signal")))
                os.kill(-self._pid, number)
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            return  # a word nobody understands changes nothing

    def _write_input(self) -> None:
        if self._stdin < 0:
            self._input.clear()
            return
        try:
            while self._input:
                del self._input[: os.write(self._stdin, self._input[:CHUNK])]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._input.clear()  # it reads no more
            self._input_ended = True
        if self._input_ended and not self._terminal:
            os.close(self._stdin)
            self._stdin = -1

    def _read_output(self, descriptor: int) -> bool:
        """Whether something came."""
        try:
            data = os.read(descriptor, CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # the terminal's word for its end
                complain()
            data = b""
        if not data:
            del self._outs[descriptor]
            if descriptor != self._stdin:
                os.close(descriptor)
            return False
        # Straight on where nothing waits: one copy less.
        self._say(STDOUT if self._terminal else self._channel(descriptor), data)
        return True

    def _channel(self, descriptor: int) -> int:
        return self._outs[descriptor]

    def _say(self, channel: int, data: bytes) -> None:
        head, sent = HEAD.pack(channel, len(data)), 0
        if not self._output:
            try:
                sent = self._end.sendmsg([head, data])
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self._hang_up()
                return
        self._output += head[sent:]
        self._output += memoryview(data)[max(0, sent - len(head)) :]

    def _flush(self) -> None:
        try:
            while self._output:
                del self._output[: self._end.send(memoryview(self._output)[:ENOUGH])]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._hang_up()

    # -- the end

    def _reap(self) -> None:
        """Promptly in any case: the sandbox does not end before its last process was waited for."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if self._status is None:
                    self._status = 255 << 8
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = status

    def _hang_up(self) -> None:
        if self._hung_up_at:
            return
        self._hung_up_at = time.monotonic()
        members = self._session()
        for descriptor in set([self._stdin] + list(self._outs)) - {-1}:
            os.close(descriptor)
        self._stdin, self._outs = -1, {}
        self._input.clear()
        self._output.clear()
        self._end.close()
        procs.send(members, signal.SIGHUP)
        procs.send(members, signal.SIGCONT)  # one that was stopped hears nothing

    def _insist(self) -> None:
        if time.monotonic() > self._hung_up_at + KILL_AFTER_S:
            procs.send(self._session() + [self._pid], signal.SIGKILL)

    def _disperse(self) -> None:
        """Those whom the command left behind in its session, some born while the hangup was on its way."""
        while True:
            members = self._session()
            if not members:
                return
            late = time.monotonic() > self._hung_up_at + KILL_AFTER_S
            procs.send(members, signal.SIGKILL if late else signal.SIGHUP)
            time.sleep(0.1)
            self._reap()

    def _session(self) -> List[int]:
        return [
            seen.pid
            for seen in procs.everyone().values()
            if self._pid and seen.session == self._pid and seen.state not in "ZX"
        ]

    def _finish(self) -> None:
        """All that the command said, and what it left running goes on to say at once; then its code; then the caller
        has a while to take it."""
        assert self._status is not None
        end = time.monotonic() + AFTERWORDS_S
        while self._outs and not self._hung_up_at and time.monotonic() < end and self._hear_out():
            pass
        for descriptor in list(self._outs):
            for _ in range(PIPE_READS):
                if not self._read_output(descriptor):
                    break
        self._say(CONTROL, json.dumps({"exit": _code(self._status)}).encode())
        while self._output and not self._hung_up_at:
            poll = select.poll()
            poll.register(self._end, select.POLLOUT)
            if self._line is not self._end:
                poll.register(self._line, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor == self._end.fileno():
                    self._flush()
                else:
                    self._hang_up()
        if not self._hung_up_at:
            self._farewell()

    def _hear_out(self) -> bool:
        """Whether there was more: a filter behind `>(…)` may be at it still, a daemon that keeps the pipe is silent."""
        poll, room = select.poll(), len(self._output) < ENOUGH
        poll.register(self._end, RDHUP | (select.POLLOUT if self._output else 0))
        if self._line is not self._end:
            poll.register(self._line, select.POLLIN)
        for descriptor in self._outs if room else ():
            poll.register(descriptor, select.POLLIN)
        happened = poll.poll(SILENCE_MS if room else None)
        for descriptor, events in happened:
            if descriptor in self._outs:
                self._read_output(descriptor)
            elif descriptor == self._end.fileno():
                self._attend(events)
            else:
                self._hang_up()
        return bool(happened)

    def _farewell(self) -> None:
        """Closing on bytes that nobody read would reset the connection, and the code would be lost on its way."""
        self._end.setblocking(True)
        self._end.settimeout(FAREWELL_S)
        try:
            self._end.shutdown(socket.SHUT_WR)
            while self._end.recv(CHUNK):
                pass
        except OSError:
            pass


PIPE_READS = visitor.PIPE_BYTES // CHUNK + 2


def _signal(given: Any) -> int:
    if isinstance(given, str) and not given.isdigit():
        return int(getattr(signal, "SIG" + given.upper().replace("SIG", "", 1)))
    return int(given)


def _code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
