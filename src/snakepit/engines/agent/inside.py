"""People's ways into a running process: a command in its world (`exec`), a connection to one of its ports (`connect`).

Each comes on a connection of its own, which is handed on to a process beside the agent; the agent itself never waits.
"""

import os
import socket
from typing import Any, Dict

from snakepit.engines.agent import holder, keeper, procs, sandbox
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Record, read_text
from snakepit.engines.agent.refusal import not_now, rejected
from snakepit.engines.agent.supervisor import Supervisor
from snakepit.engines.agent.switchboard import Switchboard
from snakepit.engines.agent.visitor import Visit

REAP_EVERY_S = 1.0


class Inside:
    def __init__(self, supervisor: Supervisor, reactor: Reactor) -> None:
        self._supervisor, self._reactor = supervisor, reactor
        self._switchboard = Switchboard()

    def check(self, ask: Dict[str, Any]) -> Record:
        """The record of the process, if it runs."""
        record = self._supervisor.table.get(ask["process"])
        if record is None or record["phase"] != "running" or record.get("cleaning") or self._inner(record) is None:
            raise rejected("Worker not active")
        return record

    def exec(self, line: socket.socket, ask: Dict[str, Any], record: Record) -> None:
        node, records, launch = self._supervisor.node, self._supervisor.records, record["launch"]
        granted = [sandbox.find_card(grant, node.cards) for grant in launch["granted"]]
        environment = dict(sandbox.environment(record, records, granted, node.mark(record)), PWD=launch["cwd"])
        environment.update(ask["environment"])
        environment[procs.MARK] = node.mark(record)
        visit = Visit(
            argv=ask["argv"],
            environment=environment,
            cwd=launch["cwd"],
            holder=record["pid"],
            inner=self._inner(record) or 0,
            cgroups=self._supervisor.limits.joins(record["id"]),
            size=ask.get("terminal"),
        )
        try:
            pid = keeper.fork(line, ask, visit)
        except OSError as error:
            raise not_now("cannot start: {}".format(error)) from None
        self._wait_for(pid)

    def connect(self, line: socket.socket, ask: Dict[str, Any], record: Record) -> None:
        mark = self._supervisor.node.mark(record)
        place = {"holder": record["pid"], "inner": self._inner(record), "mark": mark, "address": record["address"]}
        self._switchboard.take(line, dict(ask, **place))

    def _inner(self, record: Record) -> Any:
        """Bubblewrap's inner process; 0 where nothing confines, None while it is just being born."""
        if record["isolation"] != "sandbox":
            return 0
        status = holder.read_status(read_text(self._supervisor.records.file(record["id"], record["status"])))
        return status.get("child-pid")

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
