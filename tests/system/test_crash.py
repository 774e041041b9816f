"""kill -9 of the service and of the agent, at random moments, with jobs in every state: no job is lost, none runs
twice, no line of a log is missing or doubled, every outcome is true. Repeatable by its seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from snakepit.client.client import Client
from tests.conftest import pick_free_port
from tests.serving import PASSWORD, Serving
from tests.waiting import wait_until

DONE = 7
JOBS = 24
SCRIPT = """echo $WORKER_INDEX >> $KEEP_DIR/runs
for i in $(seq {lines}); do echo "line $i"; sleep {pause}; done
exit {code}
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    lines: int
    code: int


@pytest.fixture
def serving() -> Iterator[Serving]:
    found = Serving.start(pick_free_port())
    try:
        yield found
    finally:
        found.stop()


def client_of(serving: Serving) -> Client:
    client = Client(serving.url)
    client.register("tilman", "Tilman Kamp", "t@example.org", PASSWORD)
    client.authenticate("tilman", PASSWORD)
    client.call("POST", "/nodes/n0", {"resources": "4:GeForce GTX 1070"})
    return client


def submit_many(client: Client, chance: random.Random) -> dict[int, Wanted]:
    found = {}
    for index in range(JOBS):
        wanted = Wanted(chance.randint(1, 40), chance.choice([0, 0, 3]))
        script = SCRIPT.format(lines=wanted.lines, pause=chance.choice([0, 0.01, 0.05]), code=wanted.code)
        request = chance.choice(["[]", "[gtx1070]", "[2:gtx1070]", "2:[gtx1070]"])
        number = client.submit(f"job {index}", request, script=script)
        found[number] = Wanted(wanted.lines * (2 if request.startswith("2:[") else 1), wanted.code)
    return found


def states(client: Client, jobs: dict[int, Wanted]) -> dict[int, int]:
    return {job: int(client.job(job)["state"]) for job in jobs}


def log_of(client: Client, job: int) -> bytes:
    return b"".join(client.log(job, follow=False))


def check(client: Client, serving: Serving, jobs: dict[int, Wanted]) -> None:
    for number, wanted in jobs.items():
        job = client.job(number)
        text = log_of(client, number).decode()
        processes = 2 if job["request"].startswith("2:[") else 1
        assert job["exitCode"] == wanted.code, (job, text)
        assert job["outcome"] == ("failed" if wanted.code else "succeeded"), job
        runs = (serving.home / "data" / "pits" / str(number) / "keep" / "runs").read_text().split()
        assert len(set(runs)) == len(runs), f"job {number} ran more than once: {runs}\n{text}"
        # The first one that fails ends the others, perhaps before they did anything.
        assert runs if wanted.code else len(runs) == processes, f"job {number} ran as {runs}\n{text}"
        for worker in range(processes):
            told = [int(line) for line in re.findall(rf"\[worker {worker}\] line (\d+)$", text, re.MULTILINE)]
            assert told == list(range(1, len(told) + 1)), f"job {number}: {told}\n{text}"
            if wanted.code == 0 or processes == 1:
                assert len(told) == wanted.lines // processes, f"job {number} worker {worker}\n{text}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_service_takes_up_every_job_where_it_was(serving: Serving, seed: int) -> None:
    chance = random.Random(seed)
    client = client_of(serving)
    jobs = submit_many(client, chance)
    for done in sorted(chance.sample(range(JOBS - 2), 5)):
        # Somewhere between the end of one job and of the next, after a random number of questions.
        wait_until(lambda done=done: sum(s == DONE for s in states(client, jobs).values()) >= done, 120)  # type: ignore[misc]
        for _ in range(chance.randint(0, 20)):
            client.hello()
        serving.kill()
        serving.start_again()
    wait_until(lambda: all(state == DONE for state in states(client, jobs).values()), 180)
    check(client, serving, jobs)


@pytest.mark.parametrize("seed", [4, 5])
def test_a_killed_agent_finds_its_processes_again(serving: Serving, seed: int) -> None:
    chance = random.Random(seed)
    client = client_of(serving)
    jobs = submit_many(client, chance)
    for done in sorted(chance.sample(range(JOBS - 2), 5)):
        wait_until(lambda done=done: sum(s == DONE for s in states(client, jobs).values()) >= done, 120)  # type: ignore[misc]
        for _ in range(chance.randint(0, 20)):
            client.hello()
        serving.kill_agents()
    wait_until(lambda: all(state == DONE for state in states(client, jobs).values()), 180)
    check(client, serving, jobs)


def test_jobs_end_truthfully_while_the_service_is_away(serving: Serving) -> None:
    client = client_of(serving)
    flag = serving.home / "data" / "shared" / "flag"
    script = "echo begun; until [ -e $SHARED_DIR/flag ]; do sleep 0.05; done; echo over; exit 5"
    number = client.submit("Long one", "[gtx1070]", script=script)
    wait_until(lambda: b"begun" in log_of(client, number), 30)
    serving.kill()
    flag.touch()
    ended = Path(serving.home / "data" / "pits" / str(number))
    assert ended.is_dir()
    serving.start_again()
    wait_until(lambda: int(client.job(number)["state"]) == DONE, 60)
    job = client.job(number)
    assert (job["outcome"], job["exitCode"]) == ("failed", 5)
    assert b"over" in log_of(client, number)
