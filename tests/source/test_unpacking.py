"""Archives: whatever is in them stays in `src/`."""

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from snakepit.client.archive import make_archive
from snakepit.errors import SnakepitError
from tests.source.preparing import Head


def upload(head: Head, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w:gz", user: str = "anna") -> Path:
    home = head.root / "home" / user
    home.mkdir(parents=True, exist_ok=True)
    with tarfile.open(home / "upload.tar", mode) as tar:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return home / "upload.tar"


def file(name: str, content: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.mode = mode
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_becomes_src(either: Head, mode: str) -> None:
    archive = upload(either, [file("a/b.py", b"b"), file("run.sh", mode=0o755), link("l", "a/b.py")], mode)
    either.prepare(1, "archive", archive=archive)
    assert (either.src() / "a/b.py").read_bytes() == b"b"
    assert os.access(either.src() / "run.sh", os.X_OK)
    assert (either.src() / "l").read_bytes() == b"b"


def test_what_the_client_packs_the_head_unpacks(either: Head, tmp_path: Path) -> None:
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "work/sub/f").write_text("f")
    (either.root / "home/anna").mkdir(parents=True)
    made = make_archive(tmp_path / "work", either.root / "home/anna/up.tar.gz")
    either.prepare(1, "archive", archive=made.path)
    assert (either.src() / "sub/f").read_text() == "f"


def outside(head: Head) -> set[str]:
    """All files of the data root but src/ and the upload itself."""
    found = (path for path in head.root.rglob("*") if path.is_file() and path.name != "upload.tar")
    return {str(path.relative_to(head.root)) for path in found if not path.is_relative_to(head.src())}


@pytest.mark.parametrize(
    "members",
    [
        [file("../evil")],
        [file("../../../evil")],
        [file("sub/../../../evil")],
        [link("l", ".."), file("l/evil")],
        [link("l", "../../../.."), file("l/evil")],
        [link("l", "../keep", tarfile.LNKTYPE)],
        [link("l", "../script.sh"), file("l", b"evil")],
    ],
    ids=["parent", "far parent", "hidden parent", "link", "far link", "hard link", "file over link"],
)
def test_names_that_lead_elsewhere_change_nothing_there(
    either: Head, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    archive = upload(either, [*members, file("honest")])
    with contextlib.suppress(SnakepitError):
        either.prepare(1, "archive", archive=archive, script="true")
        assert (either.src() / "honest").exists()
    assert not [name for name in outside(either) if name.rpartition("/")[2] in ("evil", "l")]
    if either.pit().exists():
        assert (either.pit() / "script.sh").read_text() == "true\n"


def test_absolute_names_land_inside(either: Head, tmp_path: Path) -> None:
    either.prepare(1, "archive", archive=upload(either, [file(f"{tmp_path}/evil")]))
    assert not (tmp_path / "evil").exists()
    assert (either.src() / str(tmp_path / "evil").lstrip("/")).is_file()


def test_a_broken_archive_is_an_error_in_tar_s_words(either: Head) -> None:
    archive = upload(either, [file("a", os.urandom(9000))])
    archive.write_bytes(archive.read_bytes()[:3000])
    with pytest.raises(SnakepitError, match=r"cannot be unpacked: .*(end of file|EOF)"):
        either.prepare(1, "archive", archive=archive)
    archive.write_bytes(b"no archive at all" * 99)
    with pytest.raises(SnakepitError, match="cannot be unpacked"):
        either.prepare(1, "archive", archive=archive)
    archive.write_bytes(b"")
    with pytest.raises(SnakepitError, match="does not look like"):
        either.prepare(1, "archive", archive=archive)


def test_an_upload_that_is_a_link_to_somebody_elses_is_not_opened(either: Head) -> None:
    others = upload(either, [file("secret")], user="bert")
    home = either.root / "home/anna"
    home.mkdir(parents=True)
    (home / "up.tar.gz").symlink_to(others)
    (home / "dir").symlink_to(others.parent)
    os.mkfifo(home / "pipe")
    for name in ("up.tar.gz", "dir/upload.tar", "pipe", "absent", "../bert/upload.tar"):
        with pytest.raises(SnakepitError, match=r"Archive not found|not a file|Archive outside"):
            either.prepare(1, "archive", archive=home / name)
    with pytest.raises(SnakepitError, match="Archive outside"):
        either.prepare(1, "archive", archive=Path("/etc/passwd"))
    assert not either.pit().exists()
