"""Archives of a directory; what is ignored is compared with git's own opinion."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.client.archive import entries, ignored, make_archive, read_rule
from snakepit.errors import SnakepitError
from tests.source.repositories import ENV, Repository


def names(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        return set(tar.getnames())


def test_an_archive_holds_the_directory_but_not_what_is_ignored(tmp_path: Path) -> None:
    place = Repository.make(
        tmp_path / "work",
        {
            "train.py": "x",
            "a/b/c.txt": "c",
            "data/big.bin": "d",
            "out.log": "l",
            "keep.log": "k",
            ".gitignore": "/data/\n*.log\n!keep.log\n",
            ".pitignore": "*.tmp\n",
            "a/x.tmp": "t",
            ".pituser.txt": "secret",
            ".job-upload.json": "{}",
        },
    ).path
    said: list[str] = []
    made = make_archive(place, place / ".job-upload.tar.gz", said.append)
    assert names(made.path) == {"train.py", "a", "a/b", "a/b/c.txt", "keep.log", ".gitignore", ".pitignore"}
    assert made.files == 7
    assert "Archiving train.py..." in said
    assert "Ignoring out.log" in said
    assert made.size_bytes == made.path.stat().st_size


def test_modes_links_and_contents_arrive_and_owners_do_not(tmp_path: Path) -> None:
    place = tmp_path / "work"
    place.mkdir()
    (place / "run.sh").write_text("echo")
    (place / "run.sh").chmod(0o755)
    (place / "link").symlink_to("/etc/passwd")
    os.mkfifo(place / "pipe")
    made = make_archive(place, tmp_path / "a.tar.gz")
    with tarfile.open(made.path) as tar:
        assert tar.getmember("run.sh").mode & 0o111 == 0o111
        assert tar.getmember("link").linkname == "/etc/passwd"
        assert {member.uname for member in tar} == {""}
    assert names(made.path) == {"run.sh", "link"}


def test_an_unfinished_archive_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SnakepitError, match="Cannot archive"):
        make_archive(tmp_path / "absent", tmp_path / "a.tar.gz")
    assert list(tmp_path.iterdir()) == []


PATTERNS = st.lists(
    st.text("ab*?/!.[]\\# ", min_size=1, max_size=8).filter(lambda text: "\\" not in text[-1:]), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    paths = ("a", "b/a", "b/b", "ab", "a.b", "ba/a/b", "ba/b.a", "a b", "b/ab/a.a/bb", "b/ab/b", ".a", "b/.a", "bb/aa")
    return Repository.make(tmp_path_factory.mktemp("ignored") / "tree", dict.fromkeys(paths, "x"))


@settings(deadline=None, max_examples=60)
@given(patterns=PATTERNS)
def test_patterns_mean_what_they_mean_in_git(tree: Repository, patterns: list[str]) -> None:
    (tree.path / ".gitignore").write_text("\n".join(patterns) + "\n")
    words = ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
    index = {**ENV, "GIT_INDEX_FILE": "/nonexistent/index"}
    found = subprocess.run(words, cwd=tree.path, env=index, capture_output=True, check=True).stdout.decode()
    ours = {name for name in entries(tree.path, lambda _line: None, set()) if (tree.path / name).is_file()}
    assert ours == set(found.split("\0")[:-1])


@pytest.mark.parametrize(
    ("pattern", "name", "is_directory", "expected"),
    [
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("/top", "sub/top", False, False),
        ("doc/*.txt", "doc/a.txt", False, True),
        ("doc/*.txt", "doc/sub/a.txt", False, False),
        ("**/x/**", "a/x/b", False, True),
        ("/**", "a/x/b", False, True),
        (r"\#file", "#file", False, True),
        ("[!a].py", "b.py", False, True),
        ("[!a].py", "a.py", False, False),
    ],
)
def test_single_patterns(pattern: str, name: str, is_directory: bool, expected: bool) -> None:
    rule = read_rule(pattern)
    assert rule is not None
    assert ignored(name, is_directory, [rule]) is expected
