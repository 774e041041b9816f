"""People's ways into a running process: a command in its world (`exec`), a connection to one of its ports (`connect`).

Each comes on a connection of its own, which is handed on to a process beside the agent; the agent itself never waits.
"""

import os
import time
from typing import Any, Callable, Dict

from snakepit.engines.agent import frames, holder, keeper, procs, sandbox
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Record, read_text
from snakepit.engines.agent.refusal import Refusal, rejected
from snakepit.engines.agent.supervisor import Supervisor
from snakepit.engines.agent.switchboard import Switchboard
from snakepit.engines.agent.visitor import Visit

REAP_EVERY_S = 1.0
BORN_AGAIN_S = 0.02
BIRTH_S = 10.0
Way = Callable[["Inside", Any, Dict[str, Any], Record], None]


class Inside:
    def __init__(self, supervisor: Supervisor, reactor: Reactor) -> None:
        self._supervisor, self._reactor = supervisor, reactor
        self._switchboard = Switchboard()

    def enter(self, talk: Any, ask: Dict[str, Any], way: Way, until: float = 0.0) -> None:
        """Hands the connection on, once the process stands; a sandbox that is just being built is waited for."""
        try:
            record = self._check(ask)
            if talk.gone:
                return
            until = until or time.monotonic() + BIRTH_S
            if self._inner(record) is not None:
                way(self, talk, ask, record)
            elif time.monotonic() < until:
                self._reactor.soon(BORN_AGAIN_S, lambda: self.enter(talk, ask, way, until))
            else:
                raise rejected("Worker not active: its sandbox does not stand yet")
        except Refusal as refusal:
            talk.refuse(ask, refusal)

    def _check(self, ask: Dict[str, Any]) -> Record:
        record = self._supervisor.table.get(ask["process"])
        if record is None or record["phase"] != "running" or record.get("cleaning"):
            raise rejected("Worker not active")
        return record

    def exec(self, talk: Any, ask: Dict[str, Any], record: Record) -> None:
        visit = self._visit(ask, record)
        line = talk.give_away()
        try:
            self._wait_for(keeper.fork(line, ask, visit))
        except OSError as error:  # no more processes, say
            message = "cannot start: {}".format(error.strerror)
            line.send(frames.encode({"re": ask.get("number"), "error": "NotNow", "message": message}))
            line.close()

    def _visit(self, ask: Dict[str, Any], record: Record) -> Visit:
        node, records, launch = self._supervisor.node, self._supervisor.records, record["launch"]
        granted = [sandbox.find_card(grant, node.cards) for grant in launch["granted"]]
        environment = dict(sandbox.environment(record, records, granted, node.mark(record)), PWD=launch["cwd"])
        environment.update(ask["environment"])
        environment[procs.MARK] = node.mark(record)
        return Visit(
            argv=ask["argv"],
            environment=environment,
            cwd=launch["cwd"],
            holder=record["pid"],
            inner=self._inner(record) or 0,
            cgroups=self._supervisor.limits.joins(record["id"]),
            size=ask.get("terminal"),
        )

    def connect(self, talk: Any, ask: Dict[str, Any], record: Record) -> None:
        mark = self._supervisor.node.mark(record)
        place = {"holder": record["pid"], "inner": self._inner(record), "mark": mark, "address": record["address"]}
        self._switchboard.take(talk.give_away(), dict(ask, **place))

    def _inner(self, record: Record) -> Any:
        """Bubblewrap's inner process; 0 where nothing confines, None while it is just being born."""
        if record["isolation"] != "sandbox":
            return 0
        status = holder.read_status(read_text(self._supervisor.records.file(record["id"], record["status"])))
        inner = status.get("child-pid")
        # Its number is said before its walls stand: until it has a child, its root may still be the machine's own.
        return inner if inner and procs.children(inner) else None

    def _wait_for(self, pid: int) -> None:
        descriptor = procs.pidfd(pid)
        if descriptor is None:
            self._reactor.soon(REAP_EVERY_S, lambda: None if _reaped(pid) else self._wait_for(pid))
        else:
            self._reactor.on_readable(descriptor, lambda: self._ended(pid, descriptor))

    def _ended(self, pid: int, descriptor: int) -> None:
        self._reactor.forget(descriptor)
        os.close(descriptor)
        _reaped(pid)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
