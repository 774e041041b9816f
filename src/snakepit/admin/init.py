"""`snakepit init`: an admin before anybody can register."""

from __future__ import annotations

from snakepit import compose
from snakepit.admin import ground
from snakepit.admin.serve import open_store
from snakepit.config import Settings
from snakepit.errors import BadRequest
from snakepit.service.auth import hash_password
from snakepit.service.beneath import make_directory
from snakepit.store import users
from snakepit.wire.names import problem_with


def make_admin(settings: Settings, name: str, password: str, fullname: str = "", email: str = "") -> None:
    """Into a fresh or an existing data root; a service may be running on it."""
    if problem := problem_with("user", name):
        raise BadRequest(problem)
    hashed = hash_password(password, settings.hash_rounds)
    compose.preload()
    ground.settle(settings)
    store = open_store(settings)
    try:
        store.write_now(users.insert, name, fullname, email, hashed, True)
        make_directory(settings.data_root / "home" / name)
    finally:
        store.close()
