"""Reading diffs: prefixes, and ends that were trimmed."""

import subprocess
from pathlib import Path

import pytest

from snakepit.source.patch import mended, strip_level
from tests.source.repositories import ENV, Repository


@pytest.fixture
def changed(tmp_path: Path) -> Repository:
    repository = Repository.make(tmp_path / "r", {"a/x": "1\n", "top": "2\n", "sp ace/ü": "3\n", "gone": "4\n" * 9})
    repository.git("mv", "gone", "b-moved")
    return repository


def diff(repository: Repository, *options: str, only: str = ".") -> bytes:
    words = ["git", "diff", "-M", *options, "HEAD", "--", only]
    return subprocess.run(words, cwd=repository.path, env=ENV, capture_output=True, check=True).stdout


@pytest.mark.parametrize("only", ["a/x", "top", "sp ace/ü", "."])
def test_prefixes_are_told_from_none_whatever_the_names(changed: Repository, only: str) -> None:
    changed.write({"a/x": "one\n", "top": "two\n", "sp ace/ü": "three\n"})
    assert strip_level(diff(changed, only=only)) == 1
    assert strip_level(diff(changed, "--no-prefix", only=only)) == 0
    assert strip_level(diff(changed, "--src-prefix=i/", "--dst-prefix=w/", only=only)) == 1


def test_prefixes_of_a_lone_rename_are_told_too(changed: Repository) -> None:
    assert strip_level(diff(changed)) == 1
    assert strip_level(diff(changed, "--no-prefix")) == 0


@pytest.mark.parametrize("blank_lines", [0, 1, 2, 3])
def test_a_trimmed_diff_gets_its_blank_context_back(tmp_path: Path, blank_lines: int) -> None:
    text = "1\n2\n3\n" + "\n" * blank_lines
    repository = Repository.make(tmp_path / "r", {"f": text + "tail\n" * (3 - blank_lines)})
    repository.write({"f": text.replace("3", "three") + "tail\n" * (3 - blank_lines)})
    whole = diff(repository)
    assert mended(whole.strip()) == whole
    assert mended(whole) == whole


def test_a_binary_diff_is_left_alone(tmp_path: Path) -> None:
    repository = Repository.make(tmp_path / "r", {"f": bytes(range(256)), "a": "1\n"})
    repository.write({"f": bytes(range(255, -1, -1)), "a": "2\n"})
    whole = diff(repository, "--binary")
    assert mended(whole) == whole
