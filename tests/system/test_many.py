"""Many small jobs at once: all of them end, and the service is afterwards as large as before."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.waiting import wait_until

ROUND = 300


def resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS"))


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def submit_all(cluster: Cluster) -> list[int]:
    me = cluster.admin

    def submit(index: int) -> int:
        return me.submit(f"echo {index} > $RESULT_FILE; exit {index % 2}", ["[]", "[gtx1070]"][index % 3 == 0])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(submit, range(ROUND)))


def all_done(cluster: Cluster) -> bool:
    seen = cluster.admin.client.status()
    return not (seen["running"] or seen["waiting"])


@pytest.mark.timeout(600)
def test_300_jobs_at_once_all_end_and_leave_no_trace_in_memory(cluster: Cluster) -> None:
    me = cluster.admin
    processes = [cluster.serving.process.pid, *cluster.serving.agents()]
    sizes, files = [], []
    for _ in range(2):
        numbers = submit_all(cluster)
        wait_until(lambda: all_done(cluster), 240, "all are done")
        for index, number in enumerate(numbers):
            job = me.job(number)
            assert (job["exitCode"], job["processes"][0]["result"]) == (index % 2, str(index)), job
        sizes.append([resident_mb(pid) for pid in processes])
        files.append([open_files(pid) for pid in processes])
    # The first round fills caches and pools; the second must not add to them.
    for before, after in zip(*sizes, strict=True):
        assert after - before < 12, sizes
    for pid, before in zip(processes, files[0], strict=True):
        wait_until(lambda pid=pid, before=before: open_files(pid) - before < 10)  # type: ignore[misc]
