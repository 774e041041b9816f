"""Sampling: what each process uses of cores and memory, and how busy the cards are, strangers' work included.

Only while somebody listens and something runs. nvidia-smi is asked beside the agent's other work, never waited for.
"""

import shutil
import subprocess
import time
from typing import Any, Dict, List, Optional

from snakepit.engines.agent import gpus, procs
from snakepit.engines.agent.logs import Tell
from snakepit.engines.agent.reactor import Reactor
from snakepit.engines.agent.records import Record, read_text

FIRST_AFTER_S = 1.0
EVERY_S = 5.0
QUERY = "uuid,utilization.gpu,memory.used,memory.total"


class Sampler:
    def __init__(self, reactor: Reactor, table: Dict[str, Record], cards: Any) -> None:
        self._reactor, self._table, self._cards = reactor, table, cards
        self._tell: Optional[Tell] = None
        self._ticking = False
        self._asked: Optional[subprocess.Popen] = None  # type: ignore[type-arg]  # not a generic before 3.9
        self._before: Dict[int, float] = {}
        self._sampled = 0.0

    def listen(self, tell: Optional[Tell]) -> None:
        self._tell = tell
        self.wake()

    def wake(self) -> None:
        """Something began to run, or somebody to listen."""
        if self._tell is not None and not self._ticking and self._running():
            self._ticking = True
            self._reactor.soon(FIRST_AFTER_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        running = self._running()
        if self._tell is None or not running:
            return
        self._ticking = True
        self._reactor.soon(EVERY_S, self._tick)
        processes = self._measure(running)
        if any(card["kind"] == "cuda" and not card["declared"] for card in self._cards()):
            self._ask_smi(processes)
        else:
            self._send(_amd(self._cards()), processes)

    def _running(self) -> List[Record]:
        return [record for record in self._table.values() if record["phase"] == "running"]

    def _measure(self, running: List[Record]) -> Dict[str, List[float]]:
        """Cores in use since the last sample and resident bytes now, of each process with all its children."""
        everyone, now = procs.everyone(), time.monotonic()
        passed = now - self._sampled
        seen: Dict[int, float] = {}
        found: Dict[str, List[float]] = {}
        for record in running:
            cores = memory = 0.0
            for pid in procs.below(record["pid"], everyone):
                stat = everyone[pid]
                seen[pid] = stat.cpu_s
                cores += max(0.0, stat.cpu_s - self._before.get(pid, 0.0 if self._sampled else stat.cpu_s)) / passed
                memory += stat.rss_bytes
            found[record["id"]] = [round(cores, 3), int(memory)]
        self._before, self._sampled = seen, now
        return found

    def _ask_smi(self, processes: Dict[str, List[float]]) -> None:
        program = shutil.which("nvidia-smi")
        if program is None or self._asked is not None:
            return  # the last answer is still on its way: a driver that hangs is not asked again and again
        command = [program, "--query-gpu=" + QUERY, "--format=csv,noheader,nounits"]
        try:
            self._asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            return
        asked: Any = self._asked
        parts: List[bytes] = []

        def more() -> None:
            data = asked.stdout.read1(65536)
            if data:
                parts.append(data)
                return
            self._reactor.forget(asked.stdout)
            asked.stdout.close()
            asked.wait()
            self._asked = None
            uses = gpus.read_utilisation(b"".join(parts).decode("utf-8", "replace"))
            self._send({card["index"]: uses[card["uuid"]] for card in self._cards() if card["uuid"] in uses}, processes)

        self._reactor.on_readable(asked.stdout, more)

    def _send(self, cards: Dict[int, List[float]], processes: Dict[str, List[float]]) -> None:
        if self._tell is not None:
            self._tell({"event": "usage", "cards": cards, "processes": processes}, b"")


def _amd(cards: List[Dict[str, Any]]) -> Dict[int, List[float]]:
    found = {}
    for card in cards:
        if card["kind"] == "rocm" and not card["declared"]:
            top = "/sys/bus/pci/devices/{}/".format(card["bus"])
            busy, used = read_text(top + "gpu_busy_percent").strip(), read_text(top + "mem_info_vram_used").strip()
            if busy.isdigit() and used.isdigit():
                found[card["index"]] = [int(busy) / 100, int(used) / max(1, card["memory_bytes"])]
    return found
