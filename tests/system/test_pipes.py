"""Pipes with the real programs: what is carried, what is seen, what stays outside, how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snakepit.client.client import Client
from snakepit.client.pipe import Pipe, open_pipe
from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError, Unauthorized
from tests.cluster import Cluster, User, running_cluster
from tests.serving import PASSWORD
from tests.sftp import Refused, Sftp
from tests.waiting import wait_until

SECRET = b"bob's secret"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(gpus="") as running:
        running.user("anna")
        running.user("bob", "lab")
        (running.root / "home" / "bob" / "secret.txt").write_bytes(SECRET)
        (running.root / "groups" / "lab" / "notes.txt").write_bytes(SECRET)
        (running.root / "shared" / "data.txt").write_bytes(b"for all")
        yield running


@pytest.fixture(scope="module")
def anna(cluster: Cluster) -> User:
    return cluster.users["anna"]


@pytest.fixture(scope="module")
def bob(cluster: Cluster) -> User:
    return cluster.users["bob"]


@pytest.fixture
def open_sftp() -> Iterator[Callable[..., Sftp]]:
    """Opens pipes that are closed after the test."""
    opened: list[Pipe] = []

    def pipe(user: User, entity: str, token: str = "") -> Sftp:
        client = Client(user.serving.url, user.name, token or user.token)
        opened.append(open_pipe(client, f"/pipes/sftp?entity={entity}"))
        return Sftp(opened[-1].socket)

    yield pipe
    for each in opened:
        each.close()


def sandboxes(directory: Path) -> list[int]:
    """The processes whose command line names this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"bwrap") and os.fsencode(directory) in words:
                found.append(int(entry.name))
    return found


# --------------------------------------------------------------------------------------------------------- what is seen


def test_a_home_is_read_and_written(cluster: Cluster, anna: User, open_sftp: Callable[..., Sftp]) -> None:
    sftp = open_sftp(anna, "home")
    assert sftp.realpath(".") == "/data"
    sftp.write("weights.bin", bytes(range(256)) * 100)
    assert (cluster.root / "home" / "anna" / "weights.bin").read_bytes() == bytes(range(256)) * 100
    assert sftp.read("weights.bin") == bytes(range(256)) * 100
    assert open_sftp(anna, "user:anna").names() >= {"weights.bin"}


def test_members_use_the_directory_of_their_group(cluster: Cluster, bob: User, open_sftp: Callable[..., Sftp]) -> None:
    sftp = open_sftp(bob, "group:lab")
    assert sftp.read("notes.txt") == SECRET
    sftp.write("more.txt", b"x")
    assert (cluster.root / "groups" / "lab" / "more.txt").read_bytes() == b"x"


def test_nothing_but_the_one_directory_is_to_be_seen(
    cluster: Cluster, anna: User, open_sftp: Callable[..., Sftp]
) -> None:
    sftp = open_sftp(anna, "home")
    assert sftp.names("/") <= {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "data"}
    assert sftp.names("/etc") == {"passwd", "group", "nsswitch.conf", "ld.so.cache"}
    assert sftp.names("/dev") == {"null", "urandom"}
    assert sftp.names("..") == sftp.names("/")
    for path in ("/proc", "/sys", "/tmp", "/home", str(cluster.root), "../../../../home/bob", "/etc/shadow"):
        with pytest.raises(Refused):
            sftp.names(path)
    for path in (f"{cluster.root}/home/bob/secret.txt", "../bob/secret.txt", "/data/../bob/secret.txt"):
        with pytest.raises(Refused):
            sftp.read(path)


def test_nothing_is_written_beside_the_one_directory(anna: User, open_sftp: Callable[..., Sftp]) -> None:
    sftp = open_sftp(anna, "home")
    for path in ("/x", "/dev/x", "/etc/x", "/usr/x", "/tmp/x", "../x"):
        with pytest.raises(Refused):
            sftp.write(path, b"x")
    sftp.write("stays", b"x")
    with pytest.raises(Refused):
        sftp.rename("stays", "../gone")


def test_nobody_shuts_a_door_for_all(cluster: Cluster, bob: User, open_sftp: Callable[..., Sftp]) -> None:
    """A member may take the rights of the group's directory away, as a job may; the next one finds it open again."""
    (cluster.root / "groups" / "lab").chmod(0)
    assert "notes.txt" in open_sftp(bob, "group:lab").names()


def test_links_that_lead_out_lead_nowhere(
    cluster: Cluster, anna: User, bob: User, open_sftp: Callable[..., Sftp]
) -> None:
    outside = f"{cluster.root}/home/bob"
    script = (
        f'for there in "$USER_DIR" "$JOB_DIR"; do ln -s {outside} "$there/bob"; ln -s / "$there/all"; '
        'ln -s /proc/1/root "$there/one"; ln -s ../bob/secret.txt "$there/near"; done'
    )
    job = anna.submit(script)
    assert anna.done(job)["outcome"] == "succeeded", anna.log(job)
    for entity in ("home", f"job:{job}"):
        sftp = open_sftp(anna, entity)
        assert sftp.names(".") >= {"bob", "all", "one", "near"}
        for path in ("bob", "one", "all/home", "all/root", f"all{outside}"):
            with pytest.raises(Refused):
                sftp.names(path)
        for path in ("near", "bob/secret.txt", "one/etc/shadow", "all/etc/shadow", f"all{outside}/secret.txt"):
            with pytest.raises(Refused):
                sftp.read(path)
    own = open_sftp(anna, "home")
    own.symlink(f"{outside}/secret.txt", "by-sftp")
    with pytest.raises(Refused):
        own.read("by-sftp")


def test_nobody_opens_what_is_not_his(cluster: Cluster, anna: User, bob: User) -> None:
    job = bob.submit("true")
    bob.done(job)
    for path, error in (
        ("sftp?entity=user:bob", Forbidden),
        ("sftp?entity=group:lab", Forbidden),
        (f"sftp?entity=job:{job}", Forbidden),
        (f"sftp?entity={job}", Forbidden),
        ("sftp?entity=job:999999", NotFound),
        ("sftp?entity=job:99999999999999", NotFound),
        ("sftp?entity=group:nobody", Forbidden),
        ("sftp?entity=user:../bob", BadRequest),
        ("sftp?entity=user:", BadRequest),
        ("sftp?entity=home:bob", BadRequest),
        ("sftp?entity=/etc", BadRequest),
        ("sftp", BadRequest),
        ("sftp?entity=home&entity=user:bob", Forbidden),
        ("sftp?entity=home&args=-e", BadRequest),
        ("rsync?entity=user:bob&path=.&args=--server&args=--sender&args=-r", Forbidden),
        ("rsync?entity=home&path=../bob&args=--server&args=--sender&args=-r", NotFound),
        ("git?repository=../bob/snapshots.git&service=upload-pack", BadRequest),
        ("git?repository=snapshots&service=archive", BadRequest),
    ):
        with pytest.raises(error):
            open_pipe(anna.client, f"/pipes/{path}").close()
    with pytest.raises(Unauthorized):
        open_pipe(Client(cluster.serving.url, "anna", "no-token"), "/pipes/sftp?entity=home")
    with pytest.raises(Unauthorized):
        open_pipe(Client(cluster.serving.url), "/pipes/sftp?entity=home")


def test_jobs_and_shared_data_are_read_only_while_the_job_runs(
    cluster: Cluster, anna: User, open_sftp: Callable[..., Sftp]
) -> None:
    job = anna.submit('echo first > "$KEEP_DIR/out"; until [ -e "$USER_DIR/go-on" ]; do sleep 0.1; done')
    anna.reaches(job, 4)
    sftp = open_sftp(anna, f"job:{job}")
    wait_until(lambda: "out" in sftp.names("keep"))
    assert sftp.read("keep/out") == b"first\n"
    for each, path in ((sftp, "keep/out"), (sftp, "new"), (open_sftp(anna, "shared"), "data.txt")):
        with pytest.raises(Refused, match="Permission denied"):
            each.write(path, b"changed")
    assert open_sftp(anna, "shared").read("data.txt") == b"for all"
    (cluster.root / "home" / "anna" / "go-on").touch()
    anna.done(job)


def test_a_job_whose_directory_is_gone_is_a_clear_no(cluster: Cluster, anna: User) -> None:
    job = anna.submit("true")
    anna.done(job)
    cluster.pit(job).rename(cluster.root / "trash" / f"x{job}")
    with pytest.raises(NotFound, match="does not exist"):
        open_pipe(anna.client, f"/pipes/sftp?entity=job:{job}")


# --------------------------------------------------------------------------------------------------------- how they end


def _logout(cluster: Cluster, user: User, token: str) -> None:
    Client(cluster.serving.url, user.name, token).call("POST", "/users/~/logout")


def _token_deleted(cluster: Cluster, user: User, token: str) -> None:
    tokens = user.call("GET", "/users/~/tokens")
    newest = max(row["id"] for row in tokens)
    user.call("DELETE", f"/users/~/tokens/{newest}")


def _password_changed(cluster: Cluster, user: User, token: str) -> None:
    user.call("POST", "/users/~", {"verification": PASSWORD, "password": "another-horse-8"})


def _left_the_group(cluster: Cluster, user: User, token: str) -> None:
    cluster.admin.call("DELETE", f"/users/{user.name}/groups/team")


def _group_removed(cluster: Cluster, user: User, token: str) -> None:
    cluster.admin.call("DELETE", "/groups/team")


def _user_removed(cluster: Cluster, user: User, token: str) -> None:
    cluster.admin.call("DELETE", f"/users/{user.name}")


@pytest.mark.parametrize(
    ("name", "entity", "revoke"),
    [
        ("cara", "home", _logout),
        ("dora", "home", _token_deleted),
        ("emma", "home", _password_changed),
        ("fred", "group:team", _left_the_group),
        ("gina", "group:team", _group_removed),
        ("hans", "home", _user_removed),
    ],
)
def test_a_pipe_ends_at_once_with_its_right(
    cluster: Cluster,
    name: str,
    entity: str,
    revoke: Callable[[Cluster, User, str], None],
    open_sftp: Callable[..., Sftp],
) -> None:
    user = cluster.user(name, "team")
    token = user.client.authenticate(name, PASSWORD)
    other = open_sftp(cluster.users["anna"], "home")
    sftp = open_sftp(user, entity, token)
    sftp.write("before", b"x")
    directory = cluster.root / ("home" if entity == "home" else "groups") / (name if entity == "home" else "team")
    assert sandboxes(directory)
    revoke(cluster, user, token)
    assert sftp.is_ended()
    wait_until(lambda: not sandboxes(directory), message="the program is gone")
    other.names()  # nobody else's ended
    with pytest.raises(SnakepitError):
        open_sftp(user, entity, token)


def test_a_sharers_pipe_ends_when_the_job_is_shared_no_more(
    cluster: Cluster, anna: User, open_sftp: Callable[..., Sftp]
) -> None:
    ida = cluster.user("ida", "sharers")
    cluster.user("anna", "sharers")
    job = anna.submit("true")
    anna.done(job)
    anna.call("PUT", f"/jobs/{job}/groups/sharers")
    theirs, own = open_sftp(ida, f"job:{job}"), open_sftp(anna, f"job:{job}")
    theirs.names()
    anna.call("DELETE", f"/jobs/{job}/groups/sharers")
    assert theirs.is_ended()
    own.names()
    anna.call("DELETE", f"/jobs/{job}")
    assert own.is_ended()


def test_a_program_ends_with_its_connection(cluster: Cluster) -> None:
    user = cluster.user("kurt")
    directory = cluster.root / "home" / "kurt"
    sftp = Sftp(open_pipe(user.client, "/pipes/sftp?entity=home").socket)
    assert sandboxes(directory)
    sftp.socket.close()
    wait_until(lambda: not sandboxes(directory))


def test_fifty_pipes_at_once(cluster: Cluster, open_sftp: Callable[..., Sftp]) -> None:
    user = cluster.user("lars")
    with ThreadPoolExecutor(10) as threads:
        pipes = list(threads.map(lambda _: open_sftp(user, "home"), range(50)))
        list(threads.map(lambda pair: pair[1].write(f"file{pair[0]}", b"x" * pair[0]), enumerate(pipes)))
    assert pipes[7].names() == {f"file{number}" for number in range(50)}
    assert user.call("GET", "/users/~")["id"] == "lars"  # and the rest of the service answers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_pipes_end_promptly_with_the_service(number: signal.Signals, open_sftp: Callable[..., Sftp]) -> None:
    with running_cluster(gpus="") as own:
        user = own.user("maya")
        pipes = [open_sftp(user, "home") for _ in range(3)]
        own.serving.process.send_signal(number)
        assert all(pipe.is_ended() for pipe in pipes)
        own.serving.process.wait(timeout=30)
        wait_until(lambda: not sandboxes(own.root / "home" / "maya"))
