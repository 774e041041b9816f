"""Reading what a process left in its result file, without being led elsewhere by a link it laid."""

import os
import stat
from typing import Any, Dict, Optional

LONGEST = 64 << 10


def read_result(launch: Dict[str, Any]) -> str:
    """The text, or nothing. Below the mount every step is taken by handle, and no link is followed.

    The file is named as the process sees it (below a mount's path) or as we do (below its source).
    """
    path, roots = launch["result_file"], []
    for mount in launch["mounts"]:
        for top in (mount["path"].rstrip("/"), mount["source"].rstrip("/")):
            if path.startswith(top + "/"):
                roots.append((len(top), mount["source"], path[len(top) + 1 :]))
    if not roots:
        return ""
    _, root, relative = max(roots)
    descriptor = _open_below(root, relative)
    if descriptor is None:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LONGEST).decode("utf-8", "replace")


def _open_below(root: str, relative: str) -> Optional[int]:
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        return None
    try:
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for part in parts[:-1]:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = deeper
        # Not blocking: somebody may have put a pipe there.
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    except OSError:
        return None
    finally:
        os.close(here)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None
