"""`ping` for jobs: in a sandbox its file capability has no effect, so the kernel must let the group open ICMP sockets.

systemd does so for everybody by default; without it the range is empty, and a service started as root can put its own
group in before it drops its rights.
"""

from __future__ import annotations

from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ping_group_range")


def may_ping(gid: int) -> bool:
    try:
        low, high = map(int, RANGE.read_text().split())
    except (OSError, ValueError):
        return False
    return low <= gid <= high


def allow_ping(gid: int) -> bool:
    """Whether members of `gid` can ping now. The range is made wider where it must be, never narrower."""
    if may_ping(gid):
        return True
    try:
        low, high = map(int, RANGE.read_text().split())
        RANGE.write_text(f"{gid} {gid}" if low > high else f"{min(low, gid)} {max(high, gid)}")
    except (OSError, ValueError):
        return False
    return may_ping(gid)
