"""A web server elsewhere, shown here: forwarded to a local port, waited for, its link printed, until Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
import time

from snakepit.client.forward import Forward
from snakepit.client.within import Server
from snakepit.errors import SnakepitError
from snakepit.pit import render
from snakepit.pit.forwarding import allow_many

ANSWERS_S = 90


class Look:
    """`path` is what follows the port in the link; `server` is what runs in a job, if it is one."""

    def __init__(self, forward: Forward, port: int, name: str, path: str, server: Server | None, browser: bool) -> None:
        self._forward, self._port, self._name, self._path = forward, port, name, path
        self._server, self._browser = server, browser
        self._problem: SnakepitError | None = None
        self._over = threading.Event()

    def run(self) -> int:
        allow_many()
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self._forward.begin()
                for act in (self._announce, self._attend):
                    threading.Thread(target=act, daemon=True).start()
                self._forward.run()
        finally:
            self._over.set()
            if self._server is not None:
                self._server.close()
        if self._problem is not None:
            raise self._problem
        return 0

    def _announce(self) -> None:
        """In a thread: the forward itself has to run for anything to answer."""
        end = time.monotonic() + ANSWERS_S
        while not self._over.is_set():
            if answers(self._port):
                break
            if time.monotonic() > end:
                self._fail(SnakepitError(f"{self._name} did not answer within {ANSWERS_S} s"))
                return
            self._over.wait(0.2)
        else:
            return
        link = f"http://localhost:{self._port}/{self._path}"
        render.out(f"{self._name}: {link}\n")
        render.flush()
        render.talk("Hit Ctrl-C to stop.")
        if self._browser:
            import webbrowser

            if not webbrowser.open(link):
                render.talk("No browser could be opened here; the link is above.")

    def _attend(self) -> None:
        if self._server is None:
            return
        try:
            self._server.wait()
            self._fail(SnakepitError(f"{self._name} has ended: {self._server.last_words()}"))
        except (SnakepitError, OSError, ValueError) as problem:
            words = problem.message if isinstance(problem, SnakepitError) else str(problem)
            self._fail(SnakepitError(f"{self._name} has ended: {words}"))

    def _fail(self, problem: SnakepitError) -> None:
        if not self._over.is_set():
            self._problem = self._problem or problem
            self._forward.stop()


def answers(port: int) -> bool:
    """Whether somebody speaks HTTP there; what he says does not matter."""
    import http.client

    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERS_S)
    try:
        asked.request("GET", "/")
        asked.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()
    return True
