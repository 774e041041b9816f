"""The agent's door: a unix socket on which heads ask and listen. One head at a time is listened to: the newest."""

import json
import os
import socket
import struct
from typing import Any, Callable, Dict, List, Optional

from snakepit.engines.agent import frames, inventory
from snakepit.engines.agent.aside import close_all_but
from snakepit.engines.agent.complaint import complain
from snakepit.engines.agent.inside import Inside
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Records
from snakepit.engines.agent.refusal import Refusal, not_now, rejected
from snakepit.engines.agent.supervisor import Supervisor
from snakepit.engines.agent.trash import forget_home

SOCKET = "socket"
PEER = struct.Struct("3i")


class Server:
    def __init__(
        self, listener: socket.socket, records: Records, reactor: Reactor, supervisor: Supervisor, version: str
    ) -> None:
        self.records, self.reactor, self.supervisor, self.version = records, reactor, supervisor, version
        self.inside = Inside(supervisor, reactor)
        self.watcher: "Optional[Talk]" = None
        self.retired = False
        self._listener = listener
        listener.setblocking(False)
        reactor.on_readable(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        if PEER.unpack(credentials)[1] not in (0, os.getuid()):
            connection.close()  # the directory is closed to others already; this is the second lock
            return
        Talk(connection, self)

    def hello(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        if ask["cluster"] != self.supervisor.cluster:
            raise rejected("this agent belongs to another cluster")
        self._check_epoch(ask)
        return {"version": self.version, "boot_id": self.supervisor.boot, "state_id": self.records.state_id}

    def settle(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        """The node's options, as its head knows them now."""
        if ask["options"] != self.supervisor.node.options:
            self.supervisor.node.options = ask["options"]
            self.records.keep_json("options", ask["options"])
        return {}

    def create(self, talk: "Talk", ask: Dict[str, Any]) -> List[Dict[str, Any]]:
        return self.supervisor.create(ask["launches"])

    def go(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        self.supervisor.go(ask["goes"])
        return {}

    def look(self, talk: "Talk", ask: Dict[str, Any]) -> List[Dict[str, Any]]:
        return self.supervisor.look()

    def stop(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        self.supervisor.stop(ask["attempts"], ask["grace_s"], ask["cause"], ask["note"])
        return {}

    def clean(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        self.supervisor.clean(ask["attempts"], lambda: talk.answer(ask, {}))

    def forget(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        forget_home(self.records.top, ask["user"])
        return {}

    def watch(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        self.watcher = talk
        talk.answer(ask, {"seen": self.supervisor.look()})
        self.supervisor.listen(talk.send, ask["offsets"])

    def ack(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        self.supervisor.ack(ask["process"], ask["offset"])

    def exec(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        self.inside.enter(talk, ask, Inside.exec)

    def connect(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        self.inside.enter(talk, ask, Inside.connect)

    def retire(self, talk: "Talk", ask: Dict[str, Any]) -> Dict[str, Any]:
        """A newer program wants the place; what is held runs on under its holders."""
        self.retired = True
        return {}

    def probe(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        """Looked up in a child, because nvidia-smi may take seconds."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _send_inventory(writer, self.supervisor.node.options)
            finally:
                os._exit(0)
        os.close(writer)
        parts: List[bytes] = []

        def more() -> None:
            data = os.read(reader, 65536)
            if data:
                parts.append(data)
                return
            self.reactor.forget(reader)
            os.close(reader)
            os.waitpid(pid, 0)
            self._probed(talk, ask, b"".join(parts))

        self.reactor.on_readable(reader, more)

    def _probed(self, talk: "Talk", ask: Dict[str, Any], text: bytes) -> None:
        found = json.loads(text.decode() or '{"error": "probing failed; see agent.log"}')
        if "error" in found:
            talk.refuse(ask, not_now(found["error"]))
            return
        self.supervisor.node.cards = found["cards"]
        self.records.keep_json("cards", found["cards"])
        found["limits"] = self.supervisor.find_limits()
        talk.answer(ask, found)

    def _check_epoch(self, ask: Dict[str, Any]) -> None:
        if ask["epoch"] < self.records.epoch:
            raise rejected("a newer head took over (epoch {}, yours {})".format(self.records.epoch, ask["epoch"]))
        self.records.raise_epoch(ask["epoch"])

    def handle(self, talk: "Talk", ask: Dict[str, Any]) -> None:
        verb = VERBS.get(ask.get("verb", ""))
        try:
            if verb is None:
                raise rejected("no such verb: {!r}".format(ask.get("verb")))
            self._check_epoch(ask)
            answer = verb(self, talk, ask)
        except Refusal as refusal:
            talk.refuse(ask, refusal)
        except Exception as error:  # one bad question must not end the supervisor of everybody's processes
            complain()
            talk.refuse(ask, not_now("the agent failed: {!r}".format(error)))
        else:
            if answer is not None:
                talk.answer(ask, answer)

    def left(self, talk: "Talk") -> None:
        if self.watcher is talk:
            self.watcher = None
            self.supervisor.listen(None, {})


VERBS: "Dict[str, Callable[[Server, Talk, Dict[str, Any]], Any]]" = {
    "hello": Server.hello,
    "settle": Server.settle,
    "probe": Server.probe,
    "create": Server.create,
    "go": Server.go,
    "look": Server.look,
    "stop": Server.stop,
    "clean": Server.clean,
    "forget": Server.forget,
    "watch": Server.watch,
    "ack": Server.ack,
    "exec": Server.exec,
    "connect": Server.connect,
    "retire": Server.retire,
}


class Talk:
    """One connection: frames in, frames out, never blocking."""

    def __init__(self, connection: socket.socket, server: Server) -> None:
        self._connection, self._server = connection, server
        self._decoder = frames.Decoder()
        self._pending = bytearray()
        self._open = True
        connection.setblocking(False)
        server.reactor.on_readable(connection, self._read)

    def answer(self, ask: Dict[str, Any], body: Any) -> None:
        self.send({"re": ask.get("number"), "body": body}, b"")

    def refuse(self, ask: Dict[str, Any], refusal: Refusal) -> None:
        self.send({"re": ask.get("number"), "error": refusal.kind, "message": refusal.message}, b"")

    def send(self, header: Dict[str, Any], payload: bytes) -> None:
        if self._open:
            self._pending += frames.encode(header, payload)
            self._write()

    @property
    def gone(self) -> bool:
        return not self._open

    def give_away(self) -> socket.socket:
        """The connection itself: from here on others speak on it."""
        self._open = False
        self._server.reactor.forget(self._connection)
        return self._connection

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 20)
            asked = self._decoder.feed(data) if data else None
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, frames.Garbled):
            asked = None
        if asked is None:
            self._close()
            return
        for header, _ in asked:
            self._server.handle(self, header)

    def _write(self) -> None:
        try:
            while self._pending:
                del self._pending[: self._connection.send(self._pending)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._close()
            return
        self._server.reactor.want_write(self._connection, self._write, bool(self._pending))

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._server.reactor.forget(self._connection)
            self._connection.close()
            self._server.left(self)


def _send_inventory(writer: int, options: Dict[str, Any]) -> None:
    close_all_but((2, writer))
    try:
        found = inventory.look(options)
    except ValueError as error:
        found = {"error": str(error)}
    with os.fdopen(writer, "w") as file:
        json.dump(found, file)
