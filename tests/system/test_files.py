"""Files with `pit`: up, down, on after a cut, with names in any encoding, and what was there before is still there."""

import contextlib
import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from snakepit.pit.render import size
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

ODD = os.fsdecode(b"na\xffme \xc3\xa4 %2F?#&=\\'\"\n")


@pytest.fixture(scope="module")
def job(pit: Pit) -> int:
    files = "mkdir deep; echo d > deep/d; echo model > x.pt; : > empty; ln -s /etc/passwd link"
    number = pit.submit(f"cd $KEEP_DIR; {files}")
    pit.ok("wait", str(number))
    return number


def owned(path: Path) -> None:
    """As the service itself would have made it: here we are root, and it is not."""
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    owned(path)


def part_bytes(folder: Path) -> int:
    """The size of what is on its way there."""
    sizes = [0]
    for path in folder.glob(".*.pit-part"):
        with contextlib.suppress(FileNotFoundError):  # it came to its place meanwhile
            sizes.append(path.stat().st_size)
    return max(sizes)


def piped(pit: Pit, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(PROGRAMS / "pit"), *arguments]
    return subprocess.run(command, input=data, cwd=pit.project, env=pit.environment(), capture_output=True, timeout=60)


# ------------------------------------------------------------------------------------------------------------- one file


def test_both_forms_of_a_remote_path_mean_the_same(pit: Pit, job: int) -> None:
    pit.ok("cp", f"{job}:keep/x.pt", "a.pt")
    pit.ok("cp", str(job), "keep/x.pt", "b.pt")
    pit.ok("pull", f"job:{job}:keep/x.pt", ".")
    for name in ("a.pt", "b.pt", "x.pt"):
        assert (pit.project / name).read_text() == "model\n"
    assert pit.ok("cat", f"{job}:keep/x.pt") == pit.ok("cat", str(job), "keep/x.pt") == "model\n"
    assert pit.ok("pull", str(job), "keep/x.pt") == "model\n"  # no local path: stdout
    assert pit.ok("cp", f"{job}:keep/x.pt", "-") == "model\n"


def test_a_file_goes_up_in_every_form(pit: Pit, home: Path) -> None:
    (pit.project / "up").write_bytes(b"up")
    (pit.project / "tree").mkdir()
    pit.ok("push", "home", "one", "up")
    pit.ok("push", "home:two", "up")
    pit.ok("cp", "up", "home:three")
    pit.ok("cp", "up", "home", "four")
    pit.ok("mkdir", "home", "into/it")
    pit.ok("cp", "up", "home:into/it")
    pit.ok("cp", "up", "user:tilman:into/")
    pit.ok("cp", "up", "home:")
    for name in ("one", "two", "three", "four", "into/it/up", "into/up", "up"):
        assert (home / name).read_bytes() == b"up"
    assert "does not exist" in pit.fails("push", "home", "x", "nothing-here")
    missing = 'Command failed: "no/such" does not exist in home. Make it first: pit mkdir home no/such\n'
    assert pit.fails("push", "home", "no/such/directory", "up") == missing
    assert pit.fails("cp", "up", "home:no/such/") == missing
    assert pit.fails("cp", "-r", "tree", "home:no/such/") == missing
    assert "Target path is existing, but not a file." in pit.fails("push", "home", "into", "up")


def test_empty_files_travel_both_ways(pit: Pit, home: Path, job: int) -> None:
    pit.ok("cp", f"{job}:keep/empty", "nil")
    assert (pit.project / "nil").read_bytes() == b""
    pit.ok("push", "home", "nil", "nil")
    assert (home / "nil").read_bytes() == b""
    assert pit.ok("cat", "home", "nil") == ""


def test_a_push_that_does_not_fit_is_refused_before_it_begins_and_leaves_nothing(tmp_path: Path) -> None:
    service = Serving.start(pick_free_port(), config="maxUserSize: 30M\n")
    try:
        pit = Pit.of(service, tmp_path / "machine").registered("tilman")
        with (pit.project / "large").open("wb") as large:
            large.truncate(40_000_000)
        assert "of 30M, and this needs 40M" in pit.fails("push", "home", "large", "large")
        assert pit.ok("ls", "home") == ""
        large_one = service.home / "data" / "home" / "tilman" / "there"
        put(large_one, b"before")
        assert "this needs 40M" in pit.fails("push", "-f", "home", "there", "large")
        assert pit.ok("cat", "home", "there") == "before"
        assert pit.ok("ls", "home") == "F there\n"
    finally:
        service.stop()


def test_a_directory_that_broke_off_is_left_to_sync(tmp_path: Path) -> None:
    service = Serving.start(pick_free_port())
    try:
        pit = Pit.of(service, tmp_path / "machine").registered("tilman")
        (pit.project / "sets").mkdir()
        with (pit.project / "sets" / "large").open("wb") as large:
            large.truncate(4_000_000_000)
        there = service.home / "data" / "home" / "tilman"
        command = [str(PROGRAMS / "pit"), "push", "-r", "home", "sets", "sets"]
        with subprocess.Popen(command, cwd=pit.project, env=pit.environment(), stderr=subprocess.PIPE) as process:
            wait_until(lambda: any(there.glob("*")), message="it is on its way")
            service.kill()
            assert process.stderr is not None
            assert b"use pit sync, which goes on where it was" in process.stderr.read()
        assert process.returncode == 1
    finally:
        service.stop()


def test_stdin_and_stdout_carry_any_bytes(pit: Pit, home: Path) -> None:
    data = os.urandom(5_000_000)
    assert piped(pit, data, "push", "home", "piped").returncode == 0
    assert (home / "piped").read_bytes() == data
    assert piped(pit, b"", "cat", "home", "piped").stdout == data
    for local in ((), ("-",), ("/dev/stdin",)):
        refused = piped(pit, b"other", "push", "home", "piped", *local)
        assert refused.returncode == 1
        assert refused.stderr == (
            b"Command failed: Remote file already existing. "
            b"What comes from stdin or a pipe cannot be compared with it: use force option to overwrite.\n"
        )
        assert (home / "piped").read_bytes() == data
    assert piped(pit, b"other", "push", "-f", "home", "piped").returncode == 0
    assert (home / "piped").read_bytes() == b"other"


def test_a_device_is_written_as_it_comes(pit: Pit, job: int) -> None:
    assert pit.ok("cp", f"{job}:keep/x.pt", "/dev/stdout") == "model\n"


def test_names_in_any_encoding_travel_byte_for_byte(pit: Pit, home: Path) -> None:
    (pit.project / ODD).write_bytes(b"odd")
    pit.ok("mkdir", "home", "odd")
    pit.ok("cp", ODD, "home:odd/")
    assert [each.name for each in (home / "odd").iterdir()] == [ODD]
    (pit.project / ODD).unlink()
    pit.ok("cp", f"home:odd/{ODD}", ".")
    assert (pit.project / ODD).read_bytes() == b"odd"
    listed = piped(pit, b"", "ls", "home", "odd").stdout
    assert listed == b"F " + os.fsencode(ODD) + b"\n"
    pit.ok("cp", "-r", "home:odd", "odd-tree")
    assert (pit.project / "odd-tree" / ODD).read_bytes() == b"odd"
    pit.ok("delete", "home", f"odd/{ODD}")
    assert not list((home / "odd").iterdir())


# ---------------------------------------------------------------------------------------------- what is there already


def test_a_pull_onto_a_file_follows_the_seeds_rules(pit: Pit, home: Path) -> None:
    put(home / "ten", b"0123456789")
    local = pit.project / "ten"
    local.write_bytes(b"larger than ten")
    words = "Larger local file already existing. Remove it or use force option to overwrite."
    assert words in pit.fails("pull", "home", "ten", "ten")
    assert local.read_bytes() == b"larger than ten"
    local.write_bytes(b"abcdefghij")
    done = pit.run("pull", "home", "ten", "ten")
    assert (done.returncode, local.read_bytes()) == (0, b"abcdefghij")
    assert "Local file of same size already existing: Skipped download." in done.stderr
    local.write_bytes(b"0123")
    assert "Continue interrupted download" in pit.fails("pull", "home", "ten", "ten")
    pit.ok("pull", "-c", "home", "ten", "ten")
    assert local.read_bytes() == b"0123456789"
    local.write_bytes(b"larger than ten")
    pit.ok("pull", "-f", "home", "ten", "ten")
    assert local.read_bytes() == b"0123456789"
    with pit.terminal("pull", "home", "ten", "eleven") as terminal:
        assert terminal.end() == 0
    local.write_bytes(b"0123")
    with pit.terminal("pull", "home", "ten", "ten") as terminal:
        terminal.expect("Remote file larger than local one. Continue interrupted download (yN)? ")
        terminal.type("n\n")
        terminal.expect("Aborted")
        assert terminal.end() == 1
    assert "There is no directory" in pit.fails("pull", "home", "ten", "no/where/ten")


def test_a_push_onto_a_file_follows_the_seeds_rules(pit: Pit, home: Path) -> None:
    local, remote = pit.project / "p", home / "p"
    local.write_bytes(b"0123456789")
    put(remote, b"larger than ten")
    assert "Remote file is larger than local one." in pit.fails("push", "home", "p", "p")
    put(remote, b"abcdefghij")
    pit.ok("push", "home", "p", "p")
    assert remote.read_bytes() == b"abcdefghij"
    put(remote, b"0123")
    assert "Continue interrupted upload" in pit.fails("push", "home", "p", "p")
    pit.ok("push", "-c", "home", "p", "p")
    assert remote.read_bytes() == b"0123456789"
    put(remote, b"larger than ten")
    pit.ok("push", "-f", "home", "p", "p")
    assert remote.read_bytes() == b"0123456789"
    with pit.terminal("push", "-f", "home", "p", "p") as terminal:
        terminal.expect("uploading [========================================] 100%")
        assert terminal.end() == 0


def test_only_the_beginning_of_a_file_is_continued(pit: Pit, home: Path) -> None:
    data = os.urandom(3 << 20)
    local, remote = pit.project / "whole", home / "whole"
    here = "Local file is not the beginning of the remote one. Use force option to overwrite it."
    there = "Remote file is not the beginning of the local one. Use force option to overwrite it."
    half = data[: 2 << 20]
    for other in (bytes(1000), half[:-1] + bytes([half[-1] ^ 1]), half[: 1 << 20] + b"x" + half[(1 << 20) + 1 :]):
        put(remote, data)
        local.write_bytes(other)
        assert here in pit.fails("pull", "-c", "home", "whole", "whole")
        assert local.read_bytes() == other
        local.write_bytes(data)
        put(remote, other)
        assert there in pit.fails("push", "-c", "home", "whole", "whole")
        assert remote.read_bytes() == other
        with pit.terminal("push", "home", "whole", "whole") as terminal:
            terminal.expect("Continue interrupted upload (yN)? ")
            terminal.type("y\n")
            terminal.expect("Remote file is not the beginning")
            assert terminal.end() == 1
        assert remote.read_bytes() == other
    pit.ok("push", "-f", "home", "whole", "whole")
    assert remote.read_bytes() == data
    put(remote, half)
    pit.ok("push", "-c", "home", "whole", "whole")
    assert remote.read_bytes() == data
    put(remote, half)
    remote.chmod(0o200)  # what may not be read cannot be compared
    pit.ok("push", "-c", "home", "whole", "whole")
    assert remote.read_bytes() == data
    remote.chmod(0o600)
    local.write_bytes(half)
    pit.ok("pull", "-c", "home", "whole", "whole")
    assert local.read_bytes() == data


def test_an_interrupted_pull_leaves_what_was_there_and_goes_on_later(pit: Pit, home: Path) -> None:
    data = os.urandom(1 << 20) * 200
    put(home / "big", data)
    local = pit.project / "big"
    command = [str(PROGRAMS / "pit"), "pull", "-f", "home", "big", "big"]

    def killed_in_between() -> bool:
        """Unless it was faster than we."""
        local.write_bytes(b"before")
        process = subprocess.Popen(command, cwd=pit.project, env=pit.environment())
        wait_until(lambda: process.poll() is not None or part_bytes(pit.project) > 1 << 20)
        process.kill()
        return process.wait() == -signal.SIGKILL and part_bytes(pit.project) > 0

    wait_until(killed_in_between)
    assert local.read_bytes() == b"before"
    local.unlink()
    done = pit.run("pull", "home", "big", "big")
    assert "Continuing interrupted download" in done.stderr
    assert local.read_bytes() == data
    assert not list(pit.project.glob(".*.pit-part"))
    wait_until(killed_in_between)
    (part,) = pit.project.glob(".*.pit-part")
    part.write_bytes(bytes(2 << 20))
    local.unlink()
    assert "starting over" in pit.run("pull", "home", "big", "big").stderr
    assert local.read_bytes() == data


def test_an_interrupted_forced_push_leaves_what_was_there(pit: Pit, home: Path) -> None:
    put(home / "keepme", b"before")
    read, write = os.pipe()
    command = [str(PROGRAMS / "pit"), "push", "-f", "home", "keepme"]
    process = subprocess.Popen(command, cwd=pit.project, env=pit.environment(), stdin=read)
    os.close(read)
    chunk = bytes(1 << 20)
    for _ in range(70):
        os.write(write, chunk)
    wait_until(lambda: part_bytes(home) >= 16 << 20)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    os.close(write)
    assert (home / "keepme").read_bytes() == b"before"
    assert not list(home.glob(".*.pit-part"))


def test_transfers_go_on_through_a_restart_of_the_service(pit: Pit, home: Path, serving: Serving) -> None:
    data = os.urandom(1 << 20) * 300
    (pit.project / "through").write_bytes(data)
    command = [str(PROGRAMS / "pit"), "push", "home", "through", "through"]
    process = subprocess.Popen(command, cwd=pit.project, env=pit.environment())
    wait_until(lambda: (home / "through").exists() and (home / "through").stat().st_size > 10 << 20)
    serving.kill()
    serving.start_again()
    assert process.wait(timeout=120) == 0
    assert (home / "through").read_bytes() == data


def test_a_file_that_is_rewritten_while_it_is_sent_replaces_nothing(pit: Pit, home: Path, serving: Serving) -> None:
    put(home / "steady", b"before")
    with (pit.project / "moving").open("wb") as moving:
        moving.truncate(600_000_000)
    command = [str(PROGRAMS / "pit"), "push", "-f", "home", "steady", "moving"]
    with subprocess.Popen(command, cwd=pit.project, env=pit.environment(), stderr=subprocess.PIPE) as process:
        wait_until(lambda: part_bytes(home) > 10 << 20)
        serving.kill()
        with (pit.project / "moving").open("r+b") as moving:
            moving.write(b"other")
        serving.start_again()
        assert process.stderr is not None
        assert b"moving changed while it was sent" in process.stderr.read()
    assert process.returncode == 1
    assert (home / "steady").read_bytes() == b"before"
    assert part_bytes(home) == 0


# ---------------------------------------------------------------------------------------------------------- directories


def test_directories_travel_whole(pit: Pit, home: Path, job: int) -> None:
    pit.ok("cp", "-r", f"{job}:keep", "results")
    results = pit.project / "results"
    assert (results / "x.pt").read_text() == "model\n"
    assert (results / "deep" / "d").read_text() == "d\n"
    assert (results / "empty").read_bytes() == b""
    assert (results / "link").readlink() == Path("/etc/passwd")
    assert "is existing" in pit.fails("cp", "-r", f"{job}:keep", "results/../results/x.pt")
    pit.ok("cp", "-r", f"{job}:keep", ".")
    assert (pit.project / "keep" / "x.pt").exists()
    (results / "script").write_text("#!/bin/sh\n")
    (results / "script").chmod(0o755)
    pit.ok("push", "-r", "home", "there", "results")
    assert (home / "there" / "deep" / "d").read_text() == "d\n"
    assert (home / "there" / "script").stat().st_mode & 0o100
    assert (home / "there" / "link").readlink() == Path("/etc/passwd")
    put(home / "there" / "own", b"own")
    assert "Target directory is existing" in pit.fails("push", "-r", "home", "there", "results")
    (results / "x.pt").write_text("newer")
    pit.ok("push", "-r", "-f", "home", "there", "results")
    assert ((home / "there" / "x.pt").read_text(), (home / "there" / "own").read_text()) == ("newer", "own")
    assert "Directories: -r" in pit.fails("cp", f"{job}:keep", "elsewhere")
    assert "pit sync" in pit.fails("cp", "-r", "-c", f"{job}:keep", "elsewhere")


def test_who_wants_to_continue_a_directory_is_told_the_command_that_does(pit: Pit, home: Path) -> None:
    (home / "a set").mkdir()
    (home / "a set" / "x").write_text("x")
    for words in (("cp", "-r", "--continue", "home:a set", "here"), ("pull", "-r", "-c", "home", "a set", "here")):
        assert "pit sync 'home:a set' here" in pit.fails(*words)
    (pit.project / "mine").mkdir()
    assert "pit sync mine home:yours" in pit.fails("cp", "-r", "--continue", "mine", "home:yours")
    pit.ok("sync", "home:a set", "here")
    assert (pit.project / "here" / "x").read_text() == "x"


def test_a_directory_that_breaks_off_leaves_nothing(pit: Pit, home: Path) -> None:
    folder = pit.project / "many"
    folder.mkdir()
    for number in range(40):
        with (folder / str(number)).open("wb") as large:
            large.truncate(100_000_000)
    command = [str(PROGRAMS / "pit"), "push", "-r", "home", "many", "many"]
    process = subprocess.Popen(command, cwd=pit.project, env=pit.environment())
    wait_until(lambda: list(home.glob(".*.pit-part/*")))
    process.kill()
    process.wait()
    wait_until(lambda: not list(home.glob(".*.pit-part")))
    assert not (home / "many").exists()


def test_download_makes_an_archive_of_a_job(pit: Pit, job: int) -> None:
    pit.ok("download", str(job))
    name = pit.project / f"job{job}.tar.gz"
    with tarfile.open(name) as archive:
        names = archive.getnames()
        assert archive.extractfile(f"job{job}/keep/x.pt").read() == b"model\n"  # type: ignore[union-attr]
    assert f"job{job}/keep/deep/d" in names
    before = name.read_bytes()
    assert "existing already" in pit.fails("download", str(job))
    assert name.read_bytes() == before


# -------------------------------------------------------------------------------------------------------------- looking


def test_ls_shows_directories_then_files(pit: Pit, job: int) -> None:
    assert pit.ok("ls", str(job), "keep") == "D deep\nF empty\nF x.pt\n"
    assert pit.ok("ls", f"{job}:keep/x.pt") == "F keep/x.pt\n"
    lines = pit.ok("ls", "-l", str(job), "keep").splitlines()
    assert lines[0].split()[:2] == ["D", "-"]
    assert lines[2].split()[:2] == ["F", "6"]
    assert lines[2].endswith(" x.pt")
    found = json.loads(pit.ok("ls", "--json", str(job), "keep"))
    assert [(each["name"], each["size"]) for each in found if each["isFile"]] == [("empty", 0), ("x.pt", 6)]
    assert "does not exist" in pit.fails("ls", str(job), "nowhere")
    assert "no place for files" in pit.fails("ls", "nowhere", code=2)


def test_a_hundred_thousand_files_are_listed_in_one_go(pit: Pit, home: Path) -> None:
    folder = home / "crowd"
    folder.mkdir()
    owned(folder)
    for number in range(100_000):
        os.close(os.open(folder / f"file-{number:06}", os.O_CREAT | os.O_WRONLY))
    assert len(pit.ok("ls", "home", "crowd").splitlines()) == 100_000
    assert len(pit.ok("ls", "-l", "home", "crowd").splitlines()) == 100_000
    pit.ok("delete", "home", "crowd")
    assert not folder.exists()


def test_du_says_what_takes_the_space(pit: Pit, home: Path) -> None:
    pit.ok("mkdir", "home", "du/inner")
    put(home / "du" / "inner" / "f", bytes(1_000_000))
    found = json.loads(pit.ok("du", "--json", "home", "du"))
    assert (found["files"], [entry[0] for entry in found["entries"]]) == (1, ["inner"])
    assert found["size"] >= 1_000_000
    assert pit.ok("du", "home", "du").splitlines()[-1] == "   1.0 MB  home:du (1 file)"
    put(home / "du" / "g", b"")
    assert "home:du (2 files)" in pit.ok("du", "home", "du")
    job = pit.submit("head -c 2000000 /dev/zero > $KEEP_DIR/data")
    pit.ok("wait", str(job))
    *_, own, used = pit.ok("du").splitlines()
    assert "  home (" in own
    assert used.endswith("  home and jobs (no limit)")
    figures = json.loads(pit.ok("du", "--json"))
    assert figures["used"] >= figures["size"] + 2_000_000
    assert used.strip().startswith(size(figures["used"]))


def test_mkdir_and_delete(pit: Pit, home: Path) -> None:
    pit.ok("mkdir", "home:made/deep")
    assert (home / "made" / "deep").is_dir()
    assert "Already existing" in pit.fails("mkdir", "home", "made/deep")
    pit.ok("delete", "home", "made")
    assert not (home / "made").exists()
    assert "missing argument <path>" in pit.fails("delete", "home", code=2)


# --------------------------------------------------------------------------------------------------------------- rights


def test_jobs_and_shared_data_are_read_only(pit: Pit, serving: Serving, job: int) -> None:
    (pit.project / "w").write_text("w")
    for place in (str(job), "shared"):
        assert "read-only" in pit.fails("push", place, "w", "w")
        assert "read-only" in pit.fails("mkdir", place, "w")
        assert "read-only" in pit.fails("delete", place, "keep")
    (serving.home / "data" / "shared" / "s").write_text("for all")
    assert pit.ok("cat", "shared", "s") == "for all"


def test_others_files_are_out_of_reach(other: Pit, pit: Pit, job: int) -> None:
    for words in (("ls", "user:tilman"), ("cat", "user:tilman:ten"), ("ls", str(job)), ("download", str(job))):
        assert pit.run(*words) is not None
        assert other.fails(*words)
    for way in ("../tilman/ten", "..", "a/../.."):
        assert "nothing outside" in other.fails("cat", "home", way)
        assert "nothing outside" in other.fails("delete", "home", way)
    other.ok("show", "me")
    pit.ok("ls", "user:anna")  # an admin


def test_groups_share_a_directory(pit: Pit, other: Pit) -> None:
    pit.ok("add", "group:lab", "title=Lab")
    assert "Only members" in other.fails("ls", "group:lab")
    pit.ok("add-group", "user:anna", "lab")
    assert piped(other, b"data", "push", "group:lab:set").returncode == 0
    assert pit.ok("cat", "group:lab", "set") == "data"
