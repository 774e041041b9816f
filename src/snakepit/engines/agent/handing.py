"""Descriptors that travel over a unix socket beside a few bytes. (Python has functions for it only from 3.9 on.)"""

import array
import os
import socket
from typing import List, Tuple


def send(line: socket.socket, data: bytes, descriptors: List[int]) -> None:
    rights = array.array("i", descriptors)
    line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else [])


def receive(line: socket.socket, size: int = 65536, most: int = 4) -> Tuple[bytes, List[int]]:
    """Some bytes (none: the other side is gone) and what came with them; not inherited by programs."""
    rights = array.array("i")
    data, ancillary, _, _ = line.recvmsg(size, socket.CMSG_LEN(most * rights.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(content[: len(content) - len(content) % rights.itemsize])
    for descriptor in rights:
        os.set_inheritable(descriptor, False)
    return data, list(rights)
