"""Writing a failure into the agent's log, which may lie on a disk that is full: then it goes unsaid."""

import os
import traceback


def complain() -> None:
    """The exception that is being handled."""
    try:
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    except OSError:
        pass
