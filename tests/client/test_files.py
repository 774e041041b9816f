"""The two files of a user."""

import stat
from pathlib import Path

import pytest

from snakepit.client import files
from snakepit.errors import SnakepitError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project directory; its user's home is beside it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_the_directory_overrules_the_home(project: Path) -> None:
    files.save_connection(files.Connection("http://home"))
    assert files.load_connection().url == "http://home"
    (project / ".pitconnect.txt").write_text("http://here/\n")
    assert files.load_connection().url == "http://here"


def test_the_certificate_is_what_follows_the_first_line(project: Path) -> None:
    (project / ".pitconnect.txt").write_text(
        "https://pit\n\n-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
    )
    found = files.load_connection()
    assert found.certificate == "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
    files.save_connection(found)
    assert (project.parent / "home" / ".pitconnect.txt").read_text().splitlines()[:2] == [
        "https://pit",
        "-----BEGIN CERTIFICATE-----",
    ]


def test_an_account_is_made_at_home_for_its_owner_alone(project: Path) -> None:
    path = Path(files.save_account(files.Account("tilman", "token")))
    assert path == project.parent / "home" / ".pituser.txt"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = files.load_account()
    assert found is not None
    assert (found.user, found.token) == ("tilman", "token")


def test_an_account_is_rewritten_where_it_was_found(project: Path) -> None:
    here = project / ".pituser.txt"
    here.write_text("tilman\nold\n")
    here.chmod(0o644)
    found = files.load_account()
    assert found is not None
    files.save_account(files.Account(found.user, "new", found.path))
    assert here.read_text() == "tilman\nnew\n"
    assert stat.S_IMODE(here.stat().st_mode) == 0o600
    assert not (project.parent / "home" / ".pituser.txt").exists()
    assert sorted(path.name for path in project.iterdir()) == [".pituser.txt"]


@pytest.mark.usefixtures("project")
def test_without_a_connection_it_is_said_how_to_make_one() -> None:
    with pytest.raises(SnakepitError, match="pit connect <URL>"):
        files.load_connection()
    assert files.load_account() is None


def test_an_empty_file_is_named(project: Path) -> None:
    (project / ".pitconnect.txt").write_text("\n")
    with pytest.raises(SnakepitError, match="no address in its first line"):
        files.load_connection()
