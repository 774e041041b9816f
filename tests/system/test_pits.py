"""Several processes of one job: they find each other by name, know their place, and train together."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import GPUS, Cluster, User
from tests.reachable import reachable
from tests.serving import PROGRAMS

REACH = """
import os, socket, sys, time
own = socket.create_server((os.environ[f"HOST_GROUP{os.environ['GROUP_INDEX']}_PROCESS{os.environ['PROCESS_INDEX']}"],
                            int(os.environ["MASTER_PORT"])))
for group in range(int(os.environ["NUM_GROUPS"])):
    for process in range(int(os.environ[f"NUM_PROCESSES_GROUP{group}"])):
        host = os.environ[f"HOST_GROUP{group}_PROCESS{process}"]
        for _ in range(1200):
            try:
                socket.create_connection((host, int(os.environ["MASTER_PORT"])), 5).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        else:
            sys.exit(f"cannot reach {host}")
        print("reached", group, process, host, flush=True)
        if os.environ["MAY_PING"] and os.spawnlp(os.P_WAIT, "ping", "ping", "-c", "1", "-W", "5", host):
            sys.exit(f"cannot ping {host}")
for _ in range(3):
    own.accept()  # whoever has reached all others waits until all have reached it
"""
TRAIN = """
import os, torch, torch.distributed as dist
torch.manual_seed(0)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.full((8, 4), float(dist.get_rank() + 1))
for _ in range(3):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everybody = [torch.zeros_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(everybody, weights)
assert all(torch.equal(weights, other) for other in everybody)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "agrees", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def write(path: str, text: str) -> str:
    """A file of the job's directory, whole at any moment: all processes of the job make it, in one place."""
    own = f"{path}.$WORKER_INDEX"
    return f"cat > {own} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\nchmod +x {own}; mv {own} {path}\n"


def test_every_process_reaches_every_other_by_its_name(me: User) -> None:
    job = me.run(
        write("reach.py", REACH) + "exec python3 reach.py",
        "2:[],[gtx1070]",
        env={"MAY_PING": "yes" if may_ping() else ""},
    )
    log = me.log(job["id"])
    assert job["outcome"] == "succeeded", log
    for worker in range(3):
        for group, process in ((0, 0), (0, 1), (1, 0)):
            assert f"[worker {worker}] reached {group} {process} sp-n0-{job['id']}-" in log
    assert len({line.split()[-1] for line in log.splitlines() if " reached " in line}) == 3


def may_ping() -> bool:
    """Where ping is, and where the kernel lets others than root use it (a service that begins as root sees to it)."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ping_group_range").read_text().split())
    return shutil.which("ping") is not None and low <= high


def test_every_process_has_its_complete_environment(me: User) -> None:
    job = me.run("env | sort", "2:[],[2:gtx1070]")
    seen = environments(me, job["id"], 3)
    for worker, (group, process) in enumerate(((0, 0), (0, 1), (1, 0))):
        own = seen[worker]
        name = f"sp-n0-{job['id']}"
        expected = {
            "JOB_NUMBER": str(job["id"]),
            "DATA_ROOT": "/data",
            "JOB_DIR": "/data/rw/pit",
            "SRC_DIR": "/data/rw/pit/src",
            "WORK_DIR": "/data/rw/pit/src",
            "KEEP_DIR": "/data/rw/pit/keep",
            "PWD": "/data/rw/pit/src",
            "SHARED_DIR": "/data/ro/shared",
            "USER_DIR": "/data/rw/home",
            "NUM_GROUPS": "2",
            "NUM_PROCESSES_GROUP0": "2",
            "NUM_PROCESSES_GROUP1": "1",
            "HOST_GROUP0_PROCESS0": f"{name}-0",
            "HOST_GROUP0_PROCESS1": f"{name}-1",
            "HOST_GROUP1_PROCESS0": f"{name}-2",
            "GROUP_INDEX": str(group),
            "PROCESS_INDEX": str(process),
            "WORKER_INDEX": str(worker),
            "RESULT_FILE": f"/data/rw/pit/workers/{worker}/result",
            "TASK_INDEX": "0",
            "ATTEMPT": "0",
            "MASTER_ADDR": f"{name}-0",
            "NNODES": "3",
            "NODE_RANK": str(worker),
            "PET_NNODES": "3",
            "PET_NODE_RANK": str(worker),
            "PET_NPROC_PER_NODE": "2" if worker == 2 else "1",
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        assert {key: own.get(key) for key in expected} == expected
        assert own["MASTER_PORT"] == own["PET_MASTER_PORT"] == seen[0]["MASTER_PORT"]
        assert "RANK" not in own
    assert [len([card for card in seen[worker]["CUDA_VISIBLE_DEVICES"].split(",") if card]) for worker in range(3)] == [
        0,
        0,
        2,
    ]


def test_a_job_without_a_gpu_sees_none(me: User) -> None:
    job = me.run("env | sort")
    assert environments(me, job["id"], 1)[0]["CUDA_VISIBLE_DEVICES"] == ""


def test_processes_with_one_gpu_each_know_rank_and_world_size(me: User) -> None:
    job = me.run("env | sort", "2:[gtx1070]")
    seen = environments(me, job["id"], 2)
    assert [(own["RANK"], own["WORLD_SIZE"], own["LOCAL_RANK"]) for own in seen] == [("0", "2", "0"), ("1", "2", "0")]
    assert seen[0]["CUDA_VISIBLE_DEVICES"] != seen[1]["CUDA_VISIBLE_DEVICES"]


def environments(me: User, number: int, count: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(count)]
    for line in me.log(number).splitlines():
        _, _, text = line.partition("[worker ")
        worker, _, pair = text.partition("] ")
        if "=" in pair:
            key, _, value = pair.partition("=")
            found[int(worker)][key] = value
    return found


@pytest.fixture(scope="module")
def with_torch(cluster: Cluster) -> Iterator[str]:
    """The words that make torch and `torchrun` known in a job's script."""
    with reachable(PROGRAMS.parent) as venv:
        cluster.admin.call("POST", "/nodes/n0", {"resources": GPUS, "mounts": f"{venv}:ro"})
        cluster.is_online()
        torchrun = write("torchrun", f'#!/bin/sh\nexec {venv}/bin/python -m torch.distributed.run "$@"')
        yield f"export PATH=$PWD:{venv}/bin:$PATH OMP_NUM_THREADS=1\n{torchrun}"
        cluster.admin.call("POST", "/nodes/n0", {"resources": GPUS, "mounts": ""})


def test_two_jobs_train_at_once_by_a_bare_torchrun(me: User, with_torch: str) -> None:
    script = with_torch + write("train.py", TRAIN) + "torchrun train.py"
    numbers = [me.submit(script, "2:[gtx1070]") for _ in range(2)]
    for number in numbers:
        job = me.done(number, 180)
        log = me.log(number)
        assert job["outcome"] == "succeeded", log
        assert "[worker 0] rank 0 of 2 agrees" in log
        assert "[worker 1] rank 1 of 2 agrees" in log
    assert overlap(*(me.job(number) for number in numbers))


def test_a_plain_python_trains_by_its_environment_alone(me: User, with_torch: str) -> None:
    job = me.run(with_torch + write("train.py", TRAIN) + "python train.py", "2:[]", 180)
    log = me.log(job["id"])
    assert job["outcome"] == "succeeded", log
    assert "rank 0 of 2 agrees" in log
    assert "rank 1 of 2 agrees" in log


def overlap(one: dict[str, object], other: dict[str, object]) -> bool:
    (first, second) = (job["attempts"][0] for job in (one, other))  # type: ignore[index]
    return bool(first["started"] < second["ended"] and second["started"] < first["ended"])
