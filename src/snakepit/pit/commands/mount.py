"""`pit mount`, `pit umount`: a directory of the cluster as one of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile

from snakepit.client import files, places, transfer
from snakepit.errors import BadRequest, NotFound
from snakepit.pit import mounting, render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def mount(arguments: Arguments) -> int:
    place, path, _ = places.parse([arguments.word("entity")])
    if path:
        raise UsageError("whole entities are mounted, without a path")
    mountpoint = arguments.word("mountpoint")
    mounting.check()
    if mountpoint:
        mounting.free(mountpoint)
    client = session.open_client()
    found = transfer.whole(client, place)
    if found.over_limit:
        render.talk(f"Note: {found.over_limit}. Through a mount more can still be written, and room be made.")
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or the background of a script
            signal.signal(number, _interrupt)
    made = "" if mountpoint else tempfile.mkdtemp(prefix=f"{mounting.TEMPORARY}{place.name}-")
    try:
        return _mounted(
            mounting.start(client, place, mountpoint or made),
            client.address.url + place.root,
            mountpoint or made,
            arguments,
        )
    finally:
        if made:
            mounting.tidy(made)


def _mounted(process: subprocess.Popen[bytes], url: str, mountpoint: str, arguments: Arguments) -> int:
    try:
        render.out(f"mounted {url} to {mountpoint}\n")
        render.flush()
        if arguments.on("shell"):
            _shell(mountpoint)
        else:
            render.talk("press Ctrl-C to unmount")
            process.wait()
    except KeyboardInterrupt:
        render.prompt("\n")
    finally:
        try:
            _be_deaf()
        finally:
            mounting.unmount(mountpoint)
            process.wait(timeout=60)
    render.talk(f"filesystem at {mountpoint} unmounted")
    return 0


def _interrupt(*_: object) -> None:
    """The first word counts: a terminal that goes often says so more than once."""
    _be_deaf()
    raise KeyboardInterrupt


def _be_deaf() -> None:
    """The unmount is not to be interrupted."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def _shell(mountpoint: str) -> None:
    render.talk('secondary shell: call "exit" to end and unmount')
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for what runs in the shell
    try:
        subprocess.run([os.environ.get("SHELL") or "bash", "-i"], cwd=mountpoint)
    finally:
        signal.signal(signal.SIGINT, before)


def umount(arguments: Arguments) -> int:
    known = mounting.mounts()
    what = arguments.word("mountpoint")
    chosen = [each for each in known if what and os.path.realpath(what) == each.point]
    if not chosen:
        url = files.load_connection().url
        known = [each for each in known if each.url == url]  # another cluster's are named by their mountpoints
        chosen = [each for each in known if not what or each.entity == _entity(what)]
    if not chosen:
        raise NotFound(f"{what} is no mountpoint of pit's{_listed(known)}" if what else "Nothing is mounted")
    if len(chosen) > 1:
        raise BadRequest(f"Which one?{_listed(chosen)}")
    mountpoint = chosen[0].point
    mounting.unmount(mountpoint)
    if mounting.temporary(mountpoint):
        mounting.tidy(mountpoint)
    render.talk(f"filesystem at {mountpoint} unmounted")
    return 0


def _entity(word: str) -> str:
    found = places.find(word)
    return found[0].entity if found is not None else ""


def _listed(found: list[mounting.Mount]) -> str:
    return "".join(f"\n  {each.entity} at {each.point}" for each in found)


COMMANDS = (
    Command(
        "mount",
        "mounts the data directory of an entity to a local mountpoint",
        mount,
        (Argument("entity"), Argument("mountpoint", required=False)),
        (Option("--shell", "starts a shell there, and unmounts when it ends"),),
        examples=("pit mount home ~/cluster", "pit mount 190 --shell", "pit mount group:students /mnt/students"),
        notes="""
"entity" is home, user:<name>, group:<name> (read and write), shared, job:<number> or just <number> (read-only).
Without a mountpoint it is a temporary one. It stays mounted until Ctrl-C (or pit umount), also when the
service restarts; a file that was open then gives an error and has to be opened again.
sshfs has to be installed here (Debian and Ubuntu: apt-get install sshfs).""",
    ),
    Command(
        "umount",
        "unmounts what pit mount mounted",
        umount,
        (Argument("mountpoint", required=False),),
        examples=("pit umount ~/cluster", "pit umount home"),
        notes="""
The mountpoint may be left out where there is only one, or be named by its entity.""",
    ),
)
