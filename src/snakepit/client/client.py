"""What one can ask a service, as methods. Every "no" of the service is raised as an error of `snakepit.errors`.

client = Client.from_files()
number = client.submit("My task", "[gpu]", script="python train.py")
for block in client.log(number): ...
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator

from snakepit import __version__, errors
from snakepit.client import files
from snakepit.client.http import Address, Answer, Link, LostAnswer, NoConnection, query, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DONE = 7
PLAIN_HTTP = (b"plain http", b"http request to an https server")  # as nginx, Apache and Caddy complain of it
RETRY_S = 120  # how long a submit whose answer was lost is tried again
ERRORS: tuple[type[errors.SnakepitError], ...] = (
    errors.BadRequest,
    errors.Unauthorized,
    errors.Forbidden,
    errors.NotFound,
    errors.CannotFulfill,
    errors.Conflict,
    errors.WrongState,
    errors.TooLarge,
    errors.TooMany,
    errors.Unavailable,
)


class Client:
    """A user's talk with a service. `token` renews itself where `reauthenticate` knows how."""

    def __init__(
        self,
        url: str,
        user: str = "",
        token: str = "",
        certificate: str = "",
        reauthenticate: Callable[[Client], str | None] | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.address = Address(url)
        self.user, self.token, self.certificate = user, token, certificate
        self._reauthenticate, self._trace = reauthenticate, trace
        self._link = Link(self.address, certificate)

    @classmethod
    def from_files(cls, cwd: str | None = None) -> Client:
        """By `.pitconnect.txt` and `.pituser.txt` as `pit` finds them; PIT_TOKEN stands in for the latter."""
        connection = files.load_connection(cwd)
        account = account_of_environment() or files.load_account(cwd)
        if account is None:
            raise errors.Unauthorized("No user info found. Log in first: pit login")
        return cls(connection.url, account.user, account.token, connection.certificate)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close()

    # ------------------------------------------------------------------------------------------------ talking at all

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        limit_s: float | None = 60,
    ) -> Any:
        """JSON in, JSON out (None for an empty answer)."""
        found = _decoded(self.answer(method, path, body, headers, limit_s))
        if self._trace and found is not None:
            self.told(f"- BODY {json.dumps(_without_secrets(found))}")
        return found

    def answer(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        limit_s: float | None = 60,
    ) -> Answer:
        """The raw answer of a success; errors are raised. A refused token is renewed once."""
        answer = self._send(method, path, body, headers, limit_s)
        # A 401 on a change that carries the own password speaks of that password, not of the token.
        about_token = not (isinstance(body, dict) and ("verification" in body or path.endswith("/authenticate")))
        if answer.status == 401 and about_token and self._reauthenticate is not None:
            message = _message(answer)
            token = self._reauthenticate(self)
            if token is None:
                raise errors.Unauthorized(message)
            self.token = token
            answer = self._send(method, path, body, headers, limit_s)
        if answer.status > 299:
            raise _error(answer.status, _message(answer))
        return answer

    def _send(
        self, method: str, path: str, body: object, headers: dict[str, str] | None, limit_s: float | None
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        if self._trace:
            self._trace(f"SENDING {method} {self.address.url}{path}")
            if body is not None:
                self._trace(f"- BODY {json.dumps(_without_secrets(body))}")
        answer = self._link.ask(method, path, self._headers(body is not None, headers), data, limit_s=limit_s)
        self.told(f"RECEIVING CODE {answer.status}")
        return answer

    def told(self, text: str) -> None:
        """For those who watch what is sent and received."""
        if self._trace:
            self._trace(text)

    def _headers(self, json_body: bool, more: dict[str, str] | None) -> dict[str, str]:
        headers = {"X-Auth-Token": self.token, "Accept": "*/*", "User-Agent": f"pit/{__version__}"}
        if json_body:
            headers["Content-Type"] = "application/json"
        return {**headers, **(more or {})}

    # ------------------------------------------------------------------------------------------------------- accounts

    def hello(self) -> str:
        return self.answer("GET", "/hello", limit_s=15).read().decode("utf-8", "replace").strip()

    def user_exists(self, user: str) -> bool:
        try:
            self.call("GET", f"/users/{quote(user)}/exists")
        except errors.NotFound:
            return False
        return True

    def register(self, user: str, fullname: str, email: str, password: str) -> None:
        self.call("PUT", f"/users/{quote(user)}", {"fullname": fullname, "email": email, "password": password})

    def authenticate(self, user: str, password: str) -> str:
        """A fresh token, which this client uses from now on."""
        body = self.call("POST", f"/users/{quote(user)}/authenticate", {"password": password})
        self.user, self.token = user, str(body["token"])
        return self.token

    def logout(self) -> None:
        self.call("POST", "/users/~/logout", {})

    # ----------------------------------------------------------------------------------------------------------- jobs

    def submit(self, title: str, request: str, script: str = "", **more: object) -> int:
        """Queues a job and gives its number. `more` are further fields of POST /jobs (origin, hash, diff, env, …)."""
        body = {"description": title, "clusterRequest": request, **more}
        if script:
            body["script"] = script
        return int(self._once("/jobs", body)["id"])

    def rerun(self, job: int) -> int:
        return int(self._once(f"/jobs/{job}/rerun", {})["id"])

    def _once(self, path: str, body: dict[str, object]) -> Any:
        """A POST that happens once however often it is sent: after a lost answer it is sent again under its key."""
        key = {"Idempotency-Key": os.urandom(16).hex()}
        end, pause_s = 0.0, 0.1
        while True:
            try:
                return self.call("POST", path, body, key, limit_s=120)
            except (NoConnection, errors.Unavailable) as problem:
                now = time.monotonic()
                if end == 0.0:
                    if not (isinstance(problem, LostAnswer) or problem.status == 504):
                        raise
                    end = now + RETRY_S
                if now >= end:
                    raise
                self._link.close()
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, 2)

    def job(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/jobs/{job}")
        return found

    def jobs(self, **filters: str | int | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/jobs" + query(filters))
        return found

    def status(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = self.call("GET", "/jobs/status")
        return found

    def status_after(self, version: str, wait_s: int = 30) -> tuple[str, dict[str, list[dict[str, Any]]]]:
        """The status once it is newer than `version` (at once for ""), or after `wait_s`, and its version."""
        asked = query({"version": version, "timeout": wait_s}) if version else ""
        answer = self.answer("GET", "/jobs/status" + asked, limit_s=wait_s + 30)
        return answer.headers.get("x-version", ""), _decoded(answer)

    def stop(self, job: int) -> None:
        self.call("POST", f"/jobs/{job}/stop", {})

    def remove_job(self, job: int) -> None:
        self.call("DELETE", f"/jobs/{job}")

    def why(self, job: int) -> list[str]:
        return [str(reason) for reason in self.call("GET", f"/jobs/{job}/why")["reasons"]]

    def wait(self, job: int) -> dict[str, Any]:
        """The job's description once it is done. A service that restarts meanwhile is waited for too."""
        from snakepit.client.follow import patient

        def look() -> dict[str, Any]:
            seen: dict[str, Any] = self.call("GET", f"/jobs/{job}/wait?timeout=30", limit_s=60)
            return seen

        while True:
            seen = patient(look)
            if seen["state"] >= DONE:
                return seen

    def log(self, job: int, follow: bool = True, lines: int | None = None) -> Iterator[bytes]:
        """The job's log; with `follow`, until the job is done, through restarts of the service, every byte once."""
        from snakepit.client.follow import log

        return log(self, job, follow, lines)

    # ---------------------------------------------------------------------------------------------------------- files

    def file_size(self, path: str) -> int | None:
        """How much of a file in the user's home is there already; None when it is not."""
        try:
            return int(self.call("GET", f"/users/~/simplefs/stats/{quote(path)}")["size"])
        except errors.NotFound:
            return None

    def create_file(self, path: str) -> None:
        self.call("PUT", f"/users/~/simplefs/stats/{quote(path)}", {"type": "file"})

    def append_file(self, path: str, offset: int, blocks: Iterable[bytes], length: int) -> None:
        self.put_blocks(f"/users/~/simplefs/content/{quote(path)}", blocks, length, {"Content-Offset": str(offset)})

    def put_blocks(
        self, path: str, blocks: Iterable[bytes], length: int | None, headers: dict[str, str] | None = None
    ) -> None:
        """A body that is sent as it comes; where its length is not known before, in chunks."""
        headers = self._headers(False, {"Content-Type": "application/octet-stream", **(headers or {})})
        if self._trace:
            self._trace(f"SENDING PUT {self.address.url}{path}")
        answer = self._link.ask("PUT", path, headers, blocks, length, 600)
        if self._trace:
            self._trace(f"RECEIVING CODE {answer.status}")
        if answer.status > 299:
            raise _error(answer.status, _message(answer))
        answer.read()

    def remove_file(self, path: str) -> None:
        self.call("DELETE", f"/users/~/simplefs/stats/{quote(path)}")


def account_of_environment() -> files.Account | None:
    user, token = os.environ.get("PIT_USER", ""), os.environ.get("PIT_TOKEN", "")
    return files.Account(user or "~", token) if token else None


def exit_code(job: dict[str, Any]) -> int:
    """What a command that waited for this job exits with."""
    match job.get("outcome"):
        case "succeeded":
            return 0
        case "stopped":
            return 143
        case "timed out":
            return 124
        case "lost":
            return 125
    code = job.get("exitCode")
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _decoded(answer: Answer) -> Any:
    text = answer.read()
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise errors.SnakepitError("the answer is no JSON: is this the address of a snakepit service?") from None


def _message(answer: Answer) -> str:
    """The service's own words, else the usual ones for the status."""
    text = answer.read()
    if 300 <= answer.status < 400:
        return f"the service is at another address: {answer.headers.get('location', 'unknown')} (see pit connect)"
    return _words(answer.status, text)


def refusal(status: int, text: bytes) -> errors.SnakepitError:
    """The error that an answer's body tells of."""
    return _error(status, _words(status, text))


def _words(status: int, text: bytes) -> str:
    try:
        body = json.loads(text)
        message = body.get("message") if isinstance(body, dict) else None
    except ValueError:
        message = None
    return str(message) if message else _words_of_others(status, text)


def _words_of_others(status: int, text: bytes) -> str:
    """What it means that something in front of the service answers in its place."""
    from http import HTTPStatus

    if status in (502, 503, 504):
        return (
            f"the web server answers, but the service behind it does not ({status} {HTTPStatus(status).phrase}): "
            "try again in a while, or ask your admin"
        )
    if status == 400 and any(words in text.lower() for words in PLAIN_HTTP):
        return "this port wants TLS: use https:// in the place of http:// (pit connect https://…)"

    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return str(status)


def _error(status: int, message: str) -> errors.SnakepitError:
    for error in ERRORS:
        if error.status == status:
            return error(message)
    # A proxy whose service is just restarting says 502 or 504.
    other = errors.Unavailable(message) if status in (502, 504) else errors.SnakepitError(message)
    other.status = status
    return other


SECRETS = ("password", "verification", "token")


def _without_secrets(body: object) -> object:
    if not isinstance(body, dict):
        return body
    return {key: "…" if key in SECRETS else _without_secrets(value) for key, value in body.items()}
