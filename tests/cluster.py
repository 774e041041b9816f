"""A real cluster of one machine for system tests: the service, its users, and short words for what they do."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from snakepit.client.client import Client
from tests.conftest import pick_free_port
from tests.serving import PASSWORD, Serving
from tests.waiting import wait_until

NEW, PREPARING, WAITING, STARTING, RUNNING, STOPPING, CLEANING, DONE = range(8)
GPUS = "4:GeForce GTX 1070"


@dataclass(slots=True)
class User:
    """Somebody with an account; every thread talks through a connection of its own."""

    name: str
    serving: Serving
    token: str
    _own: threading.local = field(default_factory=threading.local)

    @property
    def client(self) -> Client:
        if not hasattr(self._own, "client"):
            self._own.client = Client(self.serving.url, self.name, self.token)
        found: Client = self._own.client
        return found

    def submit(self, script: str, request: str = "[]", title: str = "T", **more: Any) -> int:
        return self.client.submit(title, request, script=script, **more)

    def call(self, method: str, path: str, body: object = None) -> Any:
        return self.client.call(method, path, body)

    def job(self, number: int) -> dict[str, Any]:
        return self.client.job(number)

    def state(self, number: int) -> int:
        return int(self.job(number)["state"])

    def reaches(self, number: int, state: int, timeout_s: float = 60) -> dict[str, Any]:
        """The job, once it is in this state or beyond it."""
        wait_until(lambda: self.state(number) >= state, timeout_s, f"job {number} reaches state {state}")
        found = self.job(number)
        assert state in (DONE, found["state"]), (found, self.log(number))
        return found

    def done(self, number: int, timeout_s: float = 60) -> dict[str, Any]:
        return self.reaches(number, DONE, timeout_s)

    def run(self, script: str, request: str = "[]", timeout_s: float = 60, **more: Any) -> dict[str, Any]:
        return self.done(self.submit(script, request, **more), timeout_s)

    def log(self, number: int) -> str:
        return b"".join(self.client.log(number, follow=False)).decode(errors="replace")

    def says(self, number: int, text: str, timeout_s: float = 60) -> str:
        wait_until(lambda: text in self.log(number), timeout_s, f"job {number} says {text!r}")
        return self.log(number)

    def codes(self, number: int) -> list[list[object]]:
        """The codes of every process of every attempt."""
        return [[one["status"] for one in each["processes"]] for each in self.job(number)["attempts"]]


@dataclass(slots=True)
class Cluster:
    serving: Serving
    users: dict[str, User] = field(default_factory=dict)

    @classmethod
    def start(cls, *options: str, config: str = "", gpus: str = GPUS) -> Self:
        """With its admin `tilman`; passwords are hashed as fast as may be."""
        cluster = cls(Serving.start(pick_free_port(), *options, config=f"hashRounds: 4\n{config}"))
        admin = cluster.user("tilman")
        if gpus:
            admin.call("POST", "/nodes/n0", {"resources": gpus})
        cluster.is_online()
        return cluster

    @property
    def admin(self) -> User:
        return self.users["tilman"]

    @property
    def root(self) -> Path:
        return self.serving.home / "data"

    def user(self, name: str, *groups: str) -> User:
        if name not in self.users:
            client = Client(self.serving.url)
            client.register(name, "Some Body", "some@example.org", PASSWORD)
            self.users[name] = User(name, self.serving, client.authenticate(name, PASSWORD))
            client.close()
        for group in groups:
            with contextlib.suppress(Exception):
                self.admin.call("PUT", f"/groups/{group}", {"title": group})
            self.admin.call("PUT", f"/users/{name}/groups/{group}")
        return self.users[name]

    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.call("GET", "/nodes/n0")
        return found

    def is_online(self, online: bool = True, timeout_s: float = 60) -> None:
        wait_until(lambda: self.node()["online"] is online, timeout_s, f"n0 is {'online' if online else 'offline'}")

    def pit(self, number: int) -> Path:
        return self.root / "pits" / str(number)


@contextlib.contextmanager
def running_cluster(*options: str, config: str = "", gpus: str = GPUS) -> Iterator[Cluster]:
    cluster = Cluster.start(*options, config=config, gpus=gpus)
    try:
        yield cluster
    finally:
        cluster.serving.stop()
