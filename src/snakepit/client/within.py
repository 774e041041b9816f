"""Servers that people look at (TensorBoard, Jupyter), found or started inside a running job, and their port.

The scripts get what was said to them as words or by stdin, never as part of their text. A job's own environment often
has the program (its script activated it), so it is looked for along the PATHs of all processes of the job.
"""

from __future__ import annotations

import re
import time

from snakepit.client.client import Client
from snakepit.client.execution import Execution, start
from snakepit.errors import SnakepitError
from snakepit.wire import carried

NOT_THERE = 69  # what the scripts exit with when the program is not to be found
STARTS_S = 60
SHOWN_LINES = 5
# What a link may hold, and nothing that a terminal takes for a command: it is the job that says it.
ADDRESS = re.compile(rb"https?://[^\s:/]+:(\d{1,5})/([!-~]*)\s")

FIND = r"""
unset SNAKEPIT_SCRIPT
find_program() {
    {
        printf '%s\n' "$PATH"
        for place in /proc/[0-9]*; do
            grep -qzxF "SNAKEPIT_MARK=$SNAKEPIT_MARK" "$place/environ" || continue
            tr '\0' '\n' < "$place/environ" | sed -n 's/^PATH=//p'
            tr '\0' '\n' < "$place/cmdline" | sed -n '1s/^\(\/.*\)\/[^/]*$/\1/p'
        done 2> /dev/null
        printf '%s\n' "$SRC_DIR/.venv/bin" "$SRC_DIR/venv/bin" "$HOME/.local/bin"
    } | tr ':' '\n' | while IFS= read -r place; do
        if [ -n "$place" ] && [ -f "$place/$1" ] && [ -x "$place/$1" ]; then printf '%s\n' "$place/$1"; break; fi
    done
}
"""
# The network of a job is its machine's, and TensorBoard asks nobody who he is: so it answers only below a path that
# cannot be guessed. It comes by stdin, as words are kept in logs.
TENSORBOARD = (
    FIND
    + r"""
IFS= read -r secret || exit 70
program=$(find_program tensorboard)
[ -n "$program" ] || exit 69
folder=$JOB_DIR
if [ -n "$1" ]; then
    folder=
    case $1 in /*) [ -d "$1" ] && folder=$1 ;; esac
    for base in "$JOB_DIR" "$SRC_DIR"; do [ -z "$folder" ] && [ -d "$base/$1" ] && folder=$base/$1; done
    [ -n "$folder" ] || { printf 'there is no directory %s in the job\n' "$1" >&2; exit 66; }
else
    for info in "${TMPDIR:-/tmp}"/.tensorboard-info/pid-*.info; do
        pid=${info##*/pid-}; pid=${pid%.info}
        port=$(sed -n 's/.*"port": *\([0-9]*\).*/\1/p' "$info" 2> /dev/null)
        prefix=$(sed -n 's/.*"path_prefix": *"\/*\([^"]*[^"/]\)\/*".*/\1\//p' "$info" 2> /dev/null)
        [ -n "$port" ] && kill -0 "$pid" 2> /dev/null || continue
        printf 'running already: http://localhost:%s/%s\n' "$port" "$prefix"
        exec tail --pid="$pid" -f /dev/null
    done
fi
exec "$program" --logdir "$folder" --host 127.0.0.1 --port 0 --path_prefix "/$secret" --load_fast=false \
    < /dev/null 2>&1
"""
)
# The token comes by stdin: words are seen by everybody in a list of processes, addresses are kept in logs.
JUPYTER = (
    FIND
    + r"""
IFS= read -r JUPYTER_TOKEN && export JUPYTER_TOKEN || exit 70
program=
for kind in lab notebook server; do
    [ -n "$program" ] || program=$(find_program "jupyter-$kind")
done
[ -n "$program" ] || exit 69
PATH=${program%/*}:$PATH
for _ in {1..50}; do
    port=$((RANDOM % 20000 + 30000))
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
done
exec "$program" --no-browser --ServerApp.ip=127.0.0.1 --ServerApp.port="$port" --ServerApp.port_retries=50 \
    < /dev/null 2>&1
"""
)


class NotInJob(SnakepitError):
    """The job has no such program."""


class Server:
    """A server inside a job that says where it listens. It ends when this is closed."""

    def __init__(self, execution: Execution, name: str) -> None:
        self._execution, self._name = execution, name
        self._said = bytearray()

    def address(self) -> tuple[int, str]:
        """Its port and path, once it says so; what it complains of instead is raised."""
        end = time.monotonic() + STARTS_S
        while not (found := ADDRESS.search(self._said)):
            if self._execution.code == NOT_THERE:
                raise NotInJob(f"{self._name} is not installed in the job")
            if self._execution.code is not None:
                raise SnakepitError(f"{self._name} ended (exit code {self._execution.code}): {self.last_words()}")
            left_s = end - time.monotonic()
            if left_s < 0:
                raise SnakepitError(f"{self._name} did not start within {STARTS_S} s: {self.last_words()}")
            self._listen(left_s)
        return int(found[1]), found[2].decode("ascii", "replace")

    def tell(self, line: str) -> None:
        self._execution.send(line.encode() + b"\n")

    def wait(self) -> None:
        """Until it ends; what it says is heard, so that it never waits for us."""
        while self._execution.code is None:
            self._listen(None)

    def last_words(self) -> str:
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return " / ".join(lines[-SHOWN_LINES:]) or "it said nothing"

    def close(self) -> None:
        self._execution.close()

    def _listen(self, limit_s: float | None) -> None:
        self._execution.wait_readable(limit_s)
        for _, content in self._execution.receive():
            self._said += content
            del self._said[:-65536]


def start_tensorboard(client: Client, job: int, worker: int, directory: str, secret: str) -> Server:
    server = _start(client, job, worker, "TensorBoard", TENSORBOARD, directory)
    server.tell(secret)
    return server


def start_jupyter(client: Client, job: int, worker: int, token: str) -> Server:
    server = _start(client, job, worker, "Jupyter", JUPYTER)
    server.tell(token)
    return server


def _start(client: Client, job: int, worker: int, name: str, script: str, *words: str) -> Server:
    argv = carried.command_of(name.lower(), *words)
    return Server(start(client, job, worker, argv, {carried.VARIABLE: script}), name)
