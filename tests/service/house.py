"""A whole service in this process: the real store on SQLite, the real loop, the real HTTP server on a loopback port, an
engine in memory. What scripts do is said by their text: `exit 3` exits so, `sleep` runs until it is stopped."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from snakepit.admin.serve import Server, http_config
from snakepit.compose import loop_settings, make_directories
from snakepit.config import Settings, load
from snakepit.core.resources import Resource
from snakepit.engines.base import Go, Inventory, Launch
from snakepit.engines.fake import Act, FakeEngine, FakeNode
from snakepit.loop.loop import Loop
from snakepit.service.service import Service
from snakepit.source.provision import provision
from snakepit.store.database import Store
from tests.waiting import await_until, wait_until

PASSWORD = "correct-horse-9"
CARDS = tuple(Resource(index, "GeForce GTX 1070", declared=True) for index in range(2))


@dataclass(slots=True)
class House:
    """`client` speaks for nobody; `user(name)` gives a client that is signed in. `later` moves the clock."""

    root: Path
    settings: Settings
    url: str = ""
    later: timedelta = timedelta()
    client: httpx.Client = field(init=False)
    service: Service = field(init=False)
    events: asyncio.AbstractEventLoop = field(init=False)
    clients: list[httpx.Client] = field(default_factory=list)
    stop: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later

    def user(self, name: str, password: str = PASSWORD) -> httpx.Client:
        """Registered if need be, and signed in."""
        if self.client.get(f"/users/{name}/exists").status_code == 404:
            body = {"fullname": name.title(), "email": f"{name}@example.org", "password": password}
            assert self.client.put(f"/users/{name}", json=body).status_code == 200
        token = self.client.post(f"/users/{name}/authenticate", json={"password": password}).json()["token"]
        return self.with_token(token)

    def with_token(self, token: str) -> httpx.Client:
        client = httpx.Client(base_url=self.url, headers={"X-Auth-Token": token}, timeout=30)
        self.clients.append(client)
        return client


def submit(client: httpx.Client, script: str = "true", **more: Any) -> int:
    body = {"clusterRequest": "[]", "description": "a job", "script": script, **more}
    answer = client.post("/jobs", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def done(client: httpx.Client, job: int) -> dict[str, Any]:
    def over() -> dict[str, Any]:
        shown: dict[str, Any] = client.get(f"/jobs/{job}/wait?timeout=20").json()
        return shown if shown["state"] == 7 else {}

    return wait_until(over, 100, f"job {job} is done")


@contextmanager
def open_house(root: Path, node: bool = True, **keys: Any) -> Iterator[House]:
    settings = load(None, {"dataRoot": str(root), "hashRounds": 4, "interface": "127.0.0.1", **keys}, environ={})
    house = House(root, settings)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    house.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_live(house, bound, node, ready)))
    thread.start()
    assert ready.wait(60)
    house.client = httpx.Client(base_url=house.url, timeout=30)
    house.clients.append(house.client)
    try:
        yield house
    finally:
        for client in house.clients:
            client.close()
        with suppress(RuntimeError):  # a test may have stopped it already
            house.events.call_soon_threadsafe(house.stop)
        thread.join(60)
        assert not thread.is_alive()


async def _live(house: House, bound: socket.socket, node: bool, ready: threading.Event) -> None:
    make_directories(house.root)
    store = Store.open(house.settings.database_url)
    machine = FakeNode(lambda launch, go: behave(house.root, launch, go), Inventory(4, 16 << 30, CARDS, "sandbox"))
    settings = loop_settings(house.settings, confined=False)
    loop = Loop(store, settings, lambda name, endpoint, properties: FakeEngine(machine), provision, house.now)
    house.service = Service(store, loop, house.settings, house.now)
    house.events = asyncio.get_running_loop()
    server = Server(http_config(house.service))

    def stop() -> None:
        server.should_exit = True
        house.service.close()

    house.stop = stop
    await loop.start()
    try:
        if node:
            await loop.add_node("n0", "local:", {})
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await await_until(lambda: server.started)
        ready.set()
        await serving
    finally:
        house.service.close()
        await house.service.pipes.ended()
        await loop.close()
        store.close()


def behave(root: Path, launch: Launch, go: Go) -> Act:
    script = (root / "pits" / str(launch.id.attempt.job) / "script.sh").read_text()
    if "sleep" in script:
        return Act(b"started\n", None)
    if found := re.search(r"exit (\d+)", script):
        return Act(b"failing\n", int(found[1]))
    if found := re.search(r"say (\d+)", script):
        return Act(b"".join(b"line %d\n" % number for number in range(int(found[1]))))
    return Act(b"hello\n", result="42")
