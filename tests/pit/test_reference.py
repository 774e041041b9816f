"""The reference of `pit` knows every command and every variable."""

import re
from pathlib import Path

from snakepit.pit.main import every_command

ROOT = Path(__file__).parent.parent.parent
REFERENCE = (ROOT / "docs" / "reference" / "pit.md").read_text()


def test_every_command_is_in_the_reference() -> None:
    shown = set(re.findall(r"[a-z][a-z-]+", REFERENCE.partition("An entity is")[0]))
    names = {name for command in every_command() for name in (command.name, *command.aliases)}
    assert names - shown == set()


def test_every_variable_is_in_the_reference() -> None:
    used = set()
    for room in ("pit", "client"):
        for file in (ROOT / "src" / "snakepit" / room).rglob("*.py"):
            used |= set(re.findall(r"\bPIT_[A-Z_]+[A-Z]\b", file.read_text()))
    assert {name for name in used if not name.endswith("_FILE")} - set(re.findall(r"PIT_[A-Z_]+", REFERENCE)) == set()


def test_every_command_has_a_summary_and_most_have_examples() -> None:
    for command in every_command():
        assert command.summary
        assert command.examples or command.name == "logout"
