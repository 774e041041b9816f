"""Questions to people, and their answers from elsewhere: by flag, environment or file. Without a terminal and without
an answer a question is an error that says how to answer it; it never waits for somebody who is not there."""

from __future__ import annotations

import os
import sys

from snakepit.client import files
from snakepit.errors import SnakepitError
from snakepit.pit import render


class Unanswered(SnakepitError):
    """Nobody is there to ask."""


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def text(question: str, how: str, given: str | None = None) -> str:
    """An answer that is not empty. `how` tells a script where else it could stand."""
    if given:
        return given
    _somebody(question, how)
    while True:
        if answer := _line(question).strip():
            return answer


def yes(question: str, how: str, given: bool | None = None) -> bool:
    if given is not None:
        return given
    _somebody(question, how)
    return _line(question).strip().lower() in ("y", "yes")


def email(question: str, how: str, given: str | None = None) -> str:
    while True:
        answer = text(question, how, given)
        if _like_email(answer):
            return answer
        if given:
            raise SnakepitError(f'"{answer}" is no e-mail address')
        render.talk("Input valid e-mail address, please.")


def _like_email(text: str) -> bool:
    name, at, domain = text.rpartition("@")
    return bool(name and at and domain) and not any(char.isspace() or not char.isprintable() for char in text)


OWN, NEW = "PIT_PASSWORD", "PIT_NEW_PASSWORD"  # variables; with _FILE, and as options, they name files
WAYS = {OWN: "PIT_PASSWORD or --password-file <file>", NEW: "PIT_NEW_PASSWORD or --new-password-file <file>"}


def password(question: str, which: str = OWN) -> str:
    """One that exists: given, or a hidden prompt."""
    if (given := given_password(which)) is not None:
        return given
    _somebody(question, WAYS[which])
    return _hidden(question)


def new_password(question: str = "New password: ", which: str = OWN) -> str:
    """One that is to be: asked for twice. Who registers gives it as the own one, else it is the new one."""
    if (given := given_password(which)) is not None:
        return given
    _somebody(question, WAYS[which])
    from snakepit.wire.names import SHORTEST_PASSWORD

    while True:
        first = _hidden(question)
        if len(first) < SHORTEST_PASSWORD:
            render.talk(f"At least {SHORTEST_PASSWORD} characters, please.")
        elif _hidden("Reinput a same one to confirm it: ") == first:
            return first
        else:
            render.talk("The two differ, once more please.")


def given_password(which: str = OWN) -> str | None:
    """Never from the command line, where everybody on the machine could read it."""
    if path := os.environ.get(f"{which}_FILE"):
        try:
            with open(path, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise files.unreadable(f"the password file {path}", problem) from None
    return os.environ.get(which) or None


def _somebody(question: str, how: str) -> None:
    if not interactive():
        raise Unanswered(f'"{question.strip()}" cannot be asked without a terminal; answer it with {how}')


def _line(question: str) -> str:
    render.prompt(question)
    answer = sys.stdin.readline()
    if not answer:
        render.prompt("\n")
        raise KeyboardInterrupt
    return answer.rstrip("\n")


def _hidden(question: str) -> str:
    """Typed characters appear as stars, as people know it from the original client."""
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    quiet = termios.tcgetattr(terminal)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        # Quiet before the question: who answers fast must not see the password, nor lose it.
        termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
        render.prompt(question)
        return _starred(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        render.prompt("\n")


def _starred(terminal: int) -> str:
    typed = bytearray()
    while True:
        byte = os.read(terminal, 1)
        if byte in (b"", b"\x04") and not typed:
            raise KeyboardInterrupt
        if byte in (b"", b"\r", b"\n", b"\x04"):
            return typed.decode("utf-8", "replace")
        if byte in (b"\x7f", b"\x08"):
            _rub_out(typed)
        elif byte == b"\x15":
            while typed:
                _rub_out(typed)
        elif byte >= b" ":
            typed += byte
            if byte < b"\x80" or byte >= b"\xc0":  # one star for a character, however many bytes it has
                render.prompt("*")


def _rub_out(typed: bytearray) -> None:
    if not typed:
        return
    while typed and 0x80 <= typed[-1] < 0xC0:
        typed.pop()
    typed.pop()
    render.prompt("\b \b")
