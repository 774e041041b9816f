"""Who sees which data from inside a job, and who may do what with whose job."""

from collections.abc import Iterator

import pytest

from snakepit.errors import Forbidden, NotFound, SnakepitError
from tests.cluster import Cluster, User, running_cluster
from tests.serving import PASSWORD


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        found.user("anna", "students", "staff")
        found.user("bert", "students")
        found.user("carl")
        yield found


@pytest.fixture
def anna(cluster: Cluster) -> User:
    return cluster.users["anna"]


@pytest.fixture
def bert(cluster: Cluster) -> User:
    return cluster.users["bert"]


@pytest.fixture
def carl(cluster: Cluster) -> User:
    return cluster.users["carl"]


def fine(user: User, script: str) -> str:
    """The log of a script in which every line must succeed."""
    job = user.run(f"set -e\n{script}")
    assert job["outcome"] == "succeeded", user.log(job["id"])
    return user.log(job["id"])


def test_shared_data_can_be_read_and_not_written(cluster: Cluster, anna: User) -> None:
    (cluster.root / "shared" / "corpus").write_text("many words\n")
    log = fine(anna, "cat $SHARED_DIR/corpus; ! touch $SHARED_DIR/mine; ! rm $SHARED_DIR/corpus")
    assert "[worker 0] many words" in log
    assert "Read-only file system" in log


def test_a_home_is_its_owners_alone(anna: User, bert: User) -> None:
    fine(anna, "echo secret > $USER_DIR/diary; chmod 644 $USER_DIR/diary")
    assert "[worker 0] secret" in fine(anna, "cat $USER_DIR/diary")
    log = fine(bert, "ls -A $USER_DIR; find / \\( -name diary -o -path '*/home/anna*' \\) 2>/dev/null || true")
    assert "diary" not in log
    assert "anna" not in log


def test_a_groups_directory_is_for_its_members(anna: User, bert: User, carl: User) -> None:
    fine(anna, "echo common > $STUDENTS_GROUP_DIR/plan; echo ours > $STAFF_GROUP_DIR/marks")
    assert "[worker 0] common" in fine(bert, "cat $STUDENTS_GROUP_DIR/plan; echo more >> $STUDENTS_GROUP_DIR/plan")
    log = fine(bert, 'ls /data/rw; echo "staff: $STAFF_GROUP_DIR."')
    assert "group-staff" not in log
    assert "[worker 0] staff: ." in log
    assert "group-" not in fine(carl, "ls /data/rw")


def test_who_left_a_group_sees_its_data_no_longer(cluster: Cluster) -> None:
    dora = cluster.user("dora", "guests")
    fine(dora, "touch $GUESTS_GROUP_DIR/was-here")
    cluster.admin.call("DELETE", "/users/dora/groups/guests")
    assert "group-guests" not in fine(dora, "ls /data/rw")


def test_a_job_cannot_change_its_own_log(anna: User) -> None:
    log = fine(anna, "echo written; ! rm -rf $JOB_DIR/log/* ; ! mv $JOB_DIR/log $JOB_DIR/old; ! touch $JOB_DIR/log/x")
    assert "[worker 0] written" in log


def test_the_service_and_other_jobs_are_out_of_sight(cluster: Cluster, anna: User) -> None:
    other = anna.run("echo private > $SRC_DIR/private-notes")
    log = fine(
        anna, f"ls {cluster.root} 2>&1 || true; ls /data /data/rw; find / -name private-notes 2>/dev/null || true"
    )
    assert "snakepit.db" not in log
    assert "notes" not in log
    assert (cluster.pit(other["id"]) / "src" / "private-notes").exists()


def test_a_home_on_the_node_is_kept_between_jobs(anna: User, bert: User) -> None:
    fine(anna, "mkdir -p $HOME/.cache; echo cached > $HOME/.cache/anna-wheel")
    assert "[worker 0] cached" in fine(anna, "cat $HOME/.cache/anna-wheel")
    assert "anna-wheel" not in fine(bert, "ls -A $HOME/.cache 2>/dev/null || true")


def test_an_unshared_job_is_seen_by_all_and_read_by_its_owner(anna: User, bert: User) -> None:
    job = anna.run("echo mine")
    seen = bert.job(job["id"])
    assert seen["user"] == "anna"
    assert "attempts" not in seen
    for refused in (
        lambda: bert.log(job["id"]),
        lambda: bert.client.stop(job["id"]),
        lambda: bert.client.remove_job(job["id"]),
        lambda: bert.client.rerun(job["id"]),
        lambda: bert.submit("true", continueJob=job["id"]),
        lambda: bert.call("PUT", f"/jobs/{job['id']}/groups/students"),
    ):
        with pytest.raises(Forbidden):
            refused()


def test_sharing_a_job_lets_the_group_read_and_stop_it(anna: User, bert: User, carl: User) -> None:
    number = anna.submit("echo ours > $KEEP_DIR/x; echo up; sleep 1000")
    anna.says(number, "up")
    anna.call("PUT", f"/jobs/{number}/groups/students")
    assert "[worker 0] up" in bert.log(number)
    with pytest.raises(Forbidden):
        carl.client.stop(number)
    with pytest.raises(Forbidden):
        bert.client.remove_job(number)
    bert.client.stop(number)
    assert anna.done(number)["reason"] == "Stopped by user bert"
    continued = bert.run("cat $KEEP_DIR/x", continueJob=number)
    assert "[worker 0] ours" in bert.log(continued["id"])
    anna.call("DELETE", f"/jobs/{number}/groups/students")
    with pytest.raises(Forbidden):
        bert.log(number)


def test_one_shares_only_with_groups_of_ones_own(bert: User) -> None:
    job = bert.run("true")
    with pytest.raises(Forbidden):
        bert.call("PUT", f"/jobs/{job['id']}/groups/staff")
    with pytest.raises(NotFound):
        bert.call("PUT", f"/jobs/{job['id']}/groups/nowhere")


def test_autoshare_shares_what_is_not_private(anna: User, bert: User) -> None:
    anna.call("POST", "/users/anna", {"autoshare": ["students"], "verification": PASSWORD})
    try:
        shared, private = anna.run("echo a"), anna.run("echo b", private=True)
    finally:
        anna.call("POST", "/users/anna", {"autoshare": [], "verification": PASSWORD})
    assert shared["groups"] == ["students"]
    assert private["groups"] is False
    assert "[worker 0] a" in bert.log(shared["id"])
    with pytest.raises(Forbidden):
        bert.log(private["id"])


def test_data_of_a_job_are_read_over_http_by_whoever_may(anna: User, bert: User) -> None:
    job = anna.run("echo 0.97 > $KEEP_DIR/score; ln -s /etc/passwd $KEEP_DIR/link; ln -s ../../.. $KEEP_DIR/up")
    path = f"/jobs/{job['id']}/simplefs/content/keep"
    assert anna.client.answer("GET", f"{path}/score").read() == b"0.97\n"
    for outside in ("link", "up/snakepit.db", "../../../snakepit.db"):
        with pytest.raises(SnakepitError):
            anna.client.answer("GET", f"{path}/{outside}")
    with pytest.raises(Forbidden):
        bert.client.answer("GET", f"{path}/score")
