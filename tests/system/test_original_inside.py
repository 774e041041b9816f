"""The original client's web-sockets for exec and forward, spoken as its code speaks them."""

import json
import os
import select
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from snakepit.service.inside.multiplex import Decoder, Frame, Kind, encode
from tests.cluster import RUNNING, Cluster, User, running_cluster
from tests.conftest import pick_free_port
from tests.processes import alive
from tests.waiting import wait_until

ECHO = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=200)
print("listening", flush=True)
def serve(one):
    while data := one.recv(65536):
        one.sendall(data)
    one.sendall(b"<over>")
    one.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


class Scene:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.anna, self.port = cluster, cluster.user("anna"), pick_free_port()
        self.job = self.anna.submit(f"exec python3 -c '{ECHO}' {self.port}")
        self.anna.reaches(self.job, RUNNING)
        self.anna.says(self.job, "listening")

    def address(self, what: str, user: User | None = None, job: int = 0, **context: Any) -> tuple[str, str]:
        """The URL and the token for it."""
        path = f"/jobs/{job or self.job}/instances/0/{what}"
        if context:
            path += "?context=" + urllib.parse.quote(json.dumps(context))
        return f"ws://127.0.0.1:{self.cluster.serving.port}{path}", (user or self.anna).token

    def open(self, what: str, user: User | None = None, job: int = 0, **context: Any) -> ClientConnection:
        url, token = self.address(what, user, job, **context)
        return connect(url, additional_headers={"X-Auth-Token": token}, max_size=None, open_timeout=30)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with running_cluster() as cluster:
        found = Scene(cluster)
        try:
            yield found
        finally:
            found.anna.call("POST", f"/jobs/{found.job}/stop")
            found.anna.done(found.job)


def everything(socket: ClientConnection) -> tuple[bytes, bytes, str]:
    """stdout, stderr and the reason of the end."""
    said = {1: b"", 2: b""}
    while True:
        try:
            message = socket.recv(timeout=30)
        except ConnectionClosedOK as end:
            return said[1], said[2], end.rcvd.reason if end.rcvd else ""
        assert isinstance(message, bytes)
        said[message[0]] += message[1:]


# ----------------------------------------------------------------------------------------------------------------- exec


def test_a_command_without_a_terminal(scene: Scene) -> None:
    with scene.open("exec", command=["sh", "-c", "echo out; echo err >&2; exit 3"], interactive=False) as socket:
        assert everything(socket) == (b"out\n", b"err\n", '{"exit": 3}')


def test_a_terminal_is_resized_and_typed_into(scene: Scene) -> None:
    terminal: dict[str, Any] = {"interactive": True, "width": 70, "height": 20, "environment": {"TERM": "xterm"}}
    with scene.open("exec", command=["bash", "--norc"], **terminal) as socket:
        resize = {"command": "window-resize", "args": {"width": "99", "height": "33"}}
        socket.send(b"\1stty size; echo $TERM\r")
        shown = b""
        while b"20 70\r\nxterm\r\n" not in shown:
            message = socket.recv(timeout=30)
            assert isinstance(message, bytes)
            shown += message[1:]
        socket.send(b"\0" + json.dumps(resize).encode())
        socket.send(b"\1stty size\rexit\r")
        out, _, reason = everything(socket)
        assert b"33 99\r\n" in out
        assert reason == '{"exit": 0}'


def test_the_end_of_stdin_can_be_said(scene: Scene) -> None:
    data = os.urandom(5 << 20)
    with scene.open("exec", command=["cat"], interactive=False) as socket:

        def feed() -> None:
            for at in range(0, len(data), 3 << 20):
                socket.send(b"\1" + data[at : at + (3 << 20)])
            socket.send(b"\1")

        feeding = threading.Thread(target=feed)
        feeding.start()
        assert everything(socket) == (data, b"", '{"exit": 0}')
        feeding.join()


FLOOD = """
import sys
from websockets.sync.client import connect
with connect(sys.argv[1], additional_headers={"X-Auth-Token": sys.argv[2]}) as socket:
    sent = 0
    while True:
        socket.send(bytes([1]) + bytes(1 << 20))
        sent += 1
        print(sent, flush=True)
"""


def test_a_client_that_is_killed_hangs_up_although_nobody_reads_what_it_sent(scene: Scene) -> None:
    url, token = scene.address("exec", command=["sleep", "7662"], interactive=False)
    with subprocess.Popen([sys.executable, "-c", FLOOD, url, token], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        said = client.stdout.fileno()

        def stuck() -> bool:
            if select.select((said,), (), (), 1)[0]:
                assert os.read(said, 4096)
                return False
            return bool(alive("sleep\x007662"))

        wait_until(stuck, 120, "the command runs, and nothing more can be sent to it")
        client.kill()
    wait_until(lambda: not alive("sleep\x007662"), message="it is hung up")


@pytest.mark.parametrize(
    ("context", "status", "message"),
    [
        ({"interactive": False}, 400, "No command"),
        ({"command": "ls"}, 400, "The command is not a list of texts"),
        ({"command": ["ls"], "environment": {"A B": "x"}}, 400, "Not a variable of the environment: 'A B'"),
    ],
)
def test_what_is_wrong_is_said_before_the_upgrade(scene: Scene, context: Any, status: int, message: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        scene.open("exec", **context)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body) == {"message": message}


@pytest.mark.parametrize("what", ["exec", "forward"])
def test_rights_and_places_are_checked(scene: Scene, what: str) -> None:
    stranger = scene.cluster.user("stranger")
    done = scene.anna.run("true")["id"]
    for user, job, status in ((stranger, scene.job, 403), (scene.anna, done, 404), (scene.anna, 99999, 404)):
        with pytest.raises(InvalidStatus) as refused:
            scene.open(what, user, job, command=["true"])
        assert refused.value.response.status_code == status


def test_a_plain_get_is_told_that_it_is_one(scene: Scene) -> None:
    for what in ("exec", "forward"):
        with pytest.raises(Exception, match="Only web-socket upgrades"):
            scene.anna.call("GET", f"/jobs/{scene.job}/instances/0/{what}")


# -------------------------------------------------------------------------------------------------------------- forward


class Channels:
    """The original client's side: it opens, and hears answers."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._decoder = socket, Decoder()
        self.heard: dict[int, bytes] = {}
        self.ended: dict[int, str] = {}

    def send(self, channel: int, kind: Kind, data: bytes = b"") -> None:
        self._socket.send(encode(Frame(channel, kind, data)))

    def until_all_ended(self, count: int) -> None:
        while len(self.ended) < count:
            message = self._socket.recv(timeout=30)
            assert isinstance(message, bytes)
            for frame in self._decoder.feed(message):
                if frame.kind is Kind.ANSWER:
                    self.heard[frame.channel] = self.heard.get(frame.channel, b"") + frame.data
                else:
                    self.ended[frame.channel] = frame.data.decode()


def test_many_connections_go_through_one_socket_each_with_its_own_end(scene: Scene) -> None:
    count = 50
    with scene.open("forward") as socket:
        channels = Channels(socket)
        for number in range(count):
            channels.send(number, Kind.OPEN, f"{number}-{scene.port}".encode())
        for number in range(count):
            channels.send(number, Kind.DATA, f"word {number} ".encode() * 1000)
            channels.send(number, Kind.END)
        channels.until_all_ended(count)
    wanted = {number: f"word {number} ".encode() * 1000 + b"<over>" for number in range(count)}
    assert channels.heard == wanted
    assert set(channels.ended.values()) == {""}


def test_a_port_nobody_listens_on_breaks_its_channel_only(scene: Scene) -> None:
    with scene.open("forward") as socket:
        channels = Channels(socket)
        channels.send(0, Kind.OPEN, b"0-1")
        channels.send(1, Kind.OPEN, f"1-{scene.port}".encode())
        channels.send(2, Kind.OPEN, b"nonsense")
        channels.send(1, Kind.DATA, b"hello")
        channels.send(1, Kind.END)
        channels.until_all_ended(3)
    assert channels.heard == {1: b"hello<over>"}
    assert channels.ended[0] == "nobody of this job listens on port 1"
    assert channels.ended[2] == "a channel is named <number>-<port>"
