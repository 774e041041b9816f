"""The only file that knows every room: it puts them together and holds no logic of its own."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from snakepit.config import Settings
from snakepit.core.domains import node_mounts
from snakepit.engines.base import Engine
from snakepit.engines.local import LocalEngine, LocalOptions
from snakepit.engines.package import agent_package
from snakepit.errors import BadRequest
from snakepit.loop.deeds import LoopSettings
from snakepit.loop.loop import Loop
from snakepit.service.service import Service
from snakepit.source.provision import provision
from snakepit.store import meta, migrate
from snakepit.store.database import Store

DIRECTORIES = {
    "shared": 0o755,
    "groups": 0o755,
    "home": 0o755,
    "pits": 0o755,
    "cache": 0o700,
    "trash": 0o700,
    "inputs": 0o700,
}


def make_directories(root: Path) -> None:
    """The layout of a data root."""
    for name, mode in DIRECTORIES.items():
        (root / name).mkdir(mode=mode, parents=True, exist_ok=True)


def make_store(settings: Settings) -> Store:
    return Store.open(settings.database_url)


def make_service(settings: Settings, store: Store, *, confined: bool = True) -> Service:
    """Everything between the database and the HTTP routes; `service.loop.start()` sets it going."""
    cluster = store.write_now(meta.cluster_id)
    epoch = store.write_now(meta.next_epoch)
    loop = Loop(store, loop_settings(settings, confined), engines(settings, cluster, epoch), provision, now)
    return Service(store, loop, settings)


def loop_settings(settings: Settings, confined: bool = True) -> LoopSettings:
    return LoopSettings(
        root=settings.data_root.absolute(),
        max_parallel_prep=settings.max_parallel_prep,
        max_prep_s=settings.max_prep_duration_s,
        max_start_s=settings.max_start_duration_s,
        worker_env=settings.worker_env,
        log_limit_bytes=settings.max_log_size_bytes,
        keep_src_s=settings.keep_src_s,
        keep_jobs_s=settings.keep_jobs_s,
        keep_audit_s=settings.keep_audit_s,
        keep_trash_s=settings.keep_trash_s,
        confined=confined,
        allow_file_origins=settings.file_origins,
    )


def engines(settings: Settings, cluster: str, epoch: int) -> Callable[[str, str, dict[str, Any]], Engine]:
    """The way to a node, by the scheme of its endpoint."""

    def engine_for(node: str, endpoint: str, properties: dict[str, Any]) -> Engine:
        if endpoint.rstrip("/") in ("local", "local:"):
            options = LocalOptions(
                declared=str(properties.get("resources", "")),
                isolation=str(properties.get("isolation", "auto")),
                mounts=node_mounts(str(properties.get("mounts", ""))),
                port_range=settings.port_range,
                hidden=(str(settings.data_root.absolute()),),
                reserve_cpus=settings.reserve_cpus,
                reserve_mem_bytes=settings.reserve_mem_bytes,
            )
            return LocalEngine(node, settings.data_root.absolute() / "nodes" / node, cluster, epoch, options)
        raise BadRequest(f'There is no engine for the endpoint "{endpoint}": use "local:"')

    return engine_for


def now() -> datetime:
    return datetime.now(UTC)


def preload() -> None:
    """Import whatever may be needed later: after the service gave up being root, the place where its code lies (a
    checkout below a private home) may be out of reach."""
    for package in ("service", "store", "loop", "engines", "source"):
        _import_all(f"snakepit.{package}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is old in them and nobody uses
        for package in _LATE_PACKAGES:
            _import_all(package)
    for name in _LATE_MODULES:
        importlib.import_module(name)
    agent_package()
    migrate.scripts()


def _import_all(package: str) -> None:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda _: None):
        if not any(part in module.name for part in (".migrations", ".agent.", "__main__", ".testing")):
            with contextlib.suppress(ImportError):  # what stands on a library that is not here is not used either
                importlib.import_module(module.name)


# What these libraries import only when they come to need it.
_LATE_PACKAGES = ("uvicorn", "starlette", "websockets", "anyio", "sqlalchemy.dialects.sqlite", "alembic.ddl")
_LATE_MODULES = (
    "bcrypt",
    "concurrent.futures.thread",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "linecache",
    "sqlalchemy.dialects.postgresql.psycopg",
    "tempfile",
    "traceback",
)
