"""Files: through a mount, next to sshfs straight on the same confined sftp-server; `pit push` next to `curl -T` to
nginx; a listing of 100,000 files next to sftp's."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import running_service, say_ratio, side_by_side
from snakepit.service.pipes.entity import Place
from snakepit.service.pipes.programs import command, sftp
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

BLOCK = bytes(range(256)) * 4096  # 1 MiB
MOUNTED_MIB = int(os.environ.get("BENCH_MOUNTED_MIB", "512"))
PUSHED_MIB = int(os.environ.get("BENCH_PUSHED_MIB", "1024"))
CROWD = 100_000
ROUNDS = 5


def main() -> None:
    with running_service() as serving:
        pit = Pit.of(serving, serving.home / "bench").registered("bench")
        pit.ok("ls", "home")
        home = serving.home / "data" / "home" / "bench"
        straight = confined_server(serving, home)
        mounts(pit, serving, straight)
        listing(pit, home, straight)
        pushes(pit, serving, home)


def confined_server(serving: Serving, home: Path) -> Path:
    """The program that the service gives a mount to, without the service; sshfs's own words to it are left out."""
    words = command(sftp(Place(home, True)), serving.home / "peer")
    if os.geteuid() == 0:  # as whom the service runs
        owner = home.stat()
        passwd = serving.home / "peer" / "pipes" / "etc" / "passwd"
        passwd.write_text(f"pit:x:{owner.st_uid}:{owner.st_gid}::/data:/usr/sbin/nologin\n")
        words = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups", *words]
    script = serving.home / "straight"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    script.chmod(0o755)
    return script


# --------------------------------------------------------------------------------------------------------------- mounts


def mounts(pit: Pit, serving: Serving, straight: Path) -> None:
    ours, peer = serving.home / "ours", serving.home / "theirs"
    for mountpoint in (ours, peer):
        mountpoint.mkdir()
    options = f"ssh_command={straight},reconnect,idmap=user,dcache_timeout=2"
    direct = ["sshfs", "-f", "pit:", str(peer), "-o", options]
    with mounted([str(PROGRAMS / "pit"), "mount", "home", str(ours)], ours, pit), mounted(direct, peer, pit):
        wrote = side_by_side(lambda: write(ours / "ours"), lambda: write(peer / "theirs"), ROUNDS)
        say_ratio(f"writing {MOUNTED_MIB} MiB to a mount", wrote[0], "sshfs without the service", wrote[1], at_most=2)
        read_both = side_by_side(lambda: read(ours / "ours"), lambda: read(peer / "theirs"), ROUNDS)
        say_ratio(f"reading {MOUNTED_MIB} MiB from it", read_both[0], "sshfs without", read_both[1], at_most=2.5)


@contextmanager
def mounted(words: list[str], mountpoint: Path, pit: Pit) -> Iterator[None]:
    process = subprocess.Popen(
        words, cwd=pit.project, env=pit.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(mountpoint.is_mount)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def write(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(MOUNTED_MIB):
            file.write(BLOCK)
        os.fsync(file.fileno())


def read(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        size = 0
        while block := file.read(1 << 20):
            size += len(block)
    assert size == MOUNTED_MIB << 20


# -------------------------------------------------------------------------------------------------------------- listing


def listing(pit: Pit, home: Path, straight: Path) -> None:
    crowd = home / "crowd"
    crowd.mkdir()
    for number in range(CROWD):
        os.close(os.open(crowd / f"file-{number:06}", os.O_CREAT | os.O_WRONLY))

    def ours(*options: str) -> int:
        return pit.ok("ls", *options, "home", "crowd").count("\n")

    def theirs() -> None:
        words = ["sftp", "-q", "-D", str(straight), "-b", "-"]
        done = subprocess.run(words, input=b"ls -l crowd\n", capture_output=True, check=True)
        assert done.stdout.count(b"\n") > CROWD

    assert ours("-l") == CROWD
    names, peer = side_by_side(lambda: ours("-l"), theirs, ROUNDS)
    say_ratio(f"pit ls -l of {CROWD} files", names, "sftp, ls -l", peer, at_most=2)
    names, peer = side_by_side(ours, theirs, ROUNDS)
    say_ratio(f"pit ls of {CROWD} files", names, "sftp, ls -l", peer, at_most=2)


# --------------------------------------------------------------------------------------------------------------- pushes


def pushes(pit: Pit, serving: Serving, home: Path) -> None:
    large = pit.project / "large"
    with large.open("wb") as file:
        for _ in range(PUSHED_MIB):
            file.write(BLOCK)

    def ours() -> None:
        pit.ok("push", "home", "pushed", str(large))
        (home / "pushed").rename(home / "gone")

    with nginx(serving.home / "nginx") as (url, folder):

        def theirs() -> None:
            subprocess.run(["curl", "-sS", "--fail", "-T", str(large), f"{url}/pushed"], check=True)
            (folder / "pushed").rename(folder / "gone")

        mine, peer = side_by_side(ours, theirs, ROUNDS)
    say_ratio(f"pit push of {PUSHED_MIB} MiB", mine, "curl -T to nginx", peer, at_most=2)


@contextmanager
def nginx(home: Path) -> Iterator[tuple[str, Path]]:
    """A plain one that takes PUT."""
    files = home / "files"
    files.mkdir(parents=True)
    port = pick_free_port()
    owner = "user root;" if os.geteuid() == 0 else ""
    (home / "nginx.conf").write_text(f"""
{owner} daemon off; pid {home}/pid; error_log {home}/error.log;
events {{}}
http {{
    access_log off; client_max_body_size 0; client_body_temp_path {home}/body;
    server {{ listen 127.0.0.1:{port}; root {files}; location / {{ dav_methods PUT; }} }}
}}
""")
    process = subprocess.Popen(["nginx", "-p", str(home), "-c", str(home / "nginx.conf")], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: subprocess.run(["curl", "-s", "-o", "/dev/null", url]).returncode == 0)
        yield url, files
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=30)


if __name__ == "__main__":
    main()
