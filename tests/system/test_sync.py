"""`pit sync`: only what differs travels, both ways, and what broke off goes on."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

ODD = os.fsdecode(b"na\xffme \xc3\xa4 'x' %20")


@pytest.fixture(scope="module")
def pit(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Pit:
    """In a directory whose name has all that could be split, unquoted or escaped on the way."""
    return Pit.of(serving, tmp_path_factory.mktemp("us er, it's \\ 'x'")).registered("tilman")


def same(one: Path, other: Path) -> bool:
    return subprocess.run(["diff", "-r", "--no-dereference", one, other], capture_output=True).returncode == 0


def filled(folder: Path) -> Path:
    (folder / "deep" / ODD).mkdir(parents=True)
    (folder / "deep" / ODD / ODD).write_bytes(os.urandom(100_000))
    (folder / "empty").write_bytes(b"")
    (folder / "script").write_text("#!/bin/sh\n")
    (folder / "script").chmod(0o755)
    (folder / "link").symlink_to("deep")
    return folder


def test_a_directory_becomes_like_the_other_both_ways(pit: Pit, home: Path) -> None:
    here = filled(pit.project / "set")
    pit.ok("sync", "set", f"home:sets/{ODD}")
    assert same(here, home / "sets" / ODD)
    assert (home / "sets" / ODD / "script").stat().st_mode & 0o100
    pit.ok("sync", f"home:sets/{ODD}", "back")
    assert same(here, pit.project / "back")
    (here / "new").write_text("new")
    (here / "empty").unlink()
    pit.ok("sync", "set", f"home:sets/{ODD}")
    assert (home / "sets" / ODD / "new").exists()
    assert (home / "sets" / ODD / "empty").exists()
    shown = pit.ok("sync", "-n", "--delete", "set", f"home:sets/{ODD}")
    assert "*deleting   empty" in shown
    pit.ok("sync", "--delete", "set", f"home:sets/{ODD}")
    assert same(here, home / "sets" / ODD)


def test_single_files_and_whole_places(pit: Pit, home: Path) -> None:
    (pit.project / "one").write_text("one")
    pit.ok("sync", "one", "home:first")
    assert (home / "first").read_text() == "one"
    pit.ok("mkdir", "home", "into")
    pit.ok("sync", "one", "home:into")
    assert (home / "into" / "one").read_text() == "one"
    pit.ok("sync", "home:first", "copy")
    assert (pit.project / "copy").read_text() == "one"
    (pit.project / "whole").mkdir()
    (pit.project / "whole" / "w").write_text("w")
    pit.ok("sync", "whole", "home")
    assert (home / "w").read_text() == "w"


def slowly(folder: Path) -> Path:
    """Where an rsync is that takes its time, so that it can be met half-way."""
    program = folder / "rsync"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("rsync")} --bwlimit=40m "$@"\n')
    program.chmod(0o755)
    return folder


def test_what_broke_off_goes_on_and_the_old_file_stays_until_the_new_is_whole(
    pit: Pit, home: Path, tmp_path: Path
) -> None:
    (pit.project / "large").mkdir()
    local = pit.project / "large" / "file"
    local.write_bytes(b"old")
    pit.ok("sync", "large", "home:large")
    local.write_bytes(os.urandom(1 << 20) * 400)
    command = [str(PROGRAMS / "pit"), "sync", "large", "home:large"]
    environment = pit.environment(PATH=f"{slowly(tmp_path)}:{os.environ['PATH']}")
    process = subprocess.Popen(command, cwd=pit.project, env=environment, process_group=0)
    wait_until(lambda: any(each.stat().st_size > 20 << 20 for each in (home / "large").glob(".file.*")), 60)
    os.killpg(process.pid, 9)
    process.wait()
    assert (home / "large" / "file").read_bytes() == b"old"
    partial = home / "large" / ".rsync-partial" / "file"
    wait_until(partial.exists)
    assert partial.stat().st_size > 1 << 20
    pit.ok("sync", "large", "home:large")
    assert same(pit.project / "large", home / "large")


def test_the_progress_is_shown_on_a_terminal_only(pit: Pit) -> None:
    (pit.project / "shown").mkdir()
    (pit.project / "shown" / "f").write_bytes(bytes(1_000_000))
    assert pit.ok("sync", "shown", "home:shown") == ""
    with pit.terminal("sync", "shown", "home:shown-too") as terminal:
        terminal.expect("100%")
        assert terminal.end() == 0


def test_what_could_not_be_written_at_the_head_is_said_and_is_no_success(pit: Pit, home: Path) -> None:
    folder = pit.project / "clashing"
    folder.mkdir()
    (folder / "name").write_text("a file here")
    (home / "clashing" / "name").mkdir(parents=True)
    (home / "clashing" / "name" / "inside").write_text("a directory there")
    said = pit.fails("sync", "clashing", "home:clashing")
    assert "could not make way for new regular file: name" in said
    assert "some files could not be transferred" in said
    assert (home / "clashing" / "name" / "inside").exists()
    words = ["rsync", "-r", "--no-secluded-args", "-e", "pit pipe rsync home clashing/", f"{folder}/", "pit:."]
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    plain = subprocess.run(words, env=pit.environment(PATH=path), cwd=pit.project, capture_output=True, text=True)
    assert (plain.returncode, "make way" in plain.stderr) == (23, True)


def test_bad_input_is_said(pit: Pit, home: Path) -> None:
    assert "one of the two" in pit.fails("sync", "here", "there", code=2)
    assert "one of the two" in pit.fails("sync", "home:a", "shared:b", code=2)
    assert "does not exist" in pit.fails("sync", "nothing-here", "home:x")
    assert "does not exist" in pit.fails("sync", "home:nothing", "x")
    (pit.project / "folder").mkdir()
    assert "read-only" in pit.fails("sync", "folder", "shared:x")
    (home / "file").write_text("x")
    assert "not a directory" in pit.fails("sync", "folder", "home:file")
    assert "rsync is not installed here" in pit.fails("sync", "folder", "home:f", PATH=str(PROGRAMS))
