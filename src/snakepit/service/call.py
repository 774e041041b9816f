"""One request on its way to a verb: who asks, for what, with which checked values. Reading its body is bounded.

A verb is `async def verb(call: Call) -> answer`; the answer is JSON-able, None (an empty 200) or a Response.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from starlette.requests import HTTPConnection, Request

from snakepit.core.access import Person
from snakepit.errors import BadRequest, Unauthorized
from snakepit.service import bodies
from snakepit.service.auth import Session
from snakepit.service.service import Service

LARGEST_BODY_BYTES = 50_000_000
LARGEST_OF_STRANGERS_BYTES = 64_000


@dataclass(slots=True)
class Call:
    service: Service
    request: Request
    path: Mapping[str, str]
    session: Session | None = None
    body: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)

    @property
    def signed_in(self) -> Session:
        if self.session is None:
            raise Unauthorized("No token")
        return self.session

    @property
    def person(self) -> Person:
        return self.signed_in.person

    @property
    def user(self) -> str:
        """The user of the path; `~` is whoever asks."""
        return self.person.id if self.path["user"] == "~" else self.path["user"]

    @property
    def job(self) -> int:
        return int(self.path["job"])

    @property
    def address(self) -> str:
        return self.request.client.host if self.request.client else ""


def token_of(request: HTTPConnection) -> str:
    """`X-Auth-Token`, or `Authorization: Bearer`; empty when there is none."""
    token = request.headers.get("x-auth-token", "")
    if token:
        return token
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


async def read_json(request: Request, largest_bytes: int = LARGEST_BODY_BYTES) -> object:
    """The body as JSON; an empty one is an empty object. Refused before it is read where its length says too much."""
    if int_header(request, "content-length", 0) > largest_bytes:
        raise bodies.too_large(largest_bytes)
    content = await bodies.whole(request, largest_bytes)
    if not content.strip():
        return {}
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as problem:
        raise BadRequest("The body is not valid JSON: nested too deeply") from problem
    except ValueError as problem:
        raise BadRequest(f"The body is not valid JSON: {problem}") from problem


def int_header(request: Request, name: str, default: int) -> int:
    text = request.headers.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadRequest(f"Header {name}: expected a whole number")
    return int(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
