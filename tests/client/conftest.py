"""What the tests of the client share: a git without the settings of whoever runs them, and a checkout."""

from pathlib import Path

import pytest

from tests.client.checkouts import BINARY
from tests.source.repositories import ENV, Repository


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def mine(tmp_path: Path) -> Repository:
    return Repository.make(tmp_path / "mine", {"train.py": "print(1)\n", "lib/net.py": "a\nb\nc\n", "old": BINARY})
