"""The agent as one file: a zipapp of its sources, the same bytes from the same sources, named by their hash."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
LONG_AGO = (2020, 1, 1, 0, 0, 0)
MAIN = "import sys\n\nfrom snakepit.engines.agent.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"


@functools.cache
def agent_package() -> tuple[bytes, str]:
    """The zipapp and its version."""
    sources = {"__main__.py": MAIN, "snakepit/__init__.py": "", "snakepit/core/__init__.py": ""}
    sources["snakepit/engines/__init__.py"] = ""
    sources["snakepit/core/confine.py"] = (HERE.parent / "core" / "confine.py").read_text()
    for path in sorted((HERE / "agent").glob("*.py")):
        sources[f"snakepit/engines/agent/{path.name}"] = path.read_text()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), text, zipfile.ZIP_DEFLATED)
    data = packed.getvalue()
    return data, hashlib.sha256(data).hexdigest()[:16]
