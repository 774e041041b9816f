"""Real git repositories for tests, and a real (dumb) http server for them, with or without a password."""

import base64
import functools
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "file:http:git",
    **{f"GIT_{who}_{what}": "tester@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
LFS = tuple(
    word
    for setting in ("clean=git-lfs clean -- %f", "smudge=git-lfs smudge -- %f", "required=true")
    for word in ("-c", f"filter.lfs.{setting}")
)


@dataclass(frozen=True, slots=True)
class Repository:
    path: Path

    @classmethod
    def make(cls, path: Path, files: dict[str, str | bytes] | None = None, branch: str = "main") -> "Repository":
        path.mkdir(parents=True)
        repository = cls(path)
        repository.git("init", "--quiet", f"--initial-branch={branch}")
        if files is not None:
            repository.commit(files)
        return repository

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, env=ENV, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def write(self, files: dict[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, files: dict[str, str | bytes], *options: str) -> str:
        self.write(files)
        self.git(*options, "add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def clone(self, path: Path) -> "Repository":
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", self.url, str(path)], env=ENV, check=True)
        return Repository(path)

    def serve_dumbly(self) -> None:
        """What a plain file server needs beside the files themselves."""
        self.git("update-server-info")


class _Handler(SimpleHTTPRequestHandler):
    password = ""

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(self.password.encode()).decode()
        if self.password and self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(directory: Path, password: str = "") -> Iterator[str]:
    """`directory` over http on loopback; gives host:port. `password` is "user:password"."""
    kind = type("Handler", (_Handler,), {"password": password})
    server: http.server.HTTPServer = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(kind, directory=directory))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
