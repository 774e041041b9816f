"""`pit mount`: a real sshfs through the real service. What is written there is there, what may not be written is not;
when the service goes, the mount comes again."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.processes import family
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pit(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Pit:
    return Pit.of(serving, tmp_path_factory.mktemp("us er, it's")).registered("tilman")


@contextmanager
def mounted(pit: Pit, entity: str) -> Iterator[Path]:
    mountpoint = Path(tempfile.mkdtemp(dir=pit.project))
    command = [str(PROGRAMS / "pit"), "mount", entity, str(mountpoint)]
    with subprocess.Popen(
        command, cwd=pit.project, env=pit.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"mounted ")
            yield mountpoint
        finally:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            said = process.stderr.read().decode()
            code = process.wait(timeout=30)
            if mountpoint.is_mount():  # a failed test holds a file open; what it started must go
                subprocess.run(["umount", "--lazy", mountpoint], check=True)
            assert code == 0, said
    assert "unmounted" in said
    assert not mountpoint.is_mount()
    mountpoint.rmdir()


def works(deed: Callable[[], object]) -> bool:
    try:
        deed()
    except OSError:
        return False
    return True


def test_a_home_is_read_and_written_through_the_mount(pit: Pit, home: Path) -> None:
    with mounted(pit, "home") as there:
        (there / "deep").mkdir()
        data = os.urandom(5_000_000)
        (there / "deep" / "file").write_bytes(data)
        assert (home / "deep" / "file").read_bytes() == data
        os.replace(there / "deep" / "file", there / "moved")  # noqa: PTH105
        assert (home / "moved").read_bytes() == data
        with (there / "moved").open("r+b") as file:
            file.seek(1000)
            file.write(b"changed")
        assert (home / "moved").read_bytes() == data[:1000] + b"changed" + data[1007:]
        odd = os.fsdecode(b"na\xffme \n")
        (there / odd).write_text("odd")
        assert (home / odd).read_text() == "odd"
        (there / "deep" / "x").mkdir()
        assert not works((there / "deep").rmdir)


def test_a_job_is_read_only_and_grows_before_ones_eyes(pit: Pit) -> None:
    job = pit.submit(
        "echo first > $KEEP_DIR/out; while [ ! -e $USER_DIR/go ]; do sleep 0.1; done; echo second >> $KEEP_DIR/out"
    )
    with mounted(pit, str(job)) as there:
        wait_until(lambda: works(lambda: (there / "keep" / "out").stat()))
        wait_until(lambda: (there / "keep" / "out").read_text() == "first\n")
        for deed in (
            lambda: (there / "keep" / "mine").write_text("x"),
            lambda: (there / "keep" / "out").unlink(),
            lambda: (there / "new").mkdir(),
            lambda: (there / "keep" / "out").chmod(0o777),
        ):
            with pytest.raises(OSError) as caught:
                deed()
            assert caught.value.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        subprocess.run([PROGRAMS / "pit", "push", "home", "go"], input=b"", env=pit.environment(), check=True)
        pit.ok("wait", str(job))
        wait_until(lambda: (there / "keep" / "out").read_text() == "first\nsecond\n")


def test_shared_data_are_read_only(pit: Pit, serving: Serving) -> None:
    (serving.home / "data" / "shared" / "s").write_text("for all")
    with mounted(pit, "shared") as there:
        assert (there / "s").read_text() == "for all"
        with pytest.raises(OSError, match="Read-only"):
            (there / "s").write_text("mine")


def test_a_killed_service_gives_errors_then_works_again(pit: Pit, home: Path, serving: Serving) -> None:
    old, new = os.urandom(3_000_000), os.urandom(3_000_000)
    with mounted(pit, "home") as there:
        (there / "f").write_bytes(old)
        before = (there / "f").open("rb", buffering=0)
        assert before.read(1000) == old[:1000]
        serving.kill()
        # Its programs end with it, in their own time.
        wait_until(lambda: not works(lambda: (there / "never").write_text("x")))
        serving.start_again()
        (home / "f").write_bytes(new)
        wait_until(lambda: works(lambda: (there / "g").write_text("again")))
        assert (home / "g").read_text() == "again"
        # What the old handle still gives, if anything, is what was there when it was opened.
        with contextlib.suppress(OSError):
            assert before.read(1000) == old[1000:2000]
        assert not works(before.readall)
        with contextlib.suppress(OSError):
            before.close()
        wait_until(lambda: (there / "f").read_bytes() == new)


def test_a_write_that_the_service_never_got_is_an_error(pit: Pit, serving: Serving) -> None:
    with mounted(pit, "home") as there:
        file = (there / "lost").open("wb", buffering=0)
        file.write(b"begun")
        os.fsync(file.fileno())
        serving.kill()

        def more() -> None:
            file.write(b"x" * 100_000)
            os.fsync(file.fileno())

        wait_until(lambda: not works(more))
        with contextlib.suppress(OSError):
            file.close()
        serving.start_again()
        wait_until(lambda: works(lambda: (there / "lost").read_bytes()))
        assert (there / "lost").read_bytes().removeprefix(b"begun").strip(b"x") == b""


def test_ctrl_c_unmounts_and_a_temporary_mountpoint_goes(pit: Pit) -> None:
    with pit.terminal("mount", "home") as terminal:
        terminal.expect("mounted http://127.0.0.1")
        mountpoint = Path(terminal.expect("\n").rpartition(" to ")[2].strip())
        terminal.expect("press Ctrl-C to unmount")
        assert mountpoint.is_mount()
        terminal.interrupt()
        terminal.expect(f"filesystem at {mountpoint} unmounted")
        assert terminal.end() == 0
    assert not mountpoint.exists()


def test_a_cluster_that_does_not_answer_keeps_nobody_from_unmounting(pit: Pit, serving: Serving) -> None:
    stopped: list[int] = []
    try:
        with mounted(pit, "home") as there:
            (there / "known").write_text("for a while")
            time.sleep(3)  # so long that a look at it would be a question again
            for pid in family(serving.process.pid):
                if Path(f"/proc/{pid}/comm").read_text() == "sftp-server\n":
                    stopped.append(pid)
                    os.kill(pid, signal.SIGSTOP)
            assert stopped
        assert not there.is_mount()
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_signals_that_come_while_it_unmounts_do_not_keep_it_from_that(pit: Pit, tmp_path: Path) -> None:
    """A terminal that is closed hangs up more than once."""
    begun, go, mountpoint = tmp_path / "begun", tmp_path / "go", tmp_path / "mountpoint"
    mountpoint.mkdir()
    for name in ("fusermount3", "fusermount"):
        if (real := shutil.which(name)) is not None:
            wait = f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"
            (tmp_path / name).write_text(f'#!/bin/sh\n[ "$1" != -u ] || {{ {wait}; }}\nexec {real} "$@"\n')
            (tmp_path / name).chmod(0o755)
    environment = pit.environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    command = [str(PROGRAMS / "pit"), "mount", "home", str(mountpoint)]
    with subprocess.Popen(command, cwd=pit.project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"mounted ")
        process.send_signal(signal.SIGHUP)
        wait_until(begun.exists, message="it unmounts")
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        go.touch()
        assert process.wait(timeout=60) == 0
    assert not mountpoint.is_mount()


def test_a_shell_in_the_mount_unmounts_when_it_ends(pit: Pit, home: Path) -> None:
    with pit.terminal("mount", "home", "--shell", SHELL="/bin/bash") as terminal:
        terminal.expect("mounted http://127.0.0.1")
        mountpoint = Path(terminal.expect("\n").rpartition(" to ")[2].strip())
        terminal.expect('secondary shell: call "exit" to end and unmount')
        terminal.type("pwd; echo from shell > by-shell; exit\n")
        terminal.expect(f"filesystem at {mountpoint} unmounted")
        assert terminal.end() == 0
        assert str(mountpoint) in terminal.shown
    assert (home / "by-shell").read_text() == "from shell\n"
    assert not mountpoint.exists()


def test_umount_ends_a_mount_from_elsewhere(pit: Pit) -> None:
    command = [str(PROGRAMS / "pit"), "mount", "home"]
    with subprocess.Popen(command, cwd=pit.project, env=pit.environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        mountpoint = Path(process.stdout.readline().decode().rpartition(" to ")[2].strip())
        assert "no mountpoint" in pit.fails("umount", "/tmp")
        elsewhere = pit.project / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / ".pitconnect.txt").write_text("http://localhost:1\n")
        assert "home is no mountpoint" in replace(pit, project=elsewhere).fails("umount", "home")
        pit.ok("umount", "home")
        assert process.wait(timeout=60) == 0
    assert not mountpoint.exists()
    assert "Nothing is mounted" in pit.fails("umount")


def test_bad_mountpoints_and_entities_are_refused(pit: Pit) -> None:
    full = pit.project / "full"
    full.mkdir()
    (full / "x").write_text("x")
    assert "is not empty" in pit.fails("mount", "home", "full")
    assert "does not exist" in pit.fails("mount", "home", "nowhere")
    assert "is no directory" in pit.fails("mount", "home", "full/x")
    assert "Job not found" in pit.fails("mount", "999")
    assert "no place for files" in pit.fails("mount", "nothing", code=2)
    with mounted(pit, "home") as there:
        assert "in use" in pit.fails("mount", "home", str(there))
    assert (full / "x").read_text() == "x"
    assert not list(Path(tempfile.gettempdir()).glob("pit-mount-job999-*"))


def test_a_missing_sshfs_is_said_with_the_install_line(pit: Pit) -> None:
    assert "apt-get install sshfs" in pit.fails("mount", "home", PATH=str(PROGRAMS))


def test_who_has_no_room_left_is_told_with_figures_and_may_mount_to_make_some(tmp_path: Path) -> None:
    service = Serving.start(pick_free_port(), config="maxUserSize: 1M\n")
    try:
        pit = Pit.of(service, tmp_path / "machine").registered("tilman")
        pit.ok("ls", "home")
        large = service.home / "data" / "home" / "tilman" / "large"
        large.write_bytes(os.urandom(2_000_000))
        (pit.project / "more").write_text("more")
        said = pit.fails("sync", "more", "home:more")
        assert 'User "tilman" uses 2' in said
        assert "broke off" not in said
        with pit.terminal("mount", "home", "--shell", SHELL="/bin/sh") as terminal:
            terminal.expect('Note: User "tilman" uses 2')
            terminal.expect("of 1M")
            terminal.expect("secondary shell")
            terminal.type("rm large; exit\n")
            assert terminal.end() == 0
        assert not large.exists()
        wait_until(lambda: "Note" not in pit.run("mount", "home", "--shell", SHELL="/bin/true").stderr)
    finally:
        service.stop()


def test_a_busy_mount_is_not_torn_away(pit: Pit) -> None:
    command = [str(PROGRAMS / "pit"), "mount", "home"]
    with subprocess.Popen(
        command, cwd=pit.project, env=pit.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        mountpoint = Path(process.stdout.readline().decode().rpartition(" to ")[2].strip())
        with (mountpoint / "held").open("w") as held:
            process.send_signal(signal.SIGINT)
            said = process.stderr.read().decode()
            assert process.wait(timeout=30) == 1
            assert "unable to unmount" in said
            assert "umount --lazy" in said
            held.write("still written")
        pit.ok("umount", str(mountpoint))
    assert not mountpoint.exists()
    assert pit.ok("cat", "home", "held") == "still written"


# ------------------------------------------------------------------------------------- any sequence, as on a local disk

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d", "ä ö", "d/e"])


class Mirrored(RuleBasedStateMachine):
    """Every step is done in the mount and in a plain directory; both say the same, and hold the same."""

    there: Path
    here: Path
    serving: Serving
    kills = 0

    def __init__(self) -> None:
        super().__init__()
        for top in (self.there, self.here):
            for each in top.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def both(self, deed: Callable[[Path], object]) -> None:
        results: list[object] = []
        for top in (self.here, self.there):
            try:
                results.append(deed(top))
            except OSError as problem:
                results.append(type(problem))
        kinds = (PermissionError, OSError, FileExistsError, IsADirectoryError, NotADirectoryError, FileNotFoundError)
        if results[0] in kinds:  # sftp has fewer words for failures than the kernel; that it fails is what counts
            assert results[1] in kinds, results
        else:
            assert results[0] == results[1]

    @rule(name=NAMES, data=st.binary(max_size=200_000))
    def write(self, name: str, data: bytes) -> None:
        self.both(lambda top: (top / name).write_bytes(data))

    @rule(name=NAMES, offset=st.integers(0, 300_000), data=st.binary(min_size=1, max_size=70_000))
    def write_within(self, name: str, offset: int, data: bytes) -> None:
        def deed(top: Path) -> object:
            with (top / name).open("r+b") as file:
                file.seek(offset)
                return file.write(data)

        self.both(deed)

    @rule(name=NAMES, data=st.binary(min_size=1, max_size=1000))
    def append(self, name: str, data: bytes) -> None:
        def deed(top: Path) -> object:
            with (top / name).open("ab") as file:
                return file.write(data)

        self.both(deed)

    @rule(name=NAMES, offset=st.integers(0, 200_000), size=st.integers(0, 150_000))
    def read(self, name: str, offset: int, size: int) -> None:
        def deed(top: Path) -> object:
            with (top / name).open("rb") as file:
                file.seek(offset)
                return file.read(size)

        self.both(deed)

    @rule(name=NAMES, size=st.integers(0, 300_000))
    def truncate(self, name: str, size: int) -> None:
        self.both(lambda top: os.truncate(top / name, size))

    @rule(name=NAMES)
    def mkdir(self, name: str) -> None:
        self.both(lambda top: (top / name).mkdir())

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda top: os.rename(top / old, top / new))  # noqa: PTH104

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.both(lambda top: (top / name).rmdir() if (top / name).is_dir() else (top / name).unlink())

    @rule()
    def restart(self) -> None:
        """Rarely, as it takes its time: the service dies, and what comes after works again."""
        Mirrored.kills += 1
        if Mirrored.kills % 10 == 1:
            self.serving.kill()
            self.serving.start_again()
            probe = self.there.parent / "probe"  # what is only looked at may be known from before
            wait_until(lambda: works(lambda: probe.write_text("again")))

    @invariant()
    def same_names(self) -> None:
        assert sorted(each.name for each in self.here.iterdir()) == sorted(each.name for each in self.there.iterdir())

    def teardown(self) -> None:
        for file in self.here.rglob("*"):
            if file.is_file():
                assert file.read_bytes() == (self.there / file.relative_to(self.here)).read_bytes()


def test_any_sequence_of_steps_does_what_it_does_on_a_local_disk(pit: Pit, serving: Serving, tmp_path: Path) -> None:
    pit.ok("mkdir", "home", "mirrored")
    with mounted(pit, "home") as there:
        Mirrored.there, Mirrored.here, Mirrored.serving = there / "mirrored", tmp_path, serving
        run_state_machine_as_test(
            Mirrored,
            settings=settings(
                max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
