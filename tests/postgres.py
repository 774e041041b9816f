"""A real PostgreSQL server for tests: made in a temporary directory, on a free loopback port, stopped by its own pid.

PostgreSQL refuses to run as root; then the system user `postgres`, which its package makes, runs it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

OWNER = "postgres"


@dataclass(frozen=True, slots=True)
class Postgres:
    home: Path
    port: int

    @staticmethod
    def missing() -> str | None:
        """What keeps this machine from running one, in words; None when nothing does."""
        if _program("initdb") is None:
            return "PostgreSQL is not installed (package postgresql)"
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(OWNER)
            except KeyError:
                return f"running as root, and there is no system user {OWNER} to run PostgreSQL as"
        return None

    @classmethod
    def start(cls, scratch: Path, port: int) -> Self:
        """`scratch` is used where its owner can reach it; pytest's own directories are closed to user postgres."""
        home = Path(tempfile.mkdtemp(prefix="snakepit-pg-")) if os.geteuid() == 0 else scratch
        if os.geteuid() == 0:
            shutil.chown(home, OWNER)
        server = cls(home, port)
        server._run(
            "initdb", "--pgdata", str(server.data), "--username", OWNER, "--auth", "trust", "--no-sync", "-E", "UTF8"
        )
        # Durability is PostgreSQL's own business; a test database is thrown away and may as well be quick.
        with (server.data / "postgresql.conf").open("a") as conf:
            conf.write(
                f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{home}'\n"
                "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\nmax_connections = 200\n"
            )
        server._run(
            "pg_ctl", "start", "--wait", "--timeout", "60", "--log", str(home / "log"), "--pgdata", str(server.data)
        )
        return server

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--wait", "--mode", "immediate", "--pgdata", str(self.data))
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def data(self) -> Path:
        return self.home / "data"

    def url(self, database: str) -> str:
        """As SQLAlchemy and the `database` key of the configuration want it."""
        return f"postgresql+psycopg://{OWNER}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self, name: str) -> str:
        """Makes the empty database `name` (letters, digits, _; dropped first when it exists); its URL."""
        where = ("--host", "127.0.0.1", "--port", str(self.port), "--username", OWNER)
        self._run("dropdb", *where, "--if-exists", "--force", name)
        self._run("createdb", *where, name)
        return self.url(name)

    def _run(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None, f"{name} is not installed"
        as_owner = ("runuser", "-u", OWNER, "--") if os.geteuid() == 0 else ()
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        # Output goes to a file: the server inherits it, and would keep a pipe open for as long as it lives.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [*as_owner, str(program), *arguments],
                cwd="/",
                env=environment,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
            output.seek(0)
            assert done.returncode == 0, f"{name}: {output.read().decode(errors='replace')}"


def _program(name: str) -> Path | None:
    versions = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda found: float(found.parts[4]), reverse=True
    )
    if versions:
        return versions[0]
    found = shutil.which(name)
    return Path(found) if found else None
