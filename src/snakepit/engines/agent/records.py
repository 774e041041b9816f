"""What the agent remembers, on the node's own disk: who it is, how each process stands, what must never run again.

A record is replaced whole (written beside, renamed), so that whoever reads it after a crash of the agent sees the old
or the new one. A power cut ends every process, so a record is synced only when it tells of an end that its head does
not hear at once. Layout: `id epoch cards tombstones`, `homes/<user>/`, `procs/<id>/` with
`record out dropped status hosts passwd tmp/`.
"""

import json
import os
import shutil
import time
import uuid
from typing import Any, Dict, List, Optional, Set

from snakepit.engines.agent.complaint import complain

Record = Dict[str, Any]
TOMBSTONES_LAST_S = 60 * 86400


class Records:
    """One state directory. Only the agent that holds its lock writes here."""

    def __init__(self, top: str) -> None:
        self.top = top
        for name in ("procs", "homes", "trash"):
            os.makedirs(os.path.join(top, name), mode=0o700, exist_ok=True)
        self.state_id = self._once("id", uuid.uuid4().hex)
        self.epoch = int(read_text(os.path.join(top, "epoch")) or 0)
        self.tombstones = self._load_tombstones()

    def _once(self, name: str, value: str) -> str:
        path = os.path.join(self.top, name)
        known = read_text(path).strip()
        if not known:
            write_whole(path, value.encode())
        return known or value

    def raise_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            write_whole(os.path.join(self.top, "epoch"), str(epoch).encode())

    def directory(self, process: str) -> str:
        return os.path.join(self.top, "procs", process)

    def file(self, process: str, name: str) -> str:
        return os.path.join(self.top, "procs", process, name)

    def save(self, record: Record, sync: bool = False) -> None:
        write_whole(self.file(record["id"], "record"), json.dumps(record).encode(), sync)

    def load(self) -> List[Record]:
        """All records; one that cannot be read (a torn disk) is kept as one that nobody knows the end of."""
        found = []
        for name in sorted(os.listdir(os.path.join(self.top, "procs"))):
            text = read_text(self.file(name, "record"))
            try:
                found.append(json.loads(text))
            except ValueError:
                if os.path.exists(self.file(name, "out")):
                    found.append({"id": name, "phase": "broken"})
                else:
                    shutil.rmtree(self.directory(name), ignore_errors=True)  # a create that never finished
        return found

    def keep_json(self, name: str, value: Any) -> None:
        write_whole(os.path.join(self.top, name), json.dumps(value).encode())

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(read_text(os.path.join(self.top, name)) or "null")
        except ValueError:
            return None

    def bury(self, attempts: List[str]) -> None:
        """No create or go for these will ever be heard again."""
        fresh = [attempt for attempt in attempts if attempt not in self.tombstones]
        if fresh:
            self.tombstones.update(fresh)
            try:
                with open(os.path.join(self.top, "tombstones"), "a") as file:
                    file.write("".join("{} {}\n".format(attempt, int(time.time())) for attempt in fresh))
            except OSError:
                complain()  # a full disk: creates are refused for that alone, and a stop must still stop

    def _load_tombstones(self) -> Set[str]:
        path = os.path.join(self.top, "tombstones")
        lines = [line.split() for line in read_text(path).splitlines()]
        since = time.time() - TOMBSTONES_LAST_S
        kept = [line for line in lines if len(line) == 2 and line[1].isdigit() and int(line[1]) > since]
        if len(kept) != len(lines):
            write_whole(path, "".join("{} {}\n".format(*line) for line in kept).encode())
        return {line[0] for line in kept}


def write_whole(path: str, data: bytes, sync: bool = True) -> None:
    beside = path + ".new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)


def read_text(path: str, limit: Optional[int] = None) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() if limit is None else file.read(limit)
    except OSError:
        return ""
