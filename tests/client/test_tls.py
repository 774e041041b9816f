"""A pinned certificate is the only one believed."""

import subprocess
from pathlib import Path

import pytest

from snakepit import Client
from snakepit.client import http, tls
from snakepit.client.http import Address
from snakepit.errors import SnakepitError
from tests.client.services import ok, says, serving


def certificate(folder: Path, name: str, subject: str = "IP:127.0.0.1") -> Path:
    """A self-made certificate and its key in one file."""
    key, made, both = folder / f"{name}.key", folder / f"{name}.crt", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=pit", "-addext", f"subjectAltName={subject}"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    both.write_text(made.read_text() + key.read_text())
    return both


def public(path: Path) -> str:
    return path.with_suffix(".crt").read_text()


def test_a_pinned_certificate_is_believed(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "mine")
    with serving(says(ok(b"Here I am")), tls=mine) as (url, _), Client(url, certificate=public(mine)) as client:
        assert client.hello() == "Here I am"


def test_any_other_is_not(tmp_path: Path) -> None:
    mine, other = certificate(tmp_path, "mine"), certificate(tmp_path, "other")
    with (
        serving(says(ok(b"")), tls=mine) as (url, _),
        pytest.raises(tls.UntrustedCertificate, match="not the expected one"),
    ):
        Client(url, certificate=public(other)).hello()


def test_without_a_pin_a_self_made_one_is_not_believed(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "mine")
    with (
        serving(says(ok(b"")), tls=mine) as (url, _),
        pytest.raises(tls.UntrustedCertificate, match="pit connect --help"),
    ):
        Client(url).hello()


def test_the_very_certificate_is_believed_whatever_host_it_names(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "mine", "DNS:pit.example.org")
    talk = says(ok(b"Here I am"))
    with serving(talk, talk, tls=mine) as (url, _), Client(url, certificate=public(mine)) as client:
        assert client.hello() == "Here I am"


def test_a_certificate_that_cannot_be_read_is_said_so() -> None:
    with serving(says(ok(b""))) as (url, _), pytest.raises(SnakepitError, match="cannot be read"):
        Client(url.replace("http:", "https:"), certificate="nonsense").hello()


def test_a_plain_service_is_no_tls_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_LIMIT_S", 0.3)
    with serving(says(ok(b""))) as (url, _), pytest.raises(SnakepitError, match="Unable to reach pit"):
        Client(url.replace("http:", "https:")).hello()


def test_the_shown_certificate_has_a_fingerprint(tmp_path: Path) -> None:
    mine = certificate(tmp_path, "mine")
    with serving(says(ok(b"")), tls=mine) as (url, _):
        shown = tls.shown_certificate(Address(url))
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256"],
        input=public(mine),
        text=True,
        capture_output=True,
        check=True,
    )
    assert tls.fingerprint(shown) == said.stdout.strip().partition("=")[2]
