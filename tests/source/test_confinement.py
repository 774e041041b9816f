"""What a preparation can see and do: its own cache and directory, and nothing that belongs to the head or to others.
And what can be seen of it: never a credential."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snakepit.core.origin import read_origin
from snakepit.errors import SnakepitError
from snakepit.source.git import cache_dir
from snakepit.source.sandbox import Finished, Sandbox
from tests.source.preparing import Head, needs_bubblewrap
from tests.source.repositories import Repository, served
from tests.source.test_git import daemon

__all__ = ["daemon"]

pytestmark = pytest.mark.system  # real programs, a dozen for each test
PASSWORD = "s3cret-t0ken"


def inside(head: Head, script: str, network: bool = False, **env: str) -> Finished:
    home, work = head.root / "pits/.prep-1/home", head.root / "pits/.prep-1/pit"
    for path in (home, work):
        path.mkdir(parents=True, exist_ok=True)
    box = Sandbox(head.root, home, head.confined, lambda _line: None, env=env)
    return asyncio.run(box.run(["sh", "-c", script], cwd=work, writable=[work], network=network))


@needs_bubblewrap
def test_only_the_handed_directories_of_the_data_root_are_there(confined: Head) -> None:
    for name in ("home/anna", "cache/bert", "pits/2"):
        (confined.root / name).mkdir(parents=True)
    (confined.root / "snakepit.db").write_text("")
    seen = inside(confined, f"cd {confined.root} && find . | sort").out.split()
    assert seen == [".", "./pits", "./pits/.prep-1", "./pits/.prep-1/home", "./pits/.prep-1/pit"]


@needs_bubblewrap
def test_no_secrets_of_the_machine_are_there(confined: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAKEPIT_SECRET", "x")
    assert inside(confined, "cat /etc/shadow; ls /root /home /var/lib /etc/ssh/*key; true").out == ""
    names = {line.partition("=")[0] for line in inside(confined, "env", EXTRA="1").out.splitlines()}
    assert names <= {"PATH", "HOME", "TMPDIR", "LC_ALL", "EXTRA", "PWD", "SHLVL", "_", "OLDPWD"}


@needs_bubblewrap
def test_no_powers_are_left_and_no_other_process_is_seen(confined: Head) -> None:
    assert "CapEff:\t0000000000000000" in inside(confined, "cat /proc/self/status").out
    assert inside(confined, "mount -o remount,rw / || touch /usr/x || mknod /tmp/n c 1 3").code != 0
    processes = inside(confined, "ls -d /proc/[0-9]*").out.split()
    assert len(processes) <= 4


@needs_bubblewrap
def test_the_network_is_there_only_where_it_is_needed(confined: Head) -> None:
    with served(confined.root) as host:
        probe = f"exec 3<>/dev/tcp/{host.replace(':', '/')}"
        assert inside(confined, f"bash -c '{probe}'").code != 0
        assert inside(confined, f"bash -c '{probe}'", network=True).code == 0


def test_a_missing_program_is_named(head: Head) -> None:
    box = Sandbox(head.root, head.root, False, print)
    with pytest.raises(SnakepitError, match="no-such-program is not installed"):
        asyncio.run(box.run(["no-such-program"], cwd=head.root))


def test_endless_talk_of_a_program_is_cut(head: Head) -> None:
    said: list[str] = []
    box = Sandbox(head.root, head.root, False, said.append)
    done = asyncio.run(box.run(["sh", "-c", "yes line | head -5000 >&2; yes | head -c 9000000"], cwd=head.root))
    assert len(said) == 1001
    assert len(done.out) == 1 << 20


# ------------------------------------------------------------------------------------------------- credentials


@contextmanager
def watched(secret: str) -> Iterator[list[str]]:
    """Everything that `ps` could show meanwhile, in as far as it contains the secret."""
    seen: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    line = (process / "cmdline").read_bytes().decode("utf-8", "replace")
                except OSError:
                    continue
                if secret in line:
                    seen.append(line)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def containing(place: Path, secret: str) -> list[str]:
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


@pytest.fixture
def private(tmp_path: Path) -> Iterator[tuple[Repository, str]]:
    """A repository behind a password, with a submodule on the same server; gives it and host:port."""
    library = Repository.make(tmp_path / "www/library", {"l": "l\n"})
    upstream = Repository.make(tmp_path / "www/r", {"f": "f\n"})
    upstream.git("submodule", "--quiet", "add", library.url, "library")
    upstream.commit({".gitmodules": '[submodule "library"]\n\tpath = library\n\turl = ../../library/.git\n'})
    upstream.serve_dumbly()
    library.serve_dumbly()
    with served(tmp_path / "www", f"me:{PASSWORD}") as host:
        yield upstream, host


def test_credentials_work_and_are_seen_nowhere(either: Head, private: tuple[Repository, str]) -> None:
    upstream, host = private
    with watched(PASSWORD) as seen:
        said = either.prepare(1, "git", origin=f"http://me:{PASSWORD}@{host}/r/.git", hash=upstream.head)
    assert (either.src() / "f").read_text() == "f\n"
    assert (either.src() / "library/l").read_text() == "l\n"
    assert seen == []
    assert PASSWORD not in "".join(said)
    assert containing(either.root, PASSWORD) == []
    assert f"url = http://{host}/r/.git" in (either.src() / ".git/config").read_text()


def test_odd_characters_in_credentials_survive(head: Head, tmp_path: Path) -> None:
    upstream = Repository.make(tmp_path / "www/r", {"f": "f\n"})
    upstream.serve_dumbly()
    with served(tmp_path / "www", "me@lab:p:w d/'\"") as host:
        head.prepare(1, "git", origin=f"http://me%40lab:p:w%20d%2F'\"@{host}/r/.git")
    assert (head.src() / "f").exists()


@pytest.mark.parametrize("credentials", ["", f"me:not-{PASSWORD}@"])
def test_wrong_credentials_are_an_error_with_a_hint_and_without_them(
    either: Head, private: tuple[Repository, str], credentials: str
) -> None:
    with pytest.raises(SnakepitError, match=r"Cannot fetch http://127.*token in the address") as refused:
        either.prepare(1, "git", origin=f"http://{credentials}{private[1]}/r/.git", hash="a" * 40)
    assert PASSWORD not in refused.value.message


@pytest.mark.parametrize("spelling", ["git@127.0.0.1:x.git", "ssh://git@127.0.0.1:1/x.git"])
def test_ssh_never_asks(either: Head, spelling: str) -> None:
    with pytest.raises(SnakepitError, match="Cannot fetch"):
        either.prepare(1, "git", origin=spelling, hash="a" * 40, time_limit_s=60)


# ------------------------------------------------------------------------------------------------ other people's


@pytest.fixture
def annas(confined: Head, tmp_path: Path) -> Path:
    """The cache of something private that anna fetched."""
    upstream = Repository.make(tmp_path / "annas", {"secret": "s\n"})
    confined.prepare(1, "git", "anna", origin=upstream.url)
    return cache_dir(confined.root, "anna", read_origin(upstream.url))


@needs_bubblewrap
def test_a_submodule_from_somebody_elses_cache_is_not_fetched(
    confined: Head, annas: Path, tmp_path: Path, daemon: str
) -> None:
    evil = Repository.make(tmp_path / "served/evil", {"e": "e\n"})
    evil.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"file://{annas}", "stolen")
    evil.commit({})
    for origin in (f"{daemon}/evil", evil.url):
        with pytest.raises(SnakepitError, match="Cannot fetch the submodules"):
            confined.prepare(2, "git", "bert", origin=origin, hash=evil.head)
    assert not confined.pit(2).exists()


@needs_bubblewrap
def test_a_link_or_an_lfs_setting_to_somebody_elses_cache_leads_nowhere(
    confined: Head, annas: Path, tmp_path: Path
) -> None:
    (annas / "lfs/objects/aa/bb").mkdir(parents=True)
    object_id = "aabb" + "0" * 60
    (annas / f"lfs/objects/aa/bb/{object_id}").write_text("secret")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{object_id}\nsize 6\n"
    config = f"[lfs]\n\turl = file://{annas}\n\tstorage = {annas}/lfs\n"
    evil = Repository.make(tmp_path / "evil")
    files: dict[str, str | bytes] = {".gitattributes": "*.big filter=lfs\n", "x.big": pointer, ".lfsconfig": config}
    evil.commit(files)
    with pytest.raises(SnakepitError, match="Cannot fetch the large files"):
        confined.prepare(2, "git", "bert", origin=evil.url)


def test_nothing_that_a_repository_brings_is_run(either: Head, tmp_path: Path, daemon: str) -> None:
    mark = tmp_path / "ran"
    evil = Repository.make(tmp_path / "served/evil", {"e": "e\n"})
    evil.write({".git/hooks/post-checkout": f"#!/bin/sh\ntouch {mark}\n", ".git/hooks/post-upload-pack": "x"})
    (evil.path / ".git/hooks/post-checkout").chmod(0o755)
    command = f"!touch {mark}"
    modules = f'[submodule "p"]\n\tpath = p\n\turl = {daemon}/probe\n\tupdate = {command}\n'
    attributes = "* filter=evil diff=evil merge=evil\n"
    config = f'[filter "evil"]\n\tsmudge = touch {mark}\n[core]\n\tfsmonitor = touch {mark}\n'
    evil.commit({".gitattributes": attributes, ".gitconfig": config, "hooks/post-checkout": f"touch {mark}\n"})
    either.prepare(1, "git", origin=f"{daemon}/evil", hash=evil.head)
    evil.git("submodule", "--quiet", "add", f"{daemon}/probe", "p")
    evil.commit({".gitmodules": modules})
    with pytest.raises(SnakepitError):
        either.prepare(2, "git", origin=f"{daemon}/evil", hash=evil.head)
    assert not mark.exists()


PREPARE = """
import asyncio, sys
from pathlib import Path
from snakepit.source.provision import Work, provision
root, origin = sys.argv[1:]
asyncio.run(provision(Work(Path(root), 1, "anna", "git", origin=origin, time_limit_s=60), print))
"""


@needs_bubblewrap
def test_an_ordinary_user_prepares_confined(
    ordinary: dict[str, Any], ordinary_root: Path, private: tuple[Repository, str]
) -> None:
    """As the service does: not root, and with the account's own keys out of sight."""
    python = str(Path(sys.base_prefix) / "bin/python3")
    with watched(PASSWORD) as seen:
        words = [python, "-c", PREPARE, str(ordinary_root), f"http://me:{PASSWORD}@{private[1]}/r/.git"]
        done = subprocess.run(words, capture_output=True, text=True, **ordinary)
    assert done.returncode == 0, done.stderr
    assert (ordinary_root / "pits/1/src/library/l").read_text() == "l\n"
    assert PASSWORD not in done.stdout
    assert containing(ordinary_root, PASSWORD) == []
    assert [line for line in seen if "PREPARE" not in line and "provision" not in line] == []
    if os.getuid() == 0:
        assert (ordinary_root / "pits/1/src").stat().st_uid != 0
