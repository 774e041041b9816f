"""Processes of a pit find each other by name, and cards and places are what was granted."""

import asyncio
import os
import shutil
from collections.abc import Iterator

import pytest

from snakepit.core.job import Cause
from snakepit.engines.base import Go, Granted, Usage
from snakepit.engines.ping import RANGE, allow_ping, may_ping
from tests.engines.bench import account, process, room, run, shell
from tests.waiting import await_until

pytestmark = pytest.mark.system


def test_two_processes_resolve_reach_and_speak_to_each_other() -> None:
    async def story() -> None:
        async with room() as here:
            server = shell(process(1, 0), 'exec /usr/bin/python3 -c "$SERVER"')
            client = shell(process(1, 1), 'exec /usr/bin/python3 -c "$CLIENT"')
            made = await here.engine.create([server, client])
            hosts = {server.name: made[0].address, client.name: made[1].address}
            port = made[0].ports[0]
            programs = {
                "SERVER": f"""
import socket
listener = socket.create_server((socket.gethostbyname(socket.gethostname()), {port}))
print("listening", flush=True)
peer, address = listener.accept()
print(peer.recv(100).decode(), flush=True)
""",
                "CLIENT": f"""
import socket, time
for name in ("{server.name}", "{server.name}.lxd"):
    print(name, socket.gethostbyname(name), flush=True)
while True:
    try:
        link = socket.create_connection(("{server.name}", {port}), timeout=5)
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
link.sendall(b"greetings")
""",
            }
            await here.engine.go([Go(server.id, programs, hosts), Go(client.id, programs, hosts)])
            for one in (server, client):
                ended = await here.watcher.end(one.id)
                assert ended.succeeded, here.watcher.log(one.id)
            assert here.watcher.log(server.id) == "listening\ngreetings\n"
            address = made[0].address
            assert here.watcher.log(client.id) == f"{server.name} {address}\n{server.name}.lxd {address}\n"

    run(story())


@pytest.fixture
def ping() -> Iterator[None]:
    """The right to ping for the agent's group, taken back afterwards."""
    who, before = account(), RANGE.read_text()
    if shutil.which("ping") is None or not (allow_ping(who.gid) if who else may_ping(os.getgid())):
        pytest.skip("no ping, or no right to it")
    yield
    if who:
        RANGE.write_text(before)


@pytest.mark.usefixtures("ping")
def test_processes_ping_each_other_by_name() -> None:
    async def story() -> None:
        async with room() as here:
            launches = [shell(process(1, index), f"ping -c 1 -W 5 sp-n0-1-{1 - index}") for index in range(2)]
            made = await here.engine.create(launches)
            hosts = {one.name: place.address for one, place in zip(launches, made, strict=True)}
            await here.engine.go([Go(one.id, {}, hosts) for one in launches])
            for index, one in enumerate(launches):
                ended = await here.watcher.end(one.id)
                assert ended.succeeded, here.watcher.log(one.id)
                assert made[1 - index].address in here.watcher.log(one.id)

    run(story())


def test_declared_cards_are_granted_by_number_and_others_stay_unseen() -> None:
    async def story() -> None:
        async with room(declared="2:GeForce GTX 1070/8G, 1:tpu=thing") as here:
            cards = (await here.engine.probe()).resources
            assert [(card.name, card.kind, card.memory_bytes, card.declared) for card in cards] == [
                ("GeForce GTX 1070", "cuda", 8 * 10**9, True),
                ("GeForce GTX 1070", "cuda", 8 * 10**9, True),
                ("thing", "tpu", 0, True),
            ]
            script = 'echo "cards=$CUDA_VISIBLE_DEVICES"; ls /dev | grep -c nvidia'
            _, log = await here.run(shell(process(1), script, granted=(Granted(cards[1]),)))
            assert log == "cards=1\n0\n"
            _, log = await here.run(shell(process(2), script))
            assert log == "cards=\n0\n"

    run(story())


def test_use_of_cores_and_memory_is_sampled_while_something_runs() -> None:
    async def story() -> None:
        async with room() as here:
            one = shell(process(1), "while true; do :; done")
            await here.start(one)

            def busy() -> bool:
                uses = [event.processes for event in here.watcher.events if isinstance(event, Usage)]
                return any(use[one.id][0] > 0.05 and use[one.id][1] > 1 << 20 for use in uses if one.id in use)

            await await_until(busy, message="a sample with cores and memory")
            await here.engine.stop([one.id.attempt], 5, Cause.STOPPED, "")
            await here.watcher.end(one.id)

    run(story())


def test_many_processes_at_once_have_places_of_their_own() -> None:
    async def story() -> None:
        async with room(port_range=(21000, 21199)) as here:
            launches = [shell(process(job), "exit 0") for job in range(1, 31)]
            made = await asyncio.gather(*(here.engine.create([one]) for one in launches))
            ports = [port for answer in made for port in answer[0].ports]
            assert len(set(ports)) == len(ports) == 120
            assert all(21000 <= port <= 21199 for port in ports)
            await here.engine.go([Go(one.id) for one in launches])
            for one in launches:
                assert (await here.watcher.end(one.id)).succeeded

    run(story())
