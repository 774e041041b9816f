"""How answers look: JSON, an empty 200, `{message}` for every error. Nothing of a traceback ever leaves the house."""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from snakepit.errors import SnakepitError
from snakepit.service.auth import TooManyAttempts

log = logging.getLogger("snakepit.http")

WORDS = {404: "There is nothing at this address", 405: "Method not allowed here"}


def answer(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    if value is None:
        return Response()
    return json_response(value)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Response(content, status, headers, media_type="application/json")


def refusal(problem: SnakepitError) -> Response:
    """An error with words; those we did not foresee (a status of 500) keep to themselves what they know."""
    if problem.status == 500:
        return unforeseen(problem)
    headers: dict[str, str] = {}
    if isinstance(problem, TooManyAttempts):
        headers["retry-after"] = str(problem.retry_after_s)
    if problem.status == 408:
        headers["connection"] = "close"  # the rest may never come
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response({"message": problem.message or type(problem).__name__}, problem.status, headers)


def unforeseen(problem: BaseException) -> Response:
    id = secrets.token_hex(4)
    log.error("error %s", id, exc_info=problem)
    return json_response({"message": f"Internal error {id}: the log of the service says more"}, 500)


def foreign(request: Request, problem: Exception) -> Response:
    """What the framework itself refuses: unknown addresses and the like."""
    assert isinstance(problem, HTTPException)
    message = WORDS.get(problem.status_code, problem.detail)
    return json_response({"message": message}, problem.status_code, dict(problem.headers or {}))
