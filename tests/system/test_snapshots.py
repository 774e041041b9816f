"""Snapshots from a checkout to a running job: through the real service, the real pipe and the real git."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, User, running_cluster
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PASSWORD, PROGRAMS, Serving
from tests.source.repositories import ENV, LFS, Repository

BINARY = bytes(range(256)) * 40
LIST = "find . -name .git -prune -o -type f -exec sha256sum {} + | sort -k2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def pit(cluster: Cluster, tmp_path: Path) -> Pit:
    made = Pit.of(cluster.serving, tmp_path / "machine")
    made.ok("login", PIT_USER="tilman", PIT_PASSWORD=PASSWORD)
    made.project.rmdir()
    made.answers = {"GIT_CONFIG_NOSYSTEM": "1"}
    return made


@pytest.fixture
def mine(pit: Pit) -> Repository:
    """A repository that was never pushed anywhere."""
    return Repository.make(pit.project, {"train.py": "print(1)\n", "lib/net.py": "a\nb\n", "x.bin": BINARY})


def submitted(pit: Pit, *words: str, script: str = LIST, title: str = "T") -> int:
    out = pit.ok("run", title, "[]", "-d", script, *words)
    return int(out.rpartition("=> job number: ")[2])


def said(user: User, number: int) -> str:
    job = user.done(number)
    assert job["outcome"] == "succeeded", user.log(number)
    lines = [line.partition("[worker 0] ")[2] for line in user.log(number).splitlines() if "[worker 0] " in line]
    return "\n".join(lines[1:-1])  # without its start and its end


def listed(place: Path) -> str:
    return subprocess.run(["bash", "-c", LIST], cwd=place, capture_output=True, text=True, check=True).stdout.strip()


def refs(cluster: Cluster) -> set[str]:
    return {path.name for path in (cluster.root / "cache/tilman/snapshots.git/refs/pit").glob("[0-9]*")}


def test_a_job_runs_the_very_bytes_on_disk_without_any_remote(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    mine.write({"train.py": "print(2)\n", "new.bin": BINARY[::-1], "crlf.txt": "a\r\nb\n", ".gitignore": "*.log\n"})
    expected = listed(pit.project)
    mine.write({"noise.log": "n\n"})
    number = submitted(pit)
    assert said(cluster.admin, number) == expected
    assert mine.git("rev-parse", f"refs/pit/{number}^") == mine.head
    job = cluster.admin.job(number)
    assert job["snapshot"] == mine.git("rev-parse", f"refs/pit/{number}")
    assert job["provisioning"].startswith(f"Snapshot {job['snapshot'][:12]}: Git commit {mine.head} with ")


def test_two_jobs_edited_in_between_each_run_their_own_version(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    cluster.admin.call("POST", "/nodes/n0/drain", {})
    numbers = []
    for text in ("first", "second"):
        mine.write({"train.py": f"{text}\n"})
        numbers.append(submitted(pit, script="cat train.py; git rev-parse HEAD; git status --porcelain"))
    mine.write({"train.py": "third\n"})
    cluster.admin.call("POST", "/nodes/n0/resume", {})
    for number, text in zip(numbers, ("first", "second"), strict=True):
        assert said(cluster.admin, number) == f"{text}\n{mine.git('rev-parse', f'refs/pit/{number}')}"


def test_a_rerun_runs_the_same_snapshot_again_even_for_another_user(
    cluster: Cluster, pit: Pit, mine: Repository, tmp_path: Path
) -> None:
    anna = Pit.of(cluster.serving, tmp_path / "annas")
    cluster.user("anna")
    anna.ok("login", PIT_USER="anna", PIT_PASSWORD=PASSWORD)
    Repository.make(anna.project / "code", {"train.py": "anna's\n"})
    anna.project = anna.project / "code"
    number = submitted(anna, script="cat train.py")
    Repository(anna.project).write({"train.py": "later\n"})
    again = int(anna.ok("rerun", str(number)).rpartition(": ")[2])
    assert said(cluster.users["anna"], again) == "anna's"
    by_admin = int(pit.ok("rerun", str(number)).rpartition(": ")[2])
    cluster.users["anna"].done(number)
    anna.ok("remove", f"job:{number}", "--yes")
    assert said(cluster.admin, by_admin) == "anna's"
    assert cluster.admin.job(by_admin)["user"] == "tilman"


def test_the_head_forgets_a_snapshot_with_its_job(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    number = submitted(pit)
    cluster.admin.done(number)
    assert str(number) in refs(cluster)
    pit.ok("remove", f"job:{number}", "--yes")
    assert str(number) not in refs(cluster)
    assert mine.git("rev-parse", "--verify", f"refs/pit/{number}")
    assert f": {number}\n" in pit.ok("gc")
    assert mine.git("for-each-ref", "refs/pit") == ""


def test_versions_are_found_again_by_number_here_and_elsewhere(
    cluster: Cluster, pit: Pit, mine: Repository, tmp_path: Path
) -> None:
    mine.write({"train.py": "print(2)\n", "crlf.txt": "a\r\n", ".gitattributes": "*.txt text eol=lf\n"})
    expected = listed(pit.project)
    number = submitted(pit, "--branch", "tried/this", script="true")
    assert mine.git("rev-parse", "tried/this") == mine.git("rev-parse", f"refs/pit/{number}")
    mine.write({"train.py": "print(3)\n"})
    changes = pit.ok("diff", str(number))
    assert "-print(2)\n+print(3)\n" in changes
    assert "+print(2)" in pit.ok("diff", str(number), "--base")
    other = submitted(pit, script="true")
    assert pit.ok("diff", str(number), str(other), "--name-only") == "train.py\n"
    pit.ok("checkout", str(number), str(tmp_path / "then"))
    assert listed(tmp_path / "then") == expected
    assert "is there already" in pit.fails("checkout", str(number), str(tmp_path / "then"))
    elsewhere = Pit(pit.serving, pit.home, tmp_path, pit.answers)
    elsewhere.ok("checkout", str(number), "there")
    assert listed(tmp_path / "there") == expected
    Repository.make(tmp_path / "third", {"x": "x"})
    assert "print(2)" in Pit(pit.serving, pit.home, tmp_path / "third", pit.answers).ok("diff", str(number))
    assert "there is a branch" in pit.fails("run", "T", "[]", "-d", "true", "--branch", "tried/this")
    assert "cannot be the name" in pit.fails("run", "T", "[]", "-d", "true", "--branch", "a..b")


def test_secrets_and_large_files_are_an_error_in_scripts_and_asked_on_a_terminal(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    mine.write({".env": "KEY=1\n", "data.bin": BINARY})
    said_no = pit.fails("run", "T", "[]", "-d", "true", PIT_MAX_FILE="10k")
    assert ".env" in said_no
    assert "--allow-secrets" in said_no
    said_no = pit.fails("run", "T", "[]", "-d", "true", "--allow-secrets", PIT_MAX_FILE="10k")
    assert "data.bin" in said_no
    assert "--allow-large" in said_no
    with pit.terminal("run", "T", "[]", "-d", "true") as terminal:
        terminal.expect("Send them with the job (y/N)? ")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert mine.git("for-each-ref", "refs/pit") == ""
    with pit.terminal("run", "T", "[]", "-d", "cat .env", "-l") as terminal:
        terminal.expect("Send them with the job (y/N)? ")
        terminal.type("y\n")
        terminal.expect("[worker 0] KEY=1")
        assert terminal.end() == 0
    assert ".env goes along, as before" in pit.run("run", "T", "[]", "-d", "true").stderr


def test_a_repository_with_everything_arrives_exactly(
    cluster: Cluster, pit: Pit, mine: Repository, tmp_path: Path
) -> None:
    """10,000 files, binaries, Git LFS, a submodule with changes, a shallow clone, a branch with slashes."""
    sub = Repository.make(tmp_path / "sub", {"lib.py": "1\n"})
    mine.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", sub.url, "vendor/sub")
    mine.write({f"many/{number % 100}/{number}.txt": f"{number}\n" for number in range(10_000)})
    mine.commit({".gitattributes": "*.lfs filter=lfs -text\n", "model.lfs": BINARY}, *LFS)
    mine.git("checkout", "-q", "-b", "feature/with/slashes")
    mine.write({"vendor/sub/lib.py": "dirty\n", "vendor/sub/new.py": "new\n", "many/7/7.txt": "changed\n"})
    assert said(cluster.admin, submitted(pit)) == listed(pit.project)
    clone = tmp_path / "clone"
    mine.git("-c", "filter.lfs.required=false", "commit", "-q", "-a", "-m", "all")
    subprocess.run(["git", "clone", "-q", "--depth=1", mine.url, str(clone)], env=ENV, check=True)
    (clone / "more.py").write_text("more\n")
    assert said(cluster.admin, submitted(Pit(pit.serving, pit.home, clone, pit.answers))) == listed(clone)


def test_a_job_starts_where_it_was_called_and_sees_the_whole_checkout(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    inside = Pit(pit.serving, pit.home, pit.project / "lib", pit.answers)
    number = submitted(inside, script='basename "$PWD"; ls "$SRC_DIR"')
    assert said(cluster.admin, number) == "lib\nlib\ntrain.py\nx.bin"


def test_a_job_without_a_snapshot_is_said_to_have_none(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    number = submitted(pit, "-s", script="true")
    assert "has no snapshot: jobs with --origin, -a or -s" in pit.fails("diff", str(number))


def test_an_unpushed_change_of_a_private_remote_runs_and_shows_no_credentials(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    mine.git("remote", "add", "origin", "https://me:hush-hush@private.invalid/code.git")
    mine.commit({"unpushed.py": "u\n"})
    shown = json.loads(pit.ok("run", "T", "[]", "-d", "cat unpushed.py; git remote get-url origin", "--json"))
    assert shown["origin"] == "https://private.invalid/code.git"
    assert said(cluster.admin, shown["id"]) == "u\nhttps://private.invalid/code.git"
    assert "hush" not in json.dumps(cluster.admin.job(shown["id"])) + cluster.admin.log(shown["id"])


def test_continuing_a_job_copies_its_keep_directory(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    first = submitted(pit, script='echo one > "$KEEP_DIR/model"')
    cluster.admin.done(first)
    second = submitted(pit, "--continue", str(first), script='cat "$KEEP_DIR/model"; echo two > "$KEEP_DIR/model"')
    assert said(cluster.admin, second) == "one"
    assert (cluster.pit(first) / "keep/model").read_text() == "one\n"


def test_nobody_runs_what_was_not_pushed_by_himself(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    number = submitted(pit)
    commit = cluster.admin.job(number)["snapshot"]
    bert = cluster.user("bert")
    for wrong in (commit, "0" * 40, "refs/pit/1", "../../../etc"):
        with pytest.raises(Exception, match=r"not on the head|must be hashes"):
            bert.submit("ls", snapshot=wrong)


@pytest.mark.timeout(240)
def test_killed_at_random_moments_of_sending_it_leaves_the_checkout_as_it_was_and_works_the_next_time(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    mine.write({f"data/{number}": os.urandom(20_000) for number in range(200)})
    mine.git("add", "train.py")
    before = {name: (mine.path / ".git" / name).read_bytes() for name in ("HEAD", "index", "config")}
    branches = mine.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash")
    command = [str(PROGRAMS / "pit"), "run", "T", "[]", "-d", "true"]
    for step in range(12):
        process = subprocess.Popen(
            command,
            cwd=pit.project,
            env=pit.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Event().wait(0.08 * step)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mine.write({"data/0": os.urandom(20_000)})
    assert {name: (mine.path / ".git" / name).read_bytes() for name in before} == before
    assert mine.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash") == branches
    assert said(cluster.admin, submitted(pit)) == listed(pit.project)
    assert not list((mine.path / ".git").rglob("*.lock"))


def test_two_at_once_in_one_checkout_both_run(cluster: Cluster, pit: Pit, mine: Repository) -> None:
    mine.write({f"data/{number}": os.urandom(2_000) for number in range(100)})
    numbers: list[int] = []
    threads = [threading.Thread(target=lambda: numbers.append(submitted(pit))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbers) == 3
    assert {said(cluster.admin, number) for number in numbers} == {listed(pit.project)}


def test_a_repository_without_a_commit_runs(cluster: Cluster, pit: Pit) -> None:
    fresh = Repository.make(pit.project)
    fresh.write({"a.py": "1\n"})
    assert said(cluster.admin, submitted(pit)) == listed(pit.project)


def test_too_much_for_the_head_is_said(tmp_path: Path) -> None:
    with running_cluster(config="maxSnapshotSize: 100k\n") as small:
        pit = Pit.of(small.serving, tmp_path / "machine")
        pit.ok("login", PIT_USER="tilman", PIT_PASSWORD=PASSWORD)
        mine = Repository(pit.project)
        mine.git("init", "-q")
        mine.write({"data": os.urandom(200_000)})
        assert "maxSnapshotSize" in pit.fails("run", "T", "[]", "-d", "true")
        mine.write({"data": "small\n"})
        assert said(small.admin, submitted(pit)) == listed(pit.project)


def test_over_the_limit_nothing_is_sent_and_the_figures_are_said(tmp_path: Path) -> None:
    service = Serving.start(pick_free_port(), config="maxUserSize: 1M\n")
    try:
        pit = Pit.of(service, tmp_path / "machine").registered("tilman")
        pit.project.rmdir()
        pit.answers = {"GIT_CONFIG_NOSYSTEM": "1"}
        Repository.make(pit.project, {"train.py": "print(1)\n"})
        pit.ok("ls", "home")
        (service.home / "data/home/tilman/large").write_bytes(os.urandom(2_000_000))
        words = pit.fails("run", "T", "[]", "-d", "true")
        assert 'User "tilman" uses 2' in words
        assert " of 1M" in words
        incoming = service.home / "data/cache/tilman/snapshots.git/refs/pit/incoming"
        assert not list(incoming.glob("*"))
        pit.ok("delete", "home", "large")
        pit.ok("run", "T", "[]", "-d", "true")
        assert len(list(incoming.iterdir())) == 1
    finally:
        service.stop()


def test_versions_of_a_checkout_with_an_odd_path_are_found_again(cluster: Cluster, pit: Pit) -> None:
    odd = Pit(pit.serving, pit.home, pit.home.parent / "a%20b c:d", pit.answers)
    mine = Repository.make(odd.project, {"old": "1\n"})
    mine.commit({"old": "2\n"})
    mine.write({"new": "3\n"})
    number = submitted(odd)
    assert said(cluster.admin, number) == listed(odd.project)
    odd.ok("checkout", str(number), "../then")
    then = Repository(pit.home.parent / "then")
    assert listed(then.path) == listed(odd.project)
    assert then.git("rev-list", "--count", "HEAD") == "2"  # without the history before
    assert "+3" in odd.ok("diff", str(number), "--base")


def test_gc_drops_what_was_removed_here_and_keeps_what_another_cluster_knows(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    number, other = submitted(pit, script="true"), submitted(pit, script="true", title="U")
    mine.git("update-ref", "refs/pit/at/elsewhere=3a8080/99", mine.head)
    cluster.admin.done(number)
    pit.ok("rm", f"job:{number}", "-y")
    done = pit.run("gc")
    assert done.stdout == f"Dropped 1 of 3 snapshots: {number}\n"
    assert "Kept: 1 of http://elsewhere:8080" in done.stderr
    assert set(mine.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/pit/[0-9]*").split()) == {str(other)}
    assert mine.git("rev-parse", "refs/pit/at/elsewhere=3a8080/99") == mine.head
    assert "Dropped 2 of 2" in pit.ok("gc", "--all")
    assert mine.git("for-each-ref", "refs/pit") == ""


def test_a_push_with_an_ended_token_asks_for_the_password_and_goes_on(
    cluster: Cluster, pit: Pit, mine: Repository
) -> None:
    (pit.home / ".pituser.txt").write_text("tilman\nno-such-token\n")
    assert "Log in again" in pit.fails("run", "T", "[]", "-d", "true")
    out = pit.ok("run", "T", "[]", "-d", LIST, PIT_PASSWORD=PASSWORD)
    assert said(cluster.admin, int(out.rpartition("=> job number: ")[2])) == listed(pit.project)
