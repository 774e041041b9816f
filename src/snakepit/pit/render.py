"""The only file that prints. What a script may want goes to stdout, talk goes to stderr.

What others wrote (titles, names, reasons) passes through `clean` on its way to a table, so that nobody's title moves
anybody's cursor.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

debugging = False


def prepare() -> None:
    """A terminal that cannot show a character gets it written out; nobody gets a traceback for it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def close() -> None:
    """Nothing can be written to stdout any more (its reader has seen enough, the disk is full): not even at the end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def out(text: str) -> None:
    """stdout, as it is."""
    sys.stdout.write(text)


def out_bytes(data: bytes) -> None:
    """stdout at once, byte for byte (logs)."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def json_out(value: object) -> None:
    import json

    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if not text.replace("\n", "").isprintable():  # JSON has its own way to write out what a terminal would obey
        text = json.dumps(value, indent=indent)
    sys.stdout.write(text + "\n")


def talk(text: str) -> None:
    """stderr, a line."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def prompt(text: str) -> None:
    """stderr, as it is: questions and the stars of a password."""
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()


def failure(message: str) -> None:
    talk(f"Command failed: {clean(message, lines=True)}")


def flush() -> None:
    sys.stdout.flush()


def on_terminal() -> bool:
    return sys.stdout.isatty()


def columns() -> int | None:
    """The width of the terminal that stdout is; None when it is none."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def rows() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or 24
    except OSError:
        return 24


def screen(text: str) -> None:
    """Repaints a terminal from its top: each line is cleared as it is written, so that nothing flickers."""
    painted = "".join(line + "\x1b[K\n" for line in text.splitlines()[: rows() - 1])
    sys.stdout.write("\x1b[H" + painted + "\x1b[J")
    sys.stdout.flush()


def open_screen() -> None:
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[H")
    sys.stdout.flush()


def close_screen() -> None:
    sys.stdout.write("\x1b[?25h\x1b[?1049l")
    sys.stdout.flush()


def progress(doing: str, done: int, total: int, speed: float, left_s: float | None = None) -> None:
    """One line on a terminal's stderr that is painted over: `  uploading [====    ] 42% 12 MB/s 3.4s`. Without a total,
    how much it is so far."""
    if not sys.stderr.isatty():
        return
    if total:
        part = min(1.0, done / total)
        shown = f"[{('=' * int(part * 40)).ljust(40)}] {int(part * 100)}%"
    else:
        shown = size(done)
    left = "" if left_s is None else f" {left_s:.1f}s"
    ended = "\n" if total and done >= total else ""
    sys.stderr.write(f"\r  {doing} {shown} {size(speed)}/s{left}\x1b[K{ended}")
    sys.stderr.flush()


def progress_end() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\n")
        sys.stderr.flush()


def name(text: str) -> str:
    """A file's name: for a terminal printable, for a program byte for byte (`out_names` writes it)."""
    return clean(text) if sys.stdout.isatty() else text


def out_names(text: str) -> None:
    """stdout, with names in any encoding as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def size(count: float) -> str:
    """Bytes for people: `999 B`, `1.2 kB`, `12 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# ---------------------------------------------------------------------------------------------------- cells of tables


def clean(text: str, lines: bool = False) -> str:
    """Printable: control and direction characters are written out (`\\x1b`); with `lines` line breaks may stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or (lines and char == "\n") else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return repr(char)[1:-1] if not 0xDC80 <= ord(char) <= 0xDCFF else "\ufffd"


def width(text: str) -> int:
    """Columns of a terminal, not characters: CJK and emoji take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    import unicodedata

    if unicodedata.combining(char) or char in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cell(text: str, columns: int, right: bool = False) -> str:
    """Cut and padded to exactly this many columns."""
    text = clean(text)
    if text.isascii():
        return text[:columns].rjust(columns) if right else text[:columns].ljust(columns)
    kept, used = [], 0
    for char in text:
        wide = _columns_of(char)
        if used + wide > columns:
            break
        kept.append(char)
        used += wide
    padding = " " * (columns - used)
    return padding + "".join(kept) if right else "".join(kept) + padding
