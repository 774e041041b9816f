"""What can be read off a diff before it is applied: how its names are written, and whether its end was cut off.

The original client sends `git diff --no-prefix`, trimmed; ours sends `git diff --binary` with a/ and b/.
"""

from __future__ import annotations

import re

_HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
_NAMES = re.compile(rb"^(?:rename|copy) from (.+)\n(?:rename|copy) to (.+)$", re.MULTILINE)
_HUNK = re.compile(rb"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@.*$", re.MULTILINE)
_HOLLOW = re.compile(rb"^index .*\nBinary files (.+) and (.+) differ$", re.MULTILINE)


def hollow_file(diff: bytes) -> str:
    """A binary file that is only named as different, as `git diff` without `--binary` does it; else empty."""
    named = _HOLLOW.search(diff)
    if named is None:
        return ""
    return (named[1] if named[2] == b"/dev/null" else named[2]).decode("utf-8", "replace")


def strip_level(diff: bytes) -> int:
    """1 where names carry a prefix (`a/x b/x`), 0 where they do not (`x x`)."""
    headers = list(_HEADER.finditer(diff))
    for number, header in enumerate(headers):
        names = header[1].rstrip(b"\r")
        old, new = names[: len(names) // 2], names[len(names) // 2 + 1 :]
        if old == new:
            return 0
        if old.partition(b"/")[2] and old.partition(b"/")[2] == new.partition(b"/")[2]:
            return 1
        end = headers[number + 1].start() if number + 1 < len(headers) else len(diff)
        if moved := _NAMES.search(diff, header.end(), end):
            return 0 if names == moved[1] + b" " + moved[2] else 1
    return 1


def mended(diff: bytes) -> bytes:
    """The diff with the end it had before it was trimmed: a last newline, and the empty context lines of its last hunk
    that trimming ate."""
    if not diff.endswith(b"\n"):
        diff += b"\n"
    hunks = list(_HUNK.finditer(diff))
    if not hunks or b"\nGIT binary patch\n" in diff[hunks[-1].end() :]:
        return diff
    old, new = (int(count) if count is not None else 1 for count in hunks[-1].groups())
    for line in diff[hunks[-1].end() + 1 :].split(b"\n")[:-1]:
        old -= line[:1] in (b" ", b"-", b"")
        new -= line[:1] in (b" ", b"+", b"")
        if old <= 0 and new <= 0:
            return diff
    return diff + b" \n" * old if old == new and old <= 3 else diff
