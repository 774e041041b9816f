"""The two files a user has: `.pitconnect.txt` (address and certificate) and `.pituser.txt` (name and token).

Looked for in the current directory, then at home; made at home. No pathlib: it takes as long to
import as Python to start.
"""

from __future__ import annotations

import contextlib
import os

from snakepit.errors import SnakepitError

CONNECT_FILE = ".pitconnect.txt"
USER_FILE = ".pituser.txt"
HOW_TO_CONNECT = (
    "No connection info found. Place the .pitconnect.txt file of your cluster in your home or project directory, "
    "or use: pit connect <URL>"
)


class Connection:
    """What `.pitconnect.txt` says."""

    __slots__ = ("certificate", "path", "url")

    def __init__(self, url: str, certificate: str = "", path: str = "") -> None:
        self.url, self.certificate, self.path = url, certificate, path


class Account:
    """What `.pituser.txt` says, and where it was found ("" when it was not)."""

    __slots__ = ("path", "token", "user")

    def __init__(self, user: str, token: str, path: str = "") -> None:
        self.user, self.token, self.path = user, token, path


def home() -> str:
    return os.path.expanduser("~")


def find(name: str, cwd: str | None = None) -> str | None:
    """The path of a file in the current directory, else at home."""
    for folder in (cwd or os.getcwd(), home()):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    return None


def load_connection(cwd: str | None = None) -> Connection:
    path = find(CONNECT_FILE, cwd)
    if path is None:
        raise SnakepitError(HOW_TO_CONNECT)
    first, _, rest = _text(path).partition("\n")
    if not first.strip():
        raise SnakepitError(f"{path} has no address in its first line")
    return Connection(first.strip().rstrip("/"), rest.strip(), path)


def load_account(cwd: str | None = None) -> Account | None:
    path = find(USER_FILE, cwd)
    if path is None:
        return None
    lines = _text(path).splitlines()
    if not lines or not lines[0].strip():
        return None
    return Account(lines[0].strip(), lines[1].strip() if len(lines) > 1 else "", path)


def save_connection(connection: Connection, folder: str | None = None) -> str:
    text = connection.url + "\n" + (connection.certificate.strip() + "\n" if connection.certificate else "")
    path = os.path.join(folder or home(), CONNECT_FILE)
    _write(path, text, 0o644)
    return path


def save_account(account: Account) -> str:
    """Where it was found, else at home; readable by its owner alone, from its first byte on."""
    path = account.path or os.path.join(home(), USER_FILE)
    _write(path, f"{account.user}\n{account.token}\n", 0o600)
    return path


def forget_account(cwd: str | None = None) -> str | None:
    path = find(USER_FILE, cwd)
    if path is not None:
        os.unlink(path)
    return path


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1_000_000)
    except (OSError, UnicodeDecodeError) as problem:
        raise unreadable(path, problem) from None


def unreadable(what: str, problem: OSError | UnicodeDecodeError) -> SnakepitError:
    words = "it is no UTF-8 text" if isinstance(problem, UnicodeDecodeError) else problem.strerror or str(problem)
    return SnakepitError(f"cannot read {what}: {words}")


def _write(path: str, text: str, mode: int) -> None:
    """All or nothing: a new file takes the old one's place, through a link if it is one."""
    path = os.path.realpath(path)
    aside = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
        os.replace(aside, path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise SnakepitError(f"cannot write {path}: {problem.strerror}") from None
