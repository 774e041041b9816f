"""`pit connect` to a service with a certificate of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.services import Seen, Talk, ok, says, serving
from tests.client.test_tls import certificate, public
from tests.terminal import Terminal

PIT = str(Path(sys.executable).parent / "pit")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "TERM": "xterm"}


def connect(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [PIT, "connect", *words]
    return subprocess.run(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)


def hello() -> Talk:
    return says(ok(b"Here I am"))


def silent(_connection: object, _seen: Seen) -> None:
    """Only the certificate was wanted."""


def fingerprint(path: Path) -> str:
    command = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().partition("=")[2]


def test_a_person_can_vouch_for_the_shown_certificate(tmp_path: Path, environment: dict[str, str]) -> None:
    mine = certificate(tmp_path, "mine")
    with (
        serving(hello(), silent, hello(), tls=mine) as (url, _),
        Terminal(PIT, "connect", url, cwd=tmp_path, env=environment) as terminal,
    ):
        terminal.expect(fingerprint(mine))
        terminal.expect("Trust it, and no other, from now on (yes|no)? ")
        terminal.type("yes\n")
        terminal.expect(f"Wrote {tmp_path}/home/.pitconnect.txt")
        assert terminal.end() == 0
    assert (tmp_path / "home" / ".pitconnect.txt").read_text() == f"{url}\n{public(mine)}"


def test_a_script_vouches_by_fingerprint_or_file(tmp_path: Path, environment: dict[str, str]) -> None:
    mine = certificate(tmp_path, "mine")
    with serving(hello(), silent, tls=mine) as (url, _):
        done = connect(environment, url)
        assert done.returncode == 1
        assert "--fingerprint <sha256> or --certificate <file>" in done.stderr
    for words in (["--fingerprint", fingerprint(mine)], ["--certificate", str(mine.with_suffix(".crt"))]):
        talks = [silent, hello()] if words[0] == "--fingerprint" else [hello()]
        with serving(*talks, tls=mine) as (url, _):
            assert connect(environment, url, *words).returncode == 0
        assert (tmp_path / "home" / ".pitconnect.txt").read_text() == f"{url}\n{public(mine)}"


def test_another_certificate_than_the_expected_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    mine, other = certificate(tmp_path, "mine"), certificate(tmp_path, "other")
    with serving(silent, tls=mine) as (url, _):
        done = connect(environment, url, "--fingerprint", fingerprint(other))
    assert done.returncode == 1
    assert "shows another certificate" in done.stderr
    assert not (tmp_path / "home" / ".pitconnect.txt").exists()


def test_what_is_no_snakepit_is_not_connected_to(tmp_path: Path, environment: dict[str, str]) -> None:
    with serving(says(ok(b"<html>"))) as (url, _):
        done = connect(environment, url)
    assert "no snakepit service answers" in done.stderr
    assert not (tmp_path / "home" / ".pitconnect.txt").exists()
