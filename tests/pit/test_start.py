"""`pit` starts often, so what it imports on its way is part of its design."""

import subprocess
import sys

SLOW = (
    "click",
    "rich",
    "ssl",
    "http.client",
    "email",
    "urllib.parse",
    "dataclasses",
    "inspect",
    "pathlib",
    "typing",
    "subprocess",
)
START = "import sys; from snakepit.pit.main import find; find('status'); print(' '.join(sys.modules))"


def test_the_status_command_imports_nothing_slow() -> None:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert [name for name in SLOW if name in done.stdout.split()] == []


def test_naming_the_package_does_not_load_its_client() -> None:
    loaded = "print('snakepit.client' in sys.modules)"
    script = f"import sys, snakepit; {loaded}; snakepit.Client; {loaded}"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        == "False\nTrue\n"
    )


def test_closed_streams_are_as_good_as_empty_ones() -> None:
    """Otherwise the first connection would become stdin or stdout."""
    for closed in ("<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"):
        run = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", CLOSED]
        assert subprocess.run(run, capture_output=True, timeout=60).returncode == 0, closed


CLOSED = """import os, socket
from snakepit.pit.main import main
assert main(["--version"]) == 0
one = socket.socket()
assert one.fileno() > 2, one.fileno()
for number in range(3):
    os.fstat(number)
"""
