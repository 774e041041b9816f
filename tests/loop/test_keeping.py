"""Keeping house: what fails for one user is no reason to leave the rest."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from snakepit.loop.deeds import LoopSettings
from snakepit.loop.keeping import keep_once
from snakepit.source.sweep import to_trash
from snakepit.store.database import Store


def test_a_broken_repository_of_one_user_holds_up_nobody(tmp_path: Path) -> None:
    broken = tmp_path / "cache" / "anna" / "snapshots.git"
    broken.mkdir(parents=True)
    (broken / "dropped").touch()
    rubbish = tmp_path / "rubbish"
    rubbish.mkdir()
    assert (trashed := to_trash(tmp_path, rubbish)) is not None
    store = Store.open(f"sqlite:///{tmp_path}/pit.db")
    try:
        settings = LoopSettings(tmp_path, keep_trash_s=0, confined=False)
        asyncio.run(keep_once(store, settings, datetime.now(UTC)))
    finally:
        store.close()
    assert not trashed.exists()
