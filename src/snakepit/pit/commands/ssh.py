"""`pit ssh-config`: makes `ssh pit-190`, scp, rsync and editors work into running jobs."""

from __future__ import annotations

import os
import shutil
import sys

from snakepit.client.sshd import host_entry
from snakepit.errors import SnakepitError
from snakepit.pit import chosen, render, session
from snakepit.pit.arguments import Arguments, Command, Option

INCLUDE = "Include pit/config"


def ssh_config(arguments: Arguments) -> int:
    home = os.path.join(os.path.expanduser("~"), ".ssh")
    folder = os.path.join(home, "pit")
    text = host_entry(_program(), chosen.my_name(session.open_client()), folder, _directory())
    if arguments.on("print"):
        render.out(text)
        return 0
    for path in (home, folder):  # one by one: of several, only the last would get the mode
        os.makedirs(path, mode=0o700, exist_ok=True)
    _make_key(os.path.join(folder, "id_ed25519"))
    _write(os.path.join(folder, "config"), text)
    main = os.path.join(home, "config")
    if _include(main):
        render.talk(f'Added "{INCLUDE}" at the top of {main}.')
    render.out(f"Written to {folder}/config. Running jobs are reached by: ssh pit-<job>, or pit-<job>-<worker>\n")
    return 0


def _program() -> str:
    """How ssh shall call us, whatever its PATH is."""
    own = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == "pit" else ""
    found = own if own and os.access(own, os.X_OK) else shutil.which("pit")
    if not found:
        raise SnakepitError("cannot find the pit program; is it on your PATH?")
    return found


def _directory() -> str | None:
    """A project with a service of its own is remembered; else ssh finds it at home, as we do."""
    here = os.getcwd()
    return here if os.path.exists(os.path.join(here, ".pitconnect.txt")) else None


def _make_key(path: str) -> None:
    import subprocess

    if os.path.exists(path) and os.path.exists(path + ".pub"):
        return
    program = shutil.which("ssh-keygen")
    if program is None:
        raise SnakepitError("ssh-keygen is not installed here; it comes with ssh (OpenSSH)")
    if os.path.exists(path):
        os.unlink(path)
    done = subprocess.run(
        [program, "-q", "-t", "ed25519", "-N", "", "-C", "pit", "-f", path], capture_output=True, text=True
    )
    if done.returncode:
        raise SnakepitError(f"ssh-keygen failed: {done.stderr.strip()}")


def _write(path: str, text: str) -> None:
    """Beside and renamed: ssh may be reading it."""
    aside = f"{path}.{os.getpid()}"
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(aside, path)


def _include(path: str) -> bool:
    """Whether the line had to be added. First, because ssh takes the first value it finds."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            before = file.read()
    except FileNotFoundError:
        before = ""
    if any(line.split() == INCLUDE.split() for line in before.splitlines()):
        return False
    real = os.path.realpath(path)  # where a dotfiles repository holds it
    aside = f"{real}.{os.getpid()}"
    with open(
        os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8", errors="surrogateescape"
    ) as file:
        file.write(f"{INCLUDE}\n\n{before}" if before else f"{INCLUDE}\n")
    os.replace(aside, real)
    return True


COMMANDS = (
    Command(
        "ssh-config",
        "lets ssh, scp, rsync and editors into running jobs",
        ssh_config,
        options=(Option("--print", "only prints what it would write"),),
        examples=(
            "pit ssh-config && ssh pit-190",
            "scp pit-190:/data/rw/pit/keep/model.pt .",
            "scp -O 'pit-190:$KEEP_DIR/model.pt' .",
            "rsync -a pit-190:/data/rw/pit/keep/ results/",
        ),
        notes="""
It writes ~/.ssh/pit/config with a key of its own and includes it in ~/.ssh/config. pit-190 is worker 0 of job 190,
pit-190-1 its worker 1. The connection goes through the service, as your token allows, to an sshd that runs in the job
as the job's user for this one connection. scp, sftp and rsync take paths as the job sees them; the job's variables are
understood by ssh itself, and by scp with -O. In editors (VS Code Remote), choose the host pit-190.""",
    ),
)
