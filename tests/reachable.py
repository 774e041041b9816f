"""A directory of this checkout as the service's own user sees it: where the checkout lies below a private home, it is
bound to a public place for the time of a test."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[Path]:
    """`path` itself where others may go there, else a bind mount of it (which takes root, as hiding it did)."""
    looked = subprocess.run(["test", "-r", str(path)], user="nobody")
    if looked.returncode == 0:
        yield path
        return
    public = Path(tempfile.mkdtemp(prefix="snakepit-reachable-"))
    public.chmod(0o755)
    subprocess.run(["mount", "--bind", str(path), str(public)], check=True)
    try:
        yield public
    finally:
        subprocess.run(["umount", "--lazy", str(public)], check=True)
        public.rmdir()
