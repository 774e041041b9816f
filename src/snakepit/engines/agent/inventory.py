"""What this machine is: cores, memory, cards, and whether a sandbox can be made here. Slow: asked in a child."""

import os
import shutil
import socket
import subprocess
from typing import Any, Dict

from snakepit.core.confine import World, bubblewrap
from snakepit.engines.agent import gpus
from snakepit.engines.agent.records import read_text

FIX_APPARMOR = (
    "unprivileged user namespaces are restricted by AppArmor: as root run "
    "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (and keep it in /etc/sysctl.d), "
    "or give /usr/bin/bwrap an AppArmor profile that allows userns"
)
FIX_CLONE = "user namespaces are switched off: as root run `sysctl -w kernel.unprivileged_userns_clone=1`"
FIX_MAX = "user namespaces are switched off: as root run `sysctl -w user.max_user_namespaces=15000`"


def look(options: Dict[str, Any]) -> Dict[str, Any]:
    """Everything `probe` tells, and the cards with their devices as the agent needs them."""
    cards = gpus.declared(options.get("declared", "")) or gpus.detect()
    problem = "" if options.get("isolation") == "none" else sandbox_problem()
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "mem_bytes": memory_bytes(),
        "cards": cards,
        "isolation": "none" if problem or options.get("isolation") == "none" else "sandbox",
        "isolation_problem": problem,
        "hostname": socket.gethostname(),
    }


def memory_bytes() -> int:
    for line in read_text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def sandbox_problem() -> str:
    """Why there is no sandbox here, with the fix; empty when one was just made and left."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed: `apt install bubblewrap` (or your system's package of that name)"
    command = bubblewrap(World(), ["/bin/true"], program)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "bubblewrap does not run: {}".format(error)
    if done.returncode == 0:
        return ""
    return "bubblewrap makes no sandbox here: {}; {}".format(done.stderr.decode("utf-8", "replace").strip(), _fix())


def _fix() -> str:
    kernel = "/proc/sys/kernel/"
    if read_text(kernel + "apparmor_restrict_unprivileged_userns").strip() == "1":
        return FIX_APPARMOR
    if read_text(kernel + "unprivileged_userns_clone").strip() == "0":
        return FIX_CLONE
    if read_text("/proc/sys/user/max_user_namespaces").strip() == "0":
        return FIX_MAX
    return "in a container, it must allow user namespaces (nesting)"
