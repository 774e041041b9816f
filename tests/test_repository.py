"""The repository's own promises: what the client carries, what may be written in it, and that waiting waits."""

import asyncio
import importlib.metadata
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import await_until, wait_until

ROOT = Path(__file__).parent.parent


def test_the_client_alone_needs_nothing_but_python() -> None:
    requires = importlib.metadata.requires("snakepit-scheduler") or []
    assert [line for line in requires if "extra ==" not in line] == []


def test_every_command_of_pit_starts_without_any_library() -> None:
    """-S: without site-packages; all commands are loaded for the help text."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from snakepit.pit.main import main; main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert "Commands:" in done.stdout, done.stderr


def test_pit_and_snakepit_are_commands() -> None:
    scripts = importlib.metadata.distribution("snakepit-scheduler").entry_points.select(group="console_scripts")
    assert {(script.name, script.value) for script in scripts} >= {
        ("pit", "snakepit.pit.main:main"),
        ("snakepit", "snakepit.admin.main:main"),
    }


def test_every_relative_link_in_the_texts_leads_somewhere() -> None:
    broken = [
        f"{text.relative_to(ROOT)}: {target}"
        for text in tracked("*.md")
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text.read_text())
        if not (text.parent / target).exists()
    ]
    assert broken == []


def test_make_help_names_every_command_of_the_repository() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in shown.splitlines()} == {
        "setup",
        "demo",
        "test",
        "check",
        "bench",
        "clean",
        "help",
    }


def test_waiting_gives_the_first_truthy_value() -> None:
    counter = itertools.count()
    assert wait_until(lambda: next(counter), timeout_s=5) == 1


def test_waiting_in_vain_says_what_for_and_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"not true within 0.02 s: the moon \(last seen: 0\)"):
        wait_until(lambda: 0, timeout_s=0.02, message="the moon")


def test_async_waiting_takes_plain_and_coroutine_facts() -> None:
    async def ready() -> str:
        return "yes"

    async def both() -> tuple[str, str]:
        return await await_until(ready), await await_until(lambda: "plain")

    assert asyncio.run(both()) == ("yes", "plain")


SKIPS = """
import pytest
def test_that_skips(): pytest.skip("the thing is not here")
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("room", "variable", "passes"), [("system", "1", False), ("system", "", True), ("core", "1", True)]
)
def test_a_skipped_system_test_fails_the_run_where_none_may_be_left_out(
    tmp_path: Path, room: str, variable: str, passes: bool
) -> None:
    rooms = tmp_path / "tests"
    (rooms / room).mkdir(parents=True)
    for name in ("__init__.py", "conftest.py", "postgres.py"):
        shutil.copy(ROOT / "tests" / name, rooms / name)
    (rooms / room / "test_something.py").write_text(SKIPS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "markers=system", "tests"],
        cwd=tmp_path,
        env={**os.environ, "SNAKEPIT_NO_SKIPS": variable},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) is passes, done.stdout
    assert ("not allow" in done.stdout) is not passes


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]
