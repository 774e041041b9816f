"""`pit pipe`: stdin and stdout become a stream to a program on the head. For sshfs, git and rsync, not for people.

Whatever such a program appends to its ssh command (options, a host name, the remote command) is understood or ignored.
It never asks for anything: stdin belongs to the program. It reads its own line, because `-h` may mean anything there.
"""

from __future__ import annotations

from snakepit.client.client import Client
from snakepit.client.http import query, quote
from snakepit.client.pipe import open_pipe, relay
from snakepit.errors import SnakepitError, Unauthorized
from snakepit.pit import render
from snakepit.pit.arguments import UsageError

USAGE = """\
Usage: pit pipe [-C <directory>] sftp <entity>
       pit pipe [-C <directory>] git <host> "git-receive-pack|git-upload-pack 'snapshots'"
       pit pipe [-C <directory>] rsync <entity> <path> <host> rsync --server ...
       pit pipe [-C <directory>] ssh pit-<job>[-<worker>] <user>

Carries the bytes of sftp, git or rsync through the service; the ssh command of such a program:
  sftp -D "pit pipe sftp home"
  sshfs pit: DIRECTORY -o "ssh_command=pit pipe sftp group:lab,reconnect"
  GIT_SSH_COMMAND="pit pipe git" GIT_SSH_VARIANT=simple git fetch ssh://pit/snapshots 'refs/pit/*:refs/pit/*'
  rsync -a --no-secluded-args -e "pit pipe rsync home data/images" images/ pit:.
The ProxyCommand of ssh into a running job (pit ssh-config writes it):
  ssh -o "ProxyCommand=pit pipe ssh %n %r" pit-190

Entities: home, user:<name>, group:<name>, shared, job:<number>. <path> is percent-encoded and counts from the entity.
Options:
  -C <directory>  where to look for .pitconnect.txt and .pituser.txt, before the home directory
"""
GIT_SERVICES = {"git-receive-pack": "receive-pack", "git-upload-pack": "upload-pack"}


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"], []):
        render.out(USAGE)
        render.flush()
        return 0 if words else 2
    directory = None
    if words[0] == "-C":
        directory, words = (words[1], words[2:]) if len(words) > 1 else (None, [])
    if words[:1] == ["ssh"]:
        return _ssh(words[1:], directory)
    if not words or words[0] not in PATHS:
        raise UsageError("expected: pit pipe sftp|git|rsync|ssh …; see pit pipe --help")
    path = PATHS[words[0]](words[1:])
    return _carry(path, directory)


def _carry(path: str, directory: str | None) -> int:
    with Client.from_files(directory) as client:
        try:
            opened = open_pipe(client, path)
        except Unauthorized as problem:
            raise Unauthorized(f"{problem.message}. Log in again: pit login") from None
    if not relay(opened, 0, 1):
        raise SnakepitError("the pipe ended before anything came through it: the log of the service may say why")
    return 0


def _ssh(words: list[str], directory: str | None) -> int:
    """What ssh says goes to an sshd inside the job; what that complains of is ours to say."""
    if len(words) != 2:
        raise UsageError("expected: pit pipe ssh pit-<job>[-<worker>] <user>; pit ssh-config writes it")
    import os

    from snakepit.client.sshd import public_key, start_sshd, worker_of_host

    job, worker = worker_of_host(words[0])
    key = public_key(os.path.join(os.path.expanduser("~"), ".ssh", "pit"))
    with Client.from_files(directory) as client:
        try:
            execution = start_sshd(client, job, worker, key, words[1])
        except Unauthorized as problem:
            raise Unauthorized(f"{problem.message}. Log in again: pit login") from None
    return execution.run(0, 1, 2)


def _sftp(words: list[str]) -> str:
    if not words:
        raise UsageError("expected: pit pipe sftp <entity>")
    return "/pipes/sftp" + query({"entity": words[0]})


def _git(words: list[str]) -> str:
    """`[options] host "git-receive-pack 'path'"`; a question for our options (-G) gets a no, as plain commands give."""
    if "-G" in words or not words:
        raise UsageError("expected: pit pipe git <host> \"git-receive-pack 'snapshots'\"")
    program, _, repository = words[-1].partition(" ")
    if program == "git" and repository:
        second, _, repository = repository.partition(" ")
        program = f"git-{second}"
    if program not in GIT_SERVICES:
        raise UsageError(f'git may not ask for "{words[-1][:60]}" here')
    return "/pipes/git" + query({"repository": repository.strip("'\"/ "), "service": GIT_SERVICES[program]})


def _rsync(words: list[str]) -> str:
    """`entity path host rsync --server options . whatever`: the path is ours, not what rsync made of it."""
    if len(words) < 4 or "--server" not in words or "." not in words[4:]:
        raise UsageError("expected: rsync -e 'pit pipe rsync <entity> <path>' … pit:.")
    options = words[words.index("--server", 3) : words.index(".", 4)]
    pairs = "".join(f"&args={quote(word)}" for word in options)
    return f"/pipes/rsync{query({'entity': words[0]})}&path={_encoded(words[1])}{pairs}"


def _encoded(path: str) -> str:
    """Percent-encoded as it came (rsync splits its -e at blanks); what is not safe in an address is encoded now."""
    return "".join(char if char == "%" else quote(char) for char in path)


PATHS = {"sftp": _sftp, "git": _git, "rsync": _rsync}
