"""Files and mounts through TLS: the nginx of the docs in front, names and bytes as they are without it."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.source.repositories import Repository
from tests.system.test_nginx import start_nginx

ODD = os.fsdecode(b"na\xffme \xc3\xa4 %2F?#&=")


@pytest.fixture(scope="module")
def pit(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pit]:
    front, running = start_nginx(tmp_path_factory.mktemp("nginx"), serving.port)
    try:
        secured = Pit.of(serving, tmp_path_factory.mktemp("user"))
        (secured.home / ".pitconnect.txt").write_text(f"{front.url}\n{front.certificate.read_text()}")
        yield secured.registered("tilman")
    finally:
        running.terminate()
        running.wait(timeout=15)


def test_files_of_any_size_and_name_travel_both_ways(pit: Pit) -> None:
    data = os.urandom(40_000_000)
    (pit.project / ODD).write_bytes(data)
    pit.ok("mkdir", "home", "odd")
    pit.ok("cp", ODD, "home:odd/")
    pit.ok("cp", f"home:odd/{ODD}", "back")
    assert (pit.project / "back").read_bytes() == data
    pit.ok("push", "-r", "home", "tree", ".")
    pit.ok("cp", "-r", "home:tree", "tree")
    assert (pit.project / "tree" / ODD).read_bytes() == data
    assert "nothing outside" in pit.fails("delete", "home", "../..")
    pit.ok("show", "me")


def test_directories_are_synchronised(pit: Pit) -> None:
    folder = pit.project / "set"
    folder.mkdir()
    (folder / ODD).write_bytes(os.urandom(3_000_000))
    pit.ok("sync", "set", "home:set")
    pit.ok("sync", "home:set", "set-back")
    assert (pit.project / "set-back" / ODD).read_bytes() == (folder / ODD).read_bytes()


def test_snapshots_travel_both_ways(pit: Pit) -> None:
    place = pit.project / "checkout"
    mine = Repository.make(place, {"data.bin": os.urandom(20_000_000), "train.py": "print(1)\n"})
    inside = Pit(pit.serving, pit.home, place, {"GIT_CONFIG_NOSYSTEM": "1"})
    number = int(inside.ok("run", "T", "[]", "-d", "true").rpartition("=> job number: ")[2])
    inside.ok("gc", "--all")
    inside.ok("checkout", str(number), "../then")
    assert (pit.project / "then" / "data.bin").read_bytes() == (place / "data.bin").read_bytes()
    mine.write({"train.py": "print(2)\n"})
    assert "+print(2)" in inside.ok("diff", str(number))


def test_a_mount_works_through_tls(pit: Pit, serving: Serving) -> None:
    mountpoint = pit.project / "mounted"
    mountpoint.mkdir()
    command = [str(PROGRAMS / "pit"), "mount", "home", str(mountpoint)]
    with subprocess.Popen(command, cwd=pit.project, env=pit.environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"mounted ")
            data = os.urandom(20_000_000)
            (mountpoint / "through-tls").write_bytes(data)
            assert (mountpoint / "through-tls").read_bytes() == data
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
    assert (serving.home / "data" / "home" / "tilman" / "through-tls").read_bytes() == data
