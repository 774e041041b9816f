"""ssh into a running job: an sshd inside it, for one connection, that knows one key and ends with whom it speaks to.

It runs as the job's own user in its sandbox, on the three streams of an exec; no port is opened. Its keys lie in a
private directory of the job and go with it.
"""

from __future__ import annotations

import os

from snakepit.client.client import Client
from snakepit.client.execution import Execution, start
from snakepit.errors import BadRequest, SnakepitError
from snakepit.wire import carried

PREFIX = "pit-"
# What was said to it comes as words, never as part of this text. The variables of the job become those of the session:
# sshd would begin with none. (Values with line breaks have no way into its configuration.)
SCRIPT = r"""
trap '' HUP TERM INT  # a hangup goes to all of us, and what is made here is removed in any case
unset SNAKEPIT_SCRIPT
fail() { printf 'pit: %s\n' "$1" >&2; exit 1; }
sshd=$(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd) || fail "sshd is not installed on the node of this job"
command -v ssh-keygen > /dev/null || fail "ssh-keygen is not installed on the node of this job"
before=$(umask)
umask 077
folder=$(mktemp -d "${TMPDIR:-/tmp}/pit-ssh.XXXXXX") || exit
trap 'rm -rf -- "$folder"' EXIT
ssh-keygen -q -t ed25519 -N '' -C pit -f "$folder/host" || exit
printf '%s\n' "$1" > "$folder/keys"
{
    printf 'HostKey "%s"\nAuthorizedKeysFile "%s"\n' "$folder/host" "$folder/keys"
    printf '%s\n' 'UsePAM no' 'StrictModes no' 'PidFile none' 'PrintMotd no' 'PrintLastLog no' 'LogLevel ERROR'
    printf '%s\n' 'PasswordAuthentication no' 'KbdInteractiveAuthentication no' 'X11Forwarding no'
    printf '%s\n' 'AcceptEnv LANG LC_* COLORTERM' 'Subsystem sftp internal-sftp'
    printf 'SetEnv'
    while IFS= read -r -d '' pair; do
        case $pair in
            *$'\n'* | [!A-Za-z_]* | TERM=* | SHLVL=* | PWD=* | OLDPWD=* | _=*) continue ;;
        esac
        pair=${pair//\\/\\\\}
        printf ' "%s"' "${pair//\"/\\\"}"
    done < /proc/self/environ
    printf '\n'
} > "$folder/config"
# sshd lets in nobody but its own account. Where nothing confines the job, that has another name and perhaps no shell.
command=("$sshd" -i -e -f "$folder/config")
if [ "$(id -un)" != "$2" ]; then
    printf '%s:x:%s:%s::%s:/bin/bash\n' "$2" "$(id -u)" "$(id -g)" "$HOME" | cat - /etc/passwd > "$folder/passwd"
    chmod 644 "$folder/passwd"
    within=(bwrap --die-with-parent --dev-bind / / --ro-bind "$folder/passwd" /etc/passwd --)
    if "${within[@]}" true 2> /dev/null; then
        command=("${within[@]}" "${command[@]}")
    else
        fail "nothing confines this job, and sshd lets only $(id -un) in, as whom it runs: ssh -l $(id -un) …"
    fi
fi
umask "$before"
# Beside us, as a trap would wait for what runs in the foreground, and a hangup leaves little time.
trap 'kill "$!" 2> /dev/null' HUP TERM INT
"${command[@]}" <&0 &
wait "$!"
code=$?
trap '' HUP TERM INT
exit "$code"
"""


def start_sshd(client: Client, job: int, worker: int, key: str, user: str) -> Execution:
    """An sshd that speaks on the execution's streams and lets in `user`, who has the private half of `key`."""
    return start(client, job, worker, carried.command_of("ssh", key, user), {carried.VARIABLE: SCRIPT})


def public_key(folder: str) -> str:
    """The public half of the key that `pit ssh-config` made."""
    try:
        with open(os.path.join(folder, "id_ed25519.pub"), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        raise SnakepitError(f"there is no key for jobs in {folder}: run pit ssh-config first") from None


def worker_of_host(name: str) -> tuple[int, int]:
    """`pit-190` is worker 0 of job 190, `pit-190-2` its worker 2."""
    parts = name.removeprefix(PREFIX).split("-")
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadRequest(f'not the name of a job for ssh: "{name}" (expected {PREFIX}<job> or {PREFIX}<job>-<worker>)')
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


def host_entry(program: str, user: str, folder: str, directory: str | None) -> str:
    """The text for ssh's configuration. The service vouches for the other end, so its key, made anew for every
    connection, is not asked for."""
    where = f" -C {_quoted(directory)}" if directory else ""
    lines = [
        f"ProxyCommand {_quoted(program)} pipe{where} ssh %n %r",
        f"User {user}",
        f"IdentityFile {_quoted(os.path.join(folder, 'id_ed25519'))}",
        "IdentitiesOnly yes",
        "PreferredAuthentications publickey",
        "StrictHostKeyChecking no",
        "UserKnownHostsFile /dev/null",
        "GlobalKnownHostsFile /dev/null",
        "LogLevel ERROR",
        "ServerAliveInterval 30",
    ]
    head = f"# Written by `pit ssh-config`. Jobs: ssh {PREFIX}190, or {PREFIX}190-1 for worker 1.\nHost {PREFIX}*\n"
    return head + "".join(f"    {line}\n" for line in lines)


def _quoted(path: str) -> str:
    """For ssh's configuration and for the shell that runs a ProxyCommand."""
    if any(char in path for char in "\"'\\$`\n"):
        raise BadRequest(f"ssh's configuration cannot hold this path: {path}")
    return f'"{path.replace("%", "%%")}"'
