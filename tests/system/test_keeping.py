"""What is thrown away when, and that nothing stays behind; a full disk; what a crash left."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from snakepit.client.execution import start
from snakepit.errors import NotFound, SnakepitError
from tests.cluster import DONE, RUNNING, Cluster, User, running_cluster
from tests.conftest import pick_free_port
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

TINY = "keepSrc: 0\nkeepTrash: 0\nmaxLogSize: 100k\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(config=TINY, gpus="") as found:
        yield found


def restart(cluster: Cluster) -> None:
    """The house is kept at every start, and once a minute."""
    cluster.serving.kill()
    cluster.serving.start_again()


def traces(cluster: Cluster, *words: str) -> list[str]:
    """Paths below the data root that have one of these words in them, trash included."""
    found = []
    for top, folders, files in os.walk(cluster.root):  # what goes meanwhile is passed over
        for name in (*folders, *files):
            if any(word in name for word in words):
                found.append(str(Path(top, name).relative_to(cluster.root)))
    return found


def test_src_goes_after_its_time_and_the_rest_stays(cluster: Cluster, me: User) -> None:
    job = me.run("echo x > $SRC_DIR/scratch-file; echo y > $KEEP_DIR/kept-file; echo said")
    assert "src/ is kept until" in me.log(job["id"])
    restart(cluster)
    wait_until(lambda: not (cluster.pit(job["id"]) / "src").exists() and not traces(cluster, "scratch-file"))
    wait_until(lambda: "keepsSrcUntil" not in me.job(job["id"]))
    assert (cluster.pit(job["id"]) / "keep" / "kept-file").exists()
    assert "[worker 0] said" in me.log(job["id"])


def test_a_removed_job_leaves_nothing(cluster: Cluster, me: User) -> None:
    me.client.create_file("code.tgz")
    with tempfile.TemporaryDirectory() as made:
        archive = Path(made) / "code.tgz"
        (Path(made) / "main-file").write_text("echo hi\n")
        subprocess.run(["tar", "-czf", archive, "-C", made, "main-file"], check=True)
        me.client.append_file("code.tgz", 0, [archive.read_bytes()], archive.stat().st_size)
    job = me.run("bash main-file; mkdir -m 0 $KEEP_DIR/closed; touch $KEEP_DIR/removed-file", archive="code.tgz")
    assert "[worker 0] hi" in me.log(job["id"]), me.log(job["id"])
    me.client.remove_job(job["id"])
    with pytest.raises(NotFound):
        me.job(job["id"])
    assert not cluster.pit(job["id"]).exists()
    restart(cluster)
    wait_until(lambda: not traces(cluster, "removed-file", "main-file"), message="the trash is emptied")
    assert not list((cluster.root / "inputs").iterdir())
    procs = cluster.root / "nodes" / "n0" / "procs"
    wait_until(lambda: not list(procs.glob(f"{job['id']}.*")), message="the node forgot it")


def test_a_job_that_is_not_over_is_not_removed(me: User) -> None:
    number = me.submit("echo up; sleep 1000")
    me.says(number, "up")
    with pytest.raises(SnakepitError) as refusal:
        me.client.remove_job(number)
    assert refusal.value.status == 412
    me.reaches(number, RUNNING)
    me.client.stop(number)
    me.done(number)


def test_a_removed_user_leaves_nothing(cluster: Cluster, me: User) -> None:
    leaver = cluster.user("leaver", "crew")
    leaver.run("touch $USER_DIR/diary-file; touch $HOME/node-file")
    running = leaver.submit("echo up; sleep 1000")
    leaver.says(running, "up")
    me.call("DELETE", "/users/leaver")
    wait_until(lambda: me.state(running) == DONE)
    assert me.job(running)["outcome"] == "stopped"
    with pytest.raises(SnakepitError) as refusal:
        leaver.state(running)
    assert refusal.value.status == 401
    restart(cluster)
    wait_until(lambda: not traces(cluster, "diary-file", "node-file", "leaver"), message="nothing of the user is left")


def test_old_jobs_go_by_themselves() -> None:
    with running_cluster(config="keepJobs: 1ms\nkeepTrash: 0\n", gpus="") as cluster:
        job = cluster.admin.run("touch $KEEP_DIR/old-file")
        restart(cluster)
        wait_until(lambda: not traces(cluster, "old-file"))
        with pytest.raises(NotFound):
            cluster.admin.job(job["id"])


def test_the_audit_trail_is_kept_for_its_time() -> None:
    with running_cluster(config="keepAudit: 1ms\nkeepJobs: 1d\n", gpus="") as cluster:
        me = cluster.admin
        job = me.submit("sleep 1000")
        me.reaches(job, RUNNING)
        run_to_its_end(me, job)
        assert len(me.call("GET", "/audit")) == 1
        restart(cluster)
        wait_until(lambda: me.call("GET", "/audit") == [], message="the old entry goes")
        me.client.stop(job)
        me.done(job)


def run_to_its_end(me: User, job: int) -> None:
    execution = start(me.client, job, 0, ["true"])
    with Path(os.devnull).open("r+b") as null:
        assert execution.run(-1, null.fileno(), null.fileno()) == 0
    execution.close()


def test_what_a_crash_left_is_swept_at_the_start(cluster: Cluster, me: User) -> None:
    job = me.run("true")
    cluster.serving.kill()
    owner = cluster.root.stat()
    for name in (".prep-99999", "99998"):
        litter = cluster.root / "pits" / name / "pit" / "litter-file"
        litter.parent.mkdir(parents=True)
        litter.touch()
        for path in (litter, *list(litter.parents)[:2]):
            os.chown(path, owner.st_uid, owner.st_gid)
    cluster.serving.start_again()
    wait_until(lambda: not traces(cluster, "litter-file"))
    assert cluster.pit(job["id"]).exists()


def test_output_beyond_the_limit_is_thrown_away_and_that_is_said(cluster: Cluster, me: User) -> None:
    job = me.run("yes 0123456789 | head -c 5000000; exit 3")
    log = me.log(job["id"])
    assert (job["exitCode"], log.count("Log limit reached: further output is thrown away")) == (3, 1)
    assert 100_000 <= log.count("0123456789") * 11 <= 300_000


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A data root on a disk of 160 MB; where that cannot be mounted, the test cannot be made."""
    home = Path(tempfile.mkdtemp(prefix="snakepit-test-"))
    home.chmod(0o755)
    (home / "data").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", home / "data"]).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield home
    finally:
        subprocess.run(["umount", "-l", home / "data"], check=True)
        with contextlib.suppress(OSError):
            (home / "data").rmdir()


def test_a_full_disk_refuses_clearly_and_goes_on_when_there_is_space(small_disk: Path) -> None:
    serving = Serving.__new__(Serving)
    serving.home, serving.port = small_disk, pick_free_port()
    (small_disk / "snakepit.conf").write_text("hashRounds: 4\n")
    serving.start_again()
    cluster = Cluster(serving)
    try:
        full_disk(cluster)
    finally:
        serving.stop()


def full_disk(cluster: Cluster) -> None:
    me = cluster.user("tilman")
    assert me.run("true")["outcome"] == "succeeded"
    before, meanwhile = (me.submit(UNTIL_GO) for _ in range(2))
    for number in (before, meanwhile):
        me.says(number, "up")
        me.reaches(number, RUNNING)
        (cluster.pit(number) / "keep" / "go.soon").touch()  # a rename needs no space
    ballast = cluster.root / "ballast"
    refusal = submit_until_refused(me, ballast)
    assert refusal.status == 503
    assert "space" in refusal.message or "full" in refusal.message
    submitted = len(me.client.jobs(limit=1000))
    assert cluster.serving.answers()
    assert me.state(before) == RUNNING
    go(cluster, meanwhile)
    wait_until(lambda: not beats(cluster, meanwhile), message="the process ended on the full disk")
    ballast.unlink()
    go(cluster, before)
    assert me.done(before, 90)["exitCode"] == 3
    assert "[worker 0] over" in me.log(before)
    job = me.done(meanwhile, 90)
    assert (job["outcome"], job["exitCode"]) == ("failed", 3) or job["outcome"] == "lost", job
    assert me.run("true", timeout_s=90)["outcome"] == "succeeded"
    jobs = me.client.jobs(limit=1000)
    assert len(jobs) == submitted + 1
    for job in jobs:
        assert me.done(job["id"], 90)["outcome"] in ("succeeded", "failed", "lost")


UNTIL_GO = "echo up; until [ -e $KEEP_DIR/go ]; do sleep 0.05; done; echo over; exit 3"


def go(cluster: Cluster, number: int) -> None:
    keep = cluster.pit(number) / "keep"
    (keep / "go.soon").rename(keep / "go")


def beats(cluster: Cluster, number: int) -> bool:
    """Whether a process of the job is still there, by what the agent wrote down of it."""
    for path in (cluster.root / "nodes" / "n0" / "procs").glob(f"{number}.*/record"):
        with contextlib.suppress(FileNotFoundError):  # it is forgotten just now
            record = json.loads(path.read_text())
            if record["phase"] == "running" and Path(f"/proc/{record['pid']}").exists():
                return True
    return False


def submit_until_refused(me: User, ballast: Path) -> SnakepitError:
    """The database has some room of its own left at first."""
    body = {"description": "T", "clusterRequest": "[]", "script": "true" + " " * 10_000}
    for _ in range(500):
        fill(ballast)
        try:
            me.client.call("POST", "/jobs", body)
        except SnakepitError as problem:
            return problem
    raise AssertionError("the disk is full, and nothing was refused")


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for block in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(block))


def test_the_disk_may_be_full_from_the_start_on(small_disk: Path) -> None:
    """One line, no half-made cluster."""
    fill(small_disk / "data" / "lost+found")
    (small_disk / "snakepit.conf").write_text("")
    where = ["--config", str(small_disk / "snakepit.conf"), "--data", str(small_disk / "data")]
    done = subprocess.run(
        [str(PROGRAMS / "snakepit"), "serve", *where, "--interface", "127.0.0.1", "--port", str(pick_free_port())],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr or "full" in done.stderr
