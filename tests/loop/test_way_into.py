"""The way into a worker: open from the moment it may run, not from the one its state was written down."""

from pathlib import Path

import pytest

from snakepit.core.job import State
from snakepit.errors import NotFound
from snakepit.loop import deeds
from tests.service.house import done, open_house, submit
from tests.waiting import wait_until


def test_a_worker_that_was_heard_can_be_entered_before_its_job_is_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deeds, "RUNNING_AFTER_S", 1000)
    with open_house(tmp_path) as house:
        anna = house.user("anna")
        job = submit(anna, "sleep")
        wait_until(lambda: "] started" in anna.get(f"/jobs/{job}/log?follow=0").text)
        assert anna.get(f"/jobs/{job}").json()["state"] == State.STARTING
        assert house.service.loop.way_into(job, 0)[2] == "n0"
        with pytest.raises(NotFound, match="the job has 1"):
            house.service.loop.way_into(job, 1)
        assert anna.post(f"/jobs/{job}/stop").status_code == 200
        done(anna, job)
        with pytest.raises(NotFound, match="the job does not run"):
            house.service.loop.way_into(job, 0)


def test_nobody_enters_what_waits(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        anna = house.user("anna")
        first = submit(anna, "sleep", clusterRequest="[2:gtx1070]")
        second = submit(anna, "sleep", clusterRequest="[2:gtx1070]")
        wait_until(lambda: anna.get(f"/jobs/{first}").json()["state"] == State.RUNNING)
        with pytest.raises(NotFound, match="the job does not run"):
            house.service.loop.way_into(second, 0)
        for job in (second, first):
            anna.post(f"/jobs/{job}/stop")
            done(anna, job)
