"""The nginx file of the docs, in the real nginx, with a certificate made for the occasion: in front of the service, and
seen with the eyes of `pit`."""

import asyncio
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import websockets
from websockets.asyncio.server import ServerConnection

from tests.conftest import pick_free_port
from tests.serving import PROGRAMS, Serving
from tests.waiting import wait_until

DOCUMENTED = Path(__file__).parent.parent.parent / "docs" / "nginx.conf"


@dataclass(frozen=True, slots=True)
class Front:
    port: int
    certificate: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    what = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    whose = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    where = ("-out", str(certificate), "-keyout", str(key))
    subprocess.run(["openssl", "req", *what, *whose, *where], check=True, capture_output=True)
    return certificate, key


def documented_site(port: int, service_port: int, certificate: Path, key: Path) -> str:
    """The file of the docs, with only what it asks its reader to change changed."""
    text = DOCUMENTED.read_text()
    for pattern, mine in (
        (r"listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (r"server 127\.0\.0\.1:8080;", f"server 127.0.0.1:{service_port};"),
        (r"server_name \S+;", "server_name localhost;"),
        (r"ssl_certificate     \S+;", f"ssl_certificate {certificate};"),
        (r"ssl_certificate_key \S+;", f"ssl_certificate_key {key};"),
    ):
        text, changed = re.subn(pattern, mine, text)
        assert changed == 1, pattern
    return text


def start_nginx(folder: Path, service_port: int) -> tuple[Front, subprocess.Popen[bytes]]:
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    certificate, key = make_certificate(folder, "front")
    port = pick_free_port()
    (folder / "site.conf").write_text(documented_site(port, service_port, certificate, key))
    scratch = "".join(
        f"{kind}_temp_path {folder / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # A client that does not read has a minute by default: here a second, to see that the docs lift it.
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\nsend_timeout 1s;\n{scratch}include {folder}/site.conf;\n}}\n"
    )
    arguments = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")]
    running = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until((folder / "pid").exists, message="nginx writes its pid")
    return Front(port, certificate), running


@pytest.fixture(scope="module")
def front(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    front, running = start_nginx(tmp_path_factory.mktemp("nginx"), serving.port)
    try:
        yield front
    finally:
        running.terminate()
        running.wait(timeout=30)


@pytest.fixture
def project(serving: Serving, front: Front, tmp_path: Path) -> Path:
    """A directory whose `.pitconnect.txt` names the front and its certificate, with a user logged in."""
    connect(tmp_path, front.url, front.certificate)
    (tmp_path / "train.sh").write_text("true\n")
    return tmp_path


def connect(folder: Path, url: str, certificate: Path) -> None:
    (folder / ".pitconnect.txt").write_text(f"{url}\n{certificate.read_text()}")


def pit(serving: Serving, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAMS / "pit"), *arguments],
        cwd=folder,
        env=serving.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_pit_works_through_nginx_with_the_certificate_of_its_connect_file(serving: Serving, project: Path) -> None:
    registered(serving, project)
    done = pit(serving, project, "show", "me")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tilman" in done.stdout


def test_pit_refuses_any_other_certificate(serving: Serving, front: Front, tmp_path: Path) -> None:
    other, _ = make_certificate(tmp_path, "other")
    connect(tmp_path, front.url, other)
    done = pit(serving, tmp_path, "status")
    assert done.returncode == 1
    assert "certificate" in done.stderr


def test_pit_refuses_a_certificate_that_nobody_vouched_for(serving: Serving, front: Front, tmp_path: Path) -> None:
    (tmp_path / ".pitconnect.txt").write_text(f"{front.url}\n")
    done = pit(serving, tmp_path, "status")
    assert done.returncode == 1
    assert "certificate" in done.stderr


def test_log_lines_come_through_when_they_are_written(serving: Serving, project: Path) -> None:
    registered(serving, project)
    script = 'echo first; until [ -e "$USER_DIR/go" ]; do sleep 0.1; done; echo second'
    arguments = [str(PROGRAMS / "pit"), "run", "Streaming", "[]", "-a", "-d", script, "-l"]
    output = project.parent / f"{project.name}.log"
    with output.open("wb") as file:
        running = subprocess.Popen(
            arguments,
            cwd=project,
            env=serving.environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    wait_until(
        lambda: "[worker 0] first" in output.read_text() or running.poll() is not None,
        message="the first line while the job runs",
    )
    assert "second" not in output.read_text().partition("[worker 0] first")[2]
    (serving.home / "data" / "home" / "tilman" / "go").touch()
    assert running.wait(timeout=30) == 0, output.read_text()
    assert "[worker 0] second" in output.read_text()


def test_bodies_beyond_nginx_own_limit_reach_the_service(serving: Serving, project: Path) -> None:
    registered(serving, project)
    (project / "weights.bin").write_bytes(bytes(range(256)) * 20_000)
    done = pit(serving, project, "run", "Large", "[]", "-a", "-d", "test $(stat -c %s weights.bin) = 5120000", "-l")
    assert done.returncode == 0, done.stdout + done.stderr


def test_websockets_are_upgraded(tmp_path: Path) -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async def through_the_front() -> object:
        async with websockets.serve(echo, "127.0.0.1", 0) as server:
            port: int = next(iter(server.sockets)).getsockname()[1]
            front, running = await asyncio.to_thread(start_nginx, tmp_path, port)
            try:
                return await talk(front)
            finally:
                running.terminate()
                await asyncio.to_thread(running.wait, 30)

    assert asyncio.run(through_the_front()) == b"\x00pipe"


async def talk(front: Front) -> object:
    context = ssl.create_default_context(cafile=front.certificate)
    async with websockets.connect(f"wss://localhost:{front.port}/pipe", ssl=context) as connection:
        await connection.send(b"\x00pipe")
        return await connection.recv()


def registered(serving: Serving, project: Path) -> None:
    if not (serving.home / "user" / ".pituser.txt").exists():
        done = pit(serving, project, "login", "--register")
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_knows_who_asks_through_a_trusted_nginx_and_believes_nobody_else(tmp_path: Path) -> None:
    serving = Serving.start(pick_free_port(), config="trustedProxies: 127.0.0.1\ndebugHttp: true\n")
    try:
        front, running = start_nginx(tmp_path, serving.port)
        try:
            claim = ("--header", "X-Forwarded-For: 192.0.2.1")
            ask = ["curl", "--silent", "--show-error", "--interface", "127.0.0.5", *claim]
            subprocess.run([*ask, "--cacert", str(front.certificate), f"{front.url}/hello"], check=True)
            subprocess.run([*ask, f"{serving.url}/users/directly/exists"], check=True)
        finally:
            running.terminate()
            running.wait(timeout=30)
        wait_until(lambda: "/users/directly/exists 404" in serving.log())
        assert "127.0.0.5 GET /hello 200" in serving.log()
        assert "127.0.0.5 GET /users/directly/exists 404" in serving.log()
        assert "192.0.2.1" not in serving.log()
    finally:
        serving.stop()
