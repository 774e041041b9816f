"""The one error tree: a message for people, an HTTP status, an exit code.

Raised anywhere below a door, shown as one line by every door. Nothing here knows HTTP or a terminal.
"""


class SnakepitError(Exception):
    """Something a person can read; `status` is what HTTP says, `exit_code` what a command exits with."""

    status = 500
    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class BadRequest(SnakepitError):
    status = 400


class RequestSyntax(BadRequest):
    """A request text that does not parse; the message shows the place."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.problem, self.text, self.position = problem, text, position
        super().__init__(f"{problem}\n  {text}\n  {' ' * position}^")


class Unauthorized(SnakepitError):
    status = 401


class Forbidden(SnakepitError):
    status = 403


class NotFound(SnakepitError):
    status = 404


class CannotFulfill(SnakepitError):
    """No set of known nodes could ever hold this."""

    status = 406


class TooSlow(SnakepitError):
    status = 408


class Conflict(SnakepitError):
    status = 409


class WrongState(SnakepitError):
    status = 412


class TooLarge(SnakepitError):
    status = 413


class TooMany(SnakepitError):
    status = 429


class Unavailable(SnakepitError):
    status = 503


class ConfigError(SnakepitError):
    exit_code = 2


class EngineError(SnakepitError):
    """The three failures of an engine; everything foreign is translated into one of them."""

    status = 502


class Unreachable(EngineError):
    """Again later; the job is not dead."""


class NotNow(EngineError):
    """This node cannot at the moment (disk, image); try elsewhere."""


class Rejected(EngineError):
    """Never."""
