"""From a record to what the holder runs: the world of the sandbox, or the bare program where isolation is none."""

import os
import re
import shutil
from typing import Any, Dict, List

from snakepit.core.confine import SYS_CARDS, SYS_CORES, Bind, World, bubblewrap
from snakepit.engines.agent import gpus, procs
from snakepit.engines.agent.etc import Etc, links
from snakepit.engines.agent.holder import STATUS_FD, Payload
from snakepit.engines.agent.records import Record, Records
from snakepit.engines.agent.refusal import not_now, rejected

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$")


class Node:
    """What all processes here have in common."""

    def __init__(self, records: Records, cluster: str) -> None:
        self.records, self.cluster = records, cluster
        self.etc = Etc(records.top)
        self.cards: List[Dict[str, Any]] = records.read_json("cards") or []
        self.options: Dict[str, Any] = records.read_json("options") or {}

    def mark(self, record: Record) -> str:
        return "{}/{}".format(self.cluster, record["id"])


def payload(record: Record, node: Node, joins: List[str]) -> Payload:
    records, etc = node.records, node.etc
    launch = record["launch"]
    granted = [find_card(grant, node.cards) for grant in launch["granted"]]
    sandboxed = record["isolation"] == "sandbox"
    argv = launch["argv"]
    if sandboxed:
        program = shutil.which("bwrap") or "/usr/bin/bwrap"
        argv = bubblewrap(world(record, records, granted, etc), argv, program)
    return Payload(
        argv=argv,
        environment=environment(record, records, granted, node.mark(record)),
        cwd="/" if sandboxed else launch["cwd"],
        sandboxed=sandboxed,
        out=records.file(record["id"], "out"),
        dropped=records.file(record["id"], "dropped"),
        status=records.file(record["id"], record["status"]),
        limit_bytes=launch["log_limit_bytes"],
        cgroups=joins,
    )


def world(record: Record, records: Records, granted: List[Dict[str, Any]], etc: Etc) -> World:
    launch = record["launch"]
    masked: List[str] = []
    binds: List[Bind] = []
    if os.path.isdir(gpus.NVIDIA_PROC):
        masked.append(gpus.NVIDIA_PROC)
        for card in granted:
            path = os.path.join(gpus.NVIDIA_PROC, card["bus"] or "-")
            binds.append(Bind(path, path, optional=True))
    binds.append(Bind(home(record, records), inner_home(record), writable=True))
    for name in ("hosts", "passwd"):
        binds.append(Bind(records.file(record["id"], name), "/etc/" + name))
    for mount in list(record.get("node_mounts", ())) + launch["mounts"]:
        binds.append(Bind(mount["source"], mount["path"], writable=mount["writable"]))
    for path in gpus.devices(granted):
        binds.append(Bind(path, path, device=True))
    return World(
        binds=tuple(binds),
        hidden=tuple([records.top] + list(record.get("hidden", ()))),
        masked=tuple(masked),
        cwd=launch["cwd"],
        network=True,
        hostname=launch["name"],
        temporary=records.file(record["id"], "tmp"),
        sysfs=SYS_CARDS if granted else SYS_CORES,
        etc=etc.directory(),
        links=links(),
        status_fd=STATUS_FD,
    )


def environment(record: Record, records: Records, granted: List[Dict[str, Any]], mark: str) -> Dict[str, str]:
    sandboxed, user = record["isolation"] == "sandbox", record["launch"]["user"]
    chosen = {"PATH": PATH, "LANG": "C.UTF-8"}
    if not sandboxed:
        chosen.update({name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ})
    chosen.update(record["go"]["environment"])
    chosen["TMPDIR"] = "/tmp" if sandboxed else records.file(record["id"], "tmp")
    if sandboxed or user:
        chosen["HOME"] = inner_home(record) if sandboxed else home(record, records)
        chosen["USER"] = chosen["LOGNAME"] = user or "pit"
    chosen.update(gpus.visible(granted))
    chosen[procs.MARK] = mark
    return chosen


def home(record: Record, records: Records) -> str:
    return os.path.join(records.top, "homes", record["launch"]["user"] or "pit")


def inner_home(record: Record) -> str:
    return "/home/" + (record["launch"]["user"] or "pit")


def furnish(record: Record, records: Records) -> None:
    """Writes those files of its /etc that are its own."""
    for name, text in (("hosts", hosts(record)), ("passwd", passwd(record))):
        with open(records.file(record["id"], name), "w") as file:
            file.write(text)


def hosts(record: Record) -> str:
    """The text of /etc/hosts: the pit's names, each also with the `.lxd` that containers have, and our own."""
    names = {record["launch"]["name"]: record["address"]}
    names.update(record["go"]["hosts"])
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    for name, address in sorted(names.items()):
        lines.append("{} {}".format(address, name if "." in name else name + " " + name + ".lxd"))
    return "\n".join(lines) + "\n"


def passwd(record: Record) -> str:
    """The text of /etc/passwd: whoever runs this job comes first, with the job's home and a shell (sshd asks for both);
    the account that all jobs share is nobody's name in there."""
    user = record["launch"]["user"] or "pit"
    uid = str(os.getuid())
    own = "{}:x:{}:{}::{}:/bin/bash".format(user, uid, os.getgid(), inner_home(record))
    try:
        with open("/etc/passwd", errors="surrogateescape") as file:
            others = file.read().splitlines()
    except OSError:
        others = []
    kept = [line for line in others if line.split(":")[0] != user and line.split(":")[2:3] != [uid]]
    return "\n".join([own] + [line.encode("ascii", "replace").decode() for line in kept]) + "\n"


def find_card(grant: Dict[str, Any], cards: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The card that was meant: by its UUID; one without is meant by its number."""
    for card in cards:
        if grant["uuid"] == card["uuid"] and (grant["uuid"] or grant["index"] == card["index"]):
            return card
    raise not_now("there is no card {} here".format(grant["uuid"] or grant["index"]))


def check(launch: Dict[str, Any]) -> None:
    """Refuses what could be no honest launch, before anything of it becomes a path or a name."""
    if not re.match(r"^\d+\.\d+\.\d+\.\d+$", launch["id"]):
        raise rejected("not an identity: {!r}".format(launch["id"]))
    for word in (launch["name"], launch["user"] or "pit"):
        if not NAME.match(word) or len(word) > 64:
            raise rejected("not a name: {!r}".format(word))
    if not launch["argv"] or any("\0" in word for word in launch["argv"]):
        raise rejected("{}: nothing to run".format(launch["id"]))
    for mount in launch["mounts"]:
        if not os.path.isabs(mount["source"]) or not os.path.isabs(mount["path"]):
            raise rejected("mounts need whole paths: {source} as {path}".format(**mount))
        if not os.path.exists(mount["source"]):
            raise not_now("{source} (to be mounted as {path}) is not there".format(**mount))
        _refuse_detours(mount["source"], [other["source"] for other in launch["mounts"] if other["writable"]])


def _refuse_detours(source: str, writable: List[str]) -> None:
    """A mount below one that users write to must be what it says, not a link that one of them laid there."""
    for top in writable:
        if source.startswith(top.rstrip("/") + "/"):
            here = top.rstrip("/")
            for part in source[len(here) + 1 :].split("/"):
                here = os.path.join(here, part)
                if os.path.islink(here):
                    raise rejected("{} is a link, which a mount may not be".format(here))
