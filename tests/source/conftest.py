"""The head's data root, confined and plain."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import snakepit
from tests.source.preparing import Head, needs_bubblewrap

NOBODY = 65534
PACKAGE = Path(snakepit.__file__).parent


@pytest.fixture
def head(data_root: Path) -> Head:
    """Without bubblewrap: what does not depend on confinement."""
    return Head(data_root, confined=False)


@pytest.fixture(params=[pytest.param(True, id="confined", marks=needs_bubblewrap), pytest.param(False, id="plain")])
def either(data_root: Path, request: pytest.FixtureRequest) -> Head:
    return Head(data_root, confined=request.param)


@pytest.fixture
def confined(data_root: Path) -> Head:
    return Head(data_root)


@pytest.fixture
def ordinary_root() -> Iterator[Path]:
    """A directory of an ordinary user (pytest's own are private to whoever runs the tests)."""
    with tempfile.TemporaryDirectory(prefix="snakepit-test-", dir="/tmp", ignore_cleanup_errors=True) as name:
        if os.getuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def ordinary(ordinary_root: Path) -> Iterator[dict[str, Any]]:
    """Arguments for subprocess that run Python as an ordinary user. He may not be able to reach this checkout, so the
    rooms that provisioning needs are copied to where he can."""
    with tempfile.TemporaryDirectory(prefix="snakepit-code-", dir="/tmp") as name:
        code = Path(name)
        code.chmod(0o755)
        for room in ("core", "source"):
            shutil.copytree(PACKAGE / room, code / "snakepit" / room, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("__init__.py", "errors.py"):
            shutil.copy(PACKAGE / file, code / "snakepit" / file)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        yield {"cwd": "/", "env": {"PYTHONPATH": name, "PATH": os.environ["PATH"], "HOME": str(ordinary_root)}, **who}
