"""The environment of every process is complete, whatever its place in the request."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.environment import Paths, Peer, pit_environment
from snakepit.core.job import AttemptId
from snakepit.wire.names import is_reserved

PATHS = Paths("/data", "/data/rw/pit", "/data/ro/shared", "/data/rw/home", {"students": "/data/rw/group-students"})


def peers(*gpus_of_groups: list[int]) -> list[Peer]:
    found: list[Peer] = []
    for group, gpus in enumerate(gpus_of_groups):
        for index, count in enumerate(gpus):
            found.append(Peer(len(found), group, index, f"sp-n0-7-{len(found)}", count))
    return found


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_process_knows_every_other(gpus: list[list[int]]) -> None:
    everybody = peers(*gpus)
    environments = pit_environment(AttemptId(7), everybody, PATHS, 20000)
    assert len(environments) == len(everybody)
    for peer, own in zip(everybody, environments, strict=True):
        assert own["NUM_GROUPS"] == str(len(gpus))
        for group, members in enumerate(gpus):
            assert own[f"NUM_PROCESSES_GROUP{group}"] == str(len(members))
        for other in everybody:
            assert own[f"HOST_GROUP{other.group_index}_PROCESS{other.process_index}"] == other.host
        assert (own["GROUP_INDEX"], own["PROCESS_INDEX"]) == (str(peer.group_index), str(peer.process_index))
        assert own["PET_NPROC_PER_NODE"] == str(max(1, peer.gpus))
        assert ("RANK" in own) == all(other.gpus <= 1 for other in everybody)


def test_the_directories_are_those_of_the_seeds() -> None:
    (own,) = pit_environment(AttemptId(191, 0, 2), peers([1]), PATHS, 20000)
    assert own["JOB_NUMBER"] == "191"
    assert own["SRC_DIR"] == own["WORK_DIR"] == "/data/rw/pit/src"
    assert own["JOB_DIR"] == "/data/rw/pit"
    assert own["KEEP_DIR"] == "/data/rw/pit/keep"
    assert own["SHARED_DIR"] == "/data/ro/shared"
    assert own["USER_DIR"] == "/data/rw/home"
    assert own["STUDENTS_GROUP_DIR"] == "/data/rw/group-students"
    assert own["RESULT_FILE"] == "/data/rw/pit/workers/0/result"
    assert (own["TASK_INDEX"], own["ATTEMPT"]) == ("0", "2")


def test_torchrun_finds_all_it_needs() -> None:
    own = pit_environment(AttemptId(1), peers([2, 2]), PATHS, 20017)[1]
    assert own["MASTER_ADDR"] == own["PET_MASTER_ADDR"] == "sp-n0-7-0"
    assert own["MASTER_PORT"] == own["PET_MASTER_PORT"] == "20017"
    assert (own["NNODES"], own["NODE_RANK"], own["PET_NNODES"], own["PET_NODE_RANK"]) == ("2", "1", "2", "1")
    assert "RANK" not in own


def test_what_a_user_may_replace_are_torchs_variables_and_defaults() -> None:
    environments = pit_environment(AttemptId(1), peers([1], [1, 1]), PATHS, 20017)
    open_to_users = {name for own in environments for name in own if not is_reserved(name)}
    torch = "MASTER_ADDR MASTER_PORT NNODES NODE_RANK RANK WORLD_SIZE LOCAL_RANK"
    torchrun = "PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MASTER_ADDR PET_MASTER_PORT"
    defaults = "DEBIAN_FRONTEND PYTHONUNBUFFERED CUDA_DEVICE_ORDER"
    assert open_to_users == set(f"{torch} {torchrun} {defaults}".split())


def test_the_users_own_words_come_last() -> None:
    (own,) = pit_environment(AttemptId(1), peers([0]), PATHS, 1, [{"A": "config", "B": "config"}, {"B": "user"}])
    assert (own["A"], own["B"]) == ("config", "user")
