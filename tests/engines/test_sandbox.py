"""What a process can and cannot do from inside its sandbox. Each probe is tried with the real bubblewrap."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from snakepit.core.domains import Mount
from snakepit.core.job import Cause
from snakepit.engines.base import Go
from snakepit.engines.local import LocalEngine, LocalOptions
from snakepit.errors import ConfigError, NotNow, Rejected
from tests.engines.bench import Bench, launch, process, room, run, shell

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    "probe",
    [
        "mount -o remount,rw /usr",
        "mount -o remount,rw /",
        "unshare --user --map-root-user --mount mount -o remount,rw /usr",
        "unshare --user --map-root-user --mount umount /usr",
        "touch /usr/written",
        "touch /written",
        "touch /etc/written",
        "mknod /tmp/disk b 8 0",
        "unshare --user --map-root-user mknod /tmp/disk b 8 0",
        "cat /etc/shadow",
        "ls /etc/ssh",
        "ls /root",
        "ls /sys/fs/cgroup",
        "chroot / true",
        "echo 1 > /proc/sys/kernel/panic",
    ],
)
def test_from_inside_it_fails_to(probe: str) -> None:
    async def story() -> None:
        async with room() as here:
            ended, log = await here.run(shell(process(1), f"{probe} && echo DONE; exit 0"))
            assert (ended.cause, ended.code) == (Cause.EXIT, 0)
            assert "DONE" not in log

    run(story())


def test_inside_there_are_no_powers_no_strangers_and_no_traces_of_the_node() -> None:
    async def story() -> None:
        async with room() as here:
            script = """
                grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status
                echo processes $(ls -d /proc/[0-9]* | wc -l)
                echo uid $(id -u) host $(hostname) home $HOME
                ls /; ls /home; ls -a /tmp | wc -l; ls /dev
                find / -maxdepth 4 -name 'agent.pyz' 2>/dev/null
                touch $HOME/kept /tmp/gone /dev/shm/gone && echo writable
            """
            ended, log = await here.run(shell(process(1), script))
            assert ended.succeeded, log
            words = log.split()
            assert words[words.index("CapEff:") + 1] == "0" * 16
            assert words[words.index("CapPrm:") + 1] == "0" * 16
            assert int(words[words.index("processes") + 1]) <= 6
            assert words[words.index("uid") + 1] != "0"
            assert words[words.index("host") + 1] == "sp-n0-1-0"
            assert words[words.index("home") + 1] == "/home/anna"
            assert "agent.pyz" not in log
            assert "writable" in log
            assert not {"work", "root", "mnt", "srv"} & set(words)
            assert (here.bench.state / "homes" / "anna" / "kept").exists()

    run(story())


def test_mounts_are_seen_where_they_should_be_writable_or_not() -> None:
    async def story() -> None:
        async with room() as here:
            pit = here.bench.directory("pit")
            here.bench.directory("pit/log")
            shared = here.bench.directory("shared")
            (shared / "set").write_text("data")
            mounts = (
                Mount(str(pit), "/data/rw/pit", True),
                Mount(str(pit / "log"), "/data/rw/pit/log", False),
                Mount(str(shared), "/data/ro/shared", False),
            )
            script = """
                cat /data/ro/shared/set; echo; pwd
                echo made > /data/rw/pit/made; echo 42 > $RESULT_FILE
                touch /data/ro/shared/no || touch /data/rw/pit/log/no || rmdir /data/rw/pit/log || echo kept out
            """
            one = shell(process(1), script, mounts=mounts, cwd="/data/rw/pit", result_file="/data/rw/pit/result")
            ended, log = await here.run(one, environment={"RESULT_FILE": "/data/rw/pit/result"})
            assert ended.succeeded, log
            assert log.startswith("data\n/data/rw/pit\n")
            assert log.rstrip().endswith("kept out")
            assert (pit / "made").read_text() == "made\n"
            assert ended.result == "42\n"

    run(story())


@pytest.mark.parametrize("lie", ["ln -s {secret} result", "mkdir x; rm -r w; ln -s {top} w", "mkfifo result"])
def test_a_result_file_that_leads_elsewhere_is_not_followed(lie: str) -> None:
    async def story() -> None:
        async with room() as here:
            pit, secret = here.bench.directory("pit"), here.bench.directory("other") / "result"
            here.bench.directory("pit/w")
            secret.write_text("of another user")
            script = lie.format(secret=secret, top=secret.parent)
            name = "/data/rw/pit/w/result" if " w" in lie else "/data/rw/pit/result"
            mounts = (Mount(str(pit), "/data/rw/pit", True),)
            ended, log = await here.run(shell(process(1), script, mounts=mounts, cwd="/data/rw/pit", result_file=name))
            assert ended.succeeded, log
            assert ended.result == ""

    run(story())


def test_an_outer_directory_below_usr_can_be_hidden() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to lay something below /usr")
    with tempfile.TemporaryDirectory(dir="/usr/local", prefix="snakepit-root-") as top:
        Path(top).chmod(0o755)
        Path(top, "secret").write_text("of all users")

        async def story() -> None:
            async with room(hidden=(top,)) as here:
                _, log = await here.run(shell(process(1), f"ls -A {top} | wc -l; cat {top}/secret"))
                assert log.startswith("0\n")
                assert "of all users" not in log

        run(story())


def test_temporary_files_go_with_the_process_and_the_home_stays() -> None:
    async def story() -> None:
        async with room() as here:
            script = "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; chmod 0 /tmp/a; echo kept > ~/file"
            ended, log = await here.run(shell(process(1), script))
            assert ended.succeeded, log
            await here.engine.clean([process(1).attempt])
            _, log = await here.run(shell(process(2), "ls -A /tmp; cat ~/file"))
            assert log == "kept\n"
            _, log = await here.run(shell(process(3), "ls -A ~", user="bert"))
            assert log == ""
            assert stat.S_IMODE((here.bench.state / "homes" / "bert").stat().st_mode) == 0o700

    run(story())


def test_what_cannot_be_run_says_so() -> None:
    async def story() -> None:
        async with room() as here:
            ended, log = await here.run(launch(process(1), "/no/such/program"))
            assert ended.code != 0
            assert "/no/such/program" in log
            ended, log = await here.run(shell(process(2), "true", cwd="/no/such/place"))
            assert ended.code != 0
            assert "/no/such/place" in ended.note

    run(story())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"user": "../../etc"}, Rejected, "not a name"),
        ({"user": "a/b"}, Rejected, "not a name"),
        ({"mounts": (Mount("/no/such/source", "/data/x", True),)}, NotNow, "is not there"),
        ({"mounts": (Mount("usr", "/data/x", True),)}, Rejected, "whole paths"),
        ({"ports": 20000}, NotNow, "ports"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_with_the_reason(
    changes: dict[str, object], error: type[Exception], words: str
) -> None:
    async def story() -> None:
        async with room() as here:
            with pytest.raises(error, match=words):
                await here.engine.create([launch(process(1), "/bin/true", **changes)])
            assert await here.engine.look() == []

    run(story())


def test_nothing_of_a_user_runs_as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is about root")

    async def story() -> None:
        bench = Bench.make()
        engine = LocalEngine("n0", bench.state, "root", 1, LocalOptions())
        with pytest.raises(Rejected, match="never run as root"):
            await engine.create([launch(process(1), "/bin/true")])
        with pytest.raises(Rejected, match="never run as root"):
            await engine.go([Go(process(1))])
        await bench.take_down()

    run(story())


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="isolation is"):
        LocalOptions(isolation="maybe")
    with pytest.raises(ConfigError, match="cannot read the resource"):
        LocalOptions(declared="0:thing")
