"""Which socket of a job listens on a port. The network is the machine's own, so this is what keeps a connection into
one job from becoming a way into others', or into the machine's own services."""

import os
import re
import socket
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from snakepit.engines.agent import diag, procs

LISTENING = "0A"
EVERYWHERE = ("0.0.0.0", "::")
SOCKET = re.compile(r"^socket:\[(\d+)\]$")
Target = Tuple[int, str]  # family, address


class Place(NamedTuple):
    """Where to look for the processes of a job; all numbers are the machine's."""

    holder: int
    inner: int  # bubblewrap's inner process; 0 where nothing confines
    mark: str
    address: str  # the job's own


class Listener(NamedTuple):
    family: int
    address: str
    inode: str


def place_of(body: Dict[str, Any]) -> Place:
    return Place(body["holder"], body["inner"], body["mark"], body["address"])


_known: Dict[Tuple[Place, int], Tuple[List[Listener], Target]] = {}
MOST_KNOWN = 256


def find(place: Place, port: int) -> Optional[Target]:
    """Where to connect so that it is this job that answers; None when nobody of it listens on the port.

    Looking through everybody's open files takes milliseconds. The very same sockets (a number is not used again while
    the other lives) have the very same owners, so for them what was found is remembered.
    """
    heard = listening(port)
    known = _known.get((place, port))
    if known is not None and known[0] == heard:
        return known[1]
    target = _find(place, heard)
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    if target is not None:
        _known[place, port] = heard, target
    return target


def _find(place: Place, heard: List[Listener]) -> Optional[Target]:
    if not heard:
        return None
    own = _sockets({one.inode for one in heard}, place)
    mine = [one for one in heard if one.inode in own]
    others = {one.address for one in heard if one.inode not in own}
    for one in sorted(mine, key=lambda one: (one.family, one.address in EVERYWHERE)):
        target = reached_at(one, place)
        # The more exact address wins in the kernel, and of equal ones any: a stranger there would answer in its place.
        if target[1] not in others and not (one.address in EVERYWHERE and others.intersection(EVERYWHERE)):
            return target
    return None


def reached_at(listener: Listener, place: Place) -> Target:
    if listener.address == "0.0.0.0":
        return socket.AF_INET, place.address
    if listener.address == "::":
        return socket.AF_INET6, "::1"
    return listener.family, listener.address


def listening(port: int) -> List[Listener]:
    found: List[Listener] = []
    for family, path in ((socket.AF_INET, "/proc/net/tcp"), (socket.AF_INET6, "/proc/net/tcp6")):
        try:
            found += [
                Listener(one.family, one.address, one.inode) for one in diag.listening(family) if one.port == port
            ]
            continue
        except OSError:
            pass
        try:
            with open(path) as file:
                found += parse(file.read(), int(family), port)
        except OSError:
            continue  # a machine without IPv6
    return found


def parse(text: str, family: int, port: int) -> List[Listener]:
    """The listeners on `port` in the text of /proc/net/tcp or tcp6."""
    wanted = ":{:04X}".format(port)
    found: List[Listener] = []
    for line in text.splitlines()[1:]:
        if wanted not in line:
            continue
        fields = line.split()
        if len(fields) > 9 and fields[1].endswith(wanted) and fields[3] == LISTENING:
            found.append(Listener(family, _address(fields[1].split(":")[0], family), fields[9]))
    return found


def _address(digits: str, family: int) -> str:
    """The kernel writes words of four bytes in the machine's own order."""
    raw = bytes.fromhex(digits)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return socket.inet_ntop(family, raw)


def _sockets(wanted: "set[str]", place: Place) -> "set[str]":
    """Those of the sockets that a process of the job holds."""
    found: "set[str]" = set()
    for pid in members(place):
        found.update(wanted.intersection(_held(pid)))
        if found == wanted:
            break
    return found


def _held(pid: int) -> Iterator[str]:
    directory = "/proc/{}/fd".format(pid)
    try:
        for name in os.listdir(directory):
            try:
                match = SOCKET.match(os.readlink(directory + "/" + name))
            except OSError:
                continue
            if match:
                yield match.group(1)
    except OSError:
        return


def members(place: Place) -> Iterator[int]:
    """The job's processes: those of its sandbox, or below its holder, or with its mark (what exec started there)."""
    if place.inner:
        room = _room(place.inner)
        for name in os.listdir("/proc") if room else ():
            if name.isdigit() and _room(int(name)) == room:
                yield int(name)
    else:
        below = procs.below(place.holder, procs.everyone())
        for pid in below:
            yield pid
        for pid in procs.marked(place.mark) - set(below):
            yield pid


def _room(pid: int) -> str:
    try:
        return os.readlink("/proc/{}/ns/pid".format(pid))
    except OSError:
        return ""
