"""An address and a block of ports for each process, from what is free: no two living processes here share one."""

import hashlib
import socket
from typing import Any, Dict, Iterable, List, Set

from snakepit.engines.agent.refusal import not_now


class Places:
    """Goes round the range, so that what was just freed is given again as late as possible."""

    def __init__(self, cluster: str) -> None:
        # Clusters on one machine begin far from each other; the first byte is always 127, the second never 0.
        self._next = int(hashlib.sha256(cluster.encode()).hexdigest()[:8], 16) % 0xE00000
        self._cursor = 0
        self._addresses: Set[str] = set()
        self._ports: Set[int] = set()

    def known(self, records: Iterable[Dict[str, Any]]) -> None:
        for record in records:
            self._addresses.add(record.get("address", ""))
            self._ports.update(record.get("ports", ()))

    def free(self, record: Dict[str, Any]) -> None:
        self._addresses.discard(record.get("address", ""))
        self._ports.difference_update(record.get("ports", ()))

    def address(self) -> str:
        while True:
            self._next = (self._next + 1) % 0xE00000
            number = self._next + 0x100000
            address = "127.{}.{}.{}".format(number >> 16, number >> 8 & 255, number & 255)
            if number & 255 not in (0, 255) and address not in self._addresses:
                self._addresses.add(address)
                return address

    def ports(self, count: int, first: int, last: int) -> List[int]:
        span = last - first + 1
        tried = 0
        while tried < span:
            start = first + self._cursor % span
            block = list(range(start, start + count))
            self._cursor += max(1, count)
            tried += max(1, count)
            if block and block[-1] > last:
                continue
            if not self._ports.intersection(block) and all(_bindable(port) for port in block):
                self._ports.update(block)
                return block
        raise not_now("no {} free ports in {}-{}".format(count, first, last))


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
