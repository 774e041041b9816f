"""Sending a 1 GB checkout again after a change of one line: `pit run`, start to exit, next to `git push` of the same
change over a local path; and the bytes that went over the wire for it."""

import os
import socket
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

from bench.measure import running_service, seconds_of
from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.source.repositories import ENV, Repository

MEGABYTES = int(os.environ.get("BENCH_SNAPSHOT_MB", "1000"))
FILES, SMALL_BYTES = 10_000, 10_000
LARGE_FILES = 60
ROUNDS = 7
AT_MOST, GRACE_S, MOST_BYTES = 2.0, 0.3, 64 * 1024


class Counter:
    """Passes a service's connections on, and counts what goes up."""

    def __init__(self, port: int) -> None:
        self.sent, self.there = 0, port
        self.listener = socket.create_server(("127.0.0.1", pick_free_port()))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            ours, _ = self.listener.accept()
            theirs = socket.create_connection(("127.0.0.1", self.there))
            for each in (ours, theirs):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # not to hold back what nobody held back
            for source, target, counted in ((ours, theirs, True), (theirs, ours, False)):
                threading.Thread(target=self._pass, args=(source, target, counted), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        try:
            while block := source.recv(1 << 20):
                self.sent += len(block) if counted else 0
                target.sendall(block)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running_service() as serving:
        place = Path(name)
        pit = Pit.of(serving, place / "machine").registered("bench")
        counter = Counter(serving.port)
        (pit.home / ".pitconnect.txt").write_text(f"http://127.0.0.1:{counter.port}\n")
        mine = filled(pit.project)
        peer, theirs = Repository(place / "peer.git"), Repository(place / "theirs")
        mine.git("clone", "--quiet", "--bare", str(mine.path), str(peer.path))  # by links: quick
        mine.git("clone", "--quiet", str(mine.path), str(theirs.path))
        for each in (
            mine,
            peer,
            theirs,
        ):  # git would tidy 10,000 loose objects up in the background, on every processor
            for key in ("gc.auto", "maintenance.auto", "receive.autogc"):
                each.git("config", key, "0")
        first = seconds_of(lambda: send(pit))
        pit.ok("stop", "--mine")
        files = FILES + LARGE_FILES
        print(f"the first time, {MEGABYTES} MB in {files} files: {first:.1f} s, {counter.sent / 1e6:.0f} MB sent")
        again(pit, mine, theirs, peer, counter)


def again(pit: Pit, mine: Repository, theirs: Repository, peer: Repository, counter: Counter) -> None:
    ours, pushes, sent = [], [], []
    for turn in range(ROUNDS + 1):
        change: dict[str, str | bytes] = {"train.py": f"print({turn})\n"}
        mine.write(change)
        theirs.commit(change)
        before = counter.sent
        ours.append(seconds_of(lambda: send(pit)))
        sent.append(counter.sent - before)
        pit.ok("stop", "--mine")  # its preparation is another matter
        pit.run("wait", "--mine")
        pushes.append(seconds_of(lambda: theirs.git("push", "--quiet", str(peer.path), "HEAD:refs/heads/main")))
    ours_s, push_s, most = statistics.median(ours[1:]), statistics.median(pushes[1:]), max(sent[1:])
    limit = AT_MOST * push_s + GRACE_S
    verdict = "ok" if ours_s <= limit else "TOO SLOW"
    print(
        f"again after a change of one line: {ours_s:.2f} s, git push: {push_s:.2f} s (at most {limit:.2f} s): {verdict}"
    )
    print(f"bytes sent for it: {most} (at most {MOST_BYTES}): {'ok' if most <= MOST_BYTES else 'TOO MUCH'}")


def send(pit: Pit) -> None:
    pit.ok("run", "bench", "[]", "-d", "true", "--json", GIT_CONFIG_NOSYSTEM="1")


def filled(place: Path) -> Repository:
    """Many small files and some large ones, as code and data are; committed without compressing them, to save time."""
    place.rmdir()
    mine = Repository.make(place)
    large = (MEGABYTES * 1_000_000 - FILES * SMALL_BYTES) // LARGE_FILES
    for number in range(FILES):
        path = place / "data" / str(number % 100) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(SMALL_BYTES))
    for number in range(LARGE_FILES):
        (place / f"{number}.large").write_bytes(os.urandom(large))
    (place / "train.py").write_text("print('first')\n")
    plain = ("-c", "core.compression=0", "-c", "core.bigFileThreshold=1m")
    subprocess.run(["git", *plain, "add", "--all"], cwd=place, env=ENV, check=True)
    subprocess.run(["git", "commit", "--quiet", "--message=all"], cwd=place, env=ENV, check=True)
    return mine


if __name__ == "__main__":
    main()
