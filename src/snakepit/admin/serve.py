"""`snakepit serve`: takes the port, settles on the data root, runs the loop and the HTTP side until told to stop.

A stop closes streams at once and lets go of the nodes; jobs run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from snakepit import compose
from snakepit.admin import ground
from snakepit.config import Settings
from snakepit.errors import ConfigError, SnakepitError
from snakepit.service.app import Service, make_app
from snakepit.service.heads import BoundedProtocol
from snakepit.service.verbs.nodes import add_node
from snakepit.store import meta, nodes
from snakepit.store.database import Store

log = logging.getLogger("snakepit")
LEVELS = (logging.DEBUG, logging.INFO, logging.ERROR)
# Each follower of a log and each long poll holds a connection.
KEEP_ALIVE_S = 75
SHUTDOWN_S = 5
# A pong waits behind what was typed or piped, and that behind a command that does not read it yet.
WS_SILENCE_S = 600


def run(settings: Settings, local_node: bool) -> None:
    """Until SIGTERM or SIGINT."""
    logging.basicConfig(
        level=LEVELS[settings.log_level], format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for chatty in ("uvicorn.error", "alembic", "asyncio"):
        logging.getLogger(chatty).setLevel(max(LEVELS[settings.log_level], logging.WARNING))
    warn_of_plain_http(settings)
    warn_of_unknown_proxy(settings)
    bound = ground.bind(settings.interface, settings.port)
    compose.preload()
    ground.settle(settings)
    held = ground.lock(settings.data_root)
    store = open_store(settings)
    try:
        write_connect_file(settings)
        gc.collect()
        gc.freeze()  # thousands of modules live for ever: no collection need look at them again
        asyncio.run(_serve(settings, store, bound, local_node))
    finally:
        store.close()
        os.close(held)


def open_store(settings: Settings) -> Store:
    """The database, if it is that of the data root."""
    compose.make_directories(settings.data_root)
    store = compose.make_store(settings)
    try:
        _belong_together(settings, store)
    except BaseException:
        store.close()
        raise
    return store


def _belong_together(settings: Settings, store: Store) -> None:
    """With the database of another data root running jobs would be called lost, and with another database the
    directories of all jobs would be thrown away, as those of nobody."""
    root = settings.data_root
    ours, theirs = ground.cluster_id(root), store.read_now(meta.get, "cluster_id")
    if theirs is None:
        if job := next((path.name for path in (root / "pits").iterdir() if path.name.isdigit()), None):
            raise ConfigError(
                f"the data root {root} has jobs (pits/{job} …), of which this new database knows nothing. "
                f"Set `database` to the one that was used with it, or move {root}/pits away to begin anew"
            )
        store.write_now(meta.put, "cluster_id", ours)
    elif theirs != ours and not settings.database:  # it lies in the data root
        (root / "cluster-id").write_text(theirs + "\n")
        log.warning("the cluster id was %s: limits of cores and memory hold from the next start on", theirs)
    elif theirs != ours:
        raise ConfigError(
            f"the database is that of another data root (cluster {theirs}; {root} is of cluster {ours}), whose service "
            f"may be running: use another database. If that data root is lost, write {theirs} into {root}/cluster-id"
        )


async def _serve(settings: Settings, store: Store, bound: socket.socket, local_node: bool) -> None:
    service = compose.make_service(settings, store)
    server = Server(http_config(service))
    _stop_on_signals(server, service)
    await service.loop.start()
    try:
        await register_local_node(service, local_node)
        log.info("Snakepit service running on %s:%d", settings.interface, settings.port)
        await server.serve(sockets=[bound])
    finally:
        service.close()
        await service.pipes.ended()
        await service.visits.ended()
        await service.loop.close()
        log.info("Snakepit service stopped; jobs run on")


class Server(uvicorn.Server):
    """Signals are ours: uvicorn would raise them once more at the end, and the loop would never be closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(service),
        http=BoundedProtocol,
        ws_ping_timeout=WS_SILENCE_S,
        ws_per_message_deflate=False,  # terminals and tensors: the time is better spent on bytes
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        # Anybody could say so: every job of this machine comes from its loopback, too.
        proxy_headers=bool(service.settings.trusted_proxies),
        forwarded_allow_ips=list(service.settings.trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


def _stop_on_signals(server: uvicorn.Server, service: Service) -> None:
    def stop() -> None:
        server.force_exit = server.should_exit  # the second time we do not wait for anybody
        server.should_exit = True
        service.close()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def register_local_node(service: Service, wanted: bool) -> None:
    """On an empty data root this machine becomes n0; a removed n0 does not come back."""
    if await service.store.read(meta.get, "settled") is not None:
        return
    if wanted and not await service.store.read(nodes.ids):
        try:
            await add_node(service, "n0", "local:", {})
        except SnakepitError as problem:
            log.error("this machine could not be registered as node n0: %s", problem.message)
            return
    await service.store.write(meta.put, "settled", "yes")


def write_connect_file(settings: Settings) -> None:
    """Ready to be handed out; one that somebody gave a certificate stays as it is."""
    path: Path = settings.data_root / ".pitconnect.txt"
    with contextlib.suppress(FileNotFoundError):
        if not re.fullmatch(r"\S*\n?", path.read_text()):
            return
    path.write_text(f"{settings.address}\n")
    path.chmod(0o644)


def warn_of_plain_http(settings: Settings) -> None:
    try:
        local = ipaddress.ip_address(settings.interface).is_loopback
    except ValueError:
        local = settings.interface == "localhost"
    if not local and not settings.external_url.startswith("https://"):
        log.warning(
            "passwords and tokens travel unencrypted: listening with plain HTTP on %s. Put a web server with HTTPS in "
            "front (set externalUrl, and interface to 127.0.0.1)",
            settings.interface or "all interfaces",
        )


def warn_of_unknown_proxy(settings: Settings) -> None:
    if settings.external_url.startswith("https://") and not settings.trusted_proxies:
        log.warning(
            "all failed logins count as from one address, that of the web server in front: set trustedProxies to it"
        )
