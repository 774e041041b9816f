"""From a request to its verb: method, token, ids of the path, query, body; then the answer or the error.

One object per path, so that 405 and OPTIONS know every method there is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from snakepit.errors import BadRequest, NotFound, SnakepitError
from snakepit.service.api.answers import WORDS, answer, json_response, refusal, unforeseen
from snakepit.service.api.route import Route
from snakepit.service.call import LARGEST_BODY_BYTES, LARGEST_OF_STRANGERS_BYTES, Call, read_json, token_of
from snakepit.service.service import Service
from snakepit.wire.fields import Field, check
from snakepit.wire.names import may_be_job, problem_with

log = logging.getLogger("snakepit.http")
CHECKED = frozenset({"user", "node", "alias", "group", "job"})


class Path:
    """All methods of one path, as an ASGI application."""

    def __init__(self, service: Service, routes: Mapping[str, Route]) -> None:
        self._service, self._routes = service, dict(routes)
        if "GET" in self._routes:
            self._routes.setdefault("HEAD", self._routes["GET"])
        self._allow = ", ".join(sorted({*self._routes, "OPTIONS"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive)
        response = await self._respond(request)
        if response.status_code >= 400 or self._service.settings.debug_http:
            self._note(request, response.status_code, time.perf_counter() - began)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        route = self._routes.get(request.method)
        if route is None:
            headers = {"allow": self._allow}
            if request.method == "OPTIONS":
                return Response(status_code=204, headers=headers)
            return json_response({"message": WORDS[405]}, 405, headers)
        try:
            return answer(await route.verb(await self._call(route, request)))
        except SnakepitError as problem:
            return refusal(problem)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception as problem:  # one request, whatever befell it, harms no other
            return unforeseen(problem)

    async def _call(self, route: Route, request: Request) -> Call:
        """Everything checked, in the order people expect: who, what, how."""
        call = Call(self._service, request, request.path_params)
        if route.asks != "nobody":
            token = token_of(request)
            if token:
                call.session = await self._service.sessions.find(token)
            elif route.asks == "user" or request.path_params.get("user") == "~":
                call.session = call.signed_in
        check_ids(request.path_params)
        if route.query or route.strict_query:
            call.query = read_query(route, request)
        if route.body is not None:
            largest_bytes = LARGEST_OF_STRANGERS_BYTES if call.session is None else LARGEST_BODY_BYTES
            call.body = check(route.body, await read_json(request, largest_bytes))
        return call

    def _note(self, request: Request, status: int, seconds: float) -> None:
        client = request.client.host if request.client else "-"
        path = ascii(request.scope["path"])[1:-1][:200]  # nothing in it moves a terminal's cursor
        log.info("%s %s %s %s %.1f ms", client, request.method, path, status, seconds * 1000)


def read_query(route: Route, request: Request) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        field = route.query.get(name)
        if field is None:
            if route.strict_query:
                raise BadRequest(f"Unknown query parameter {name[:40]}")
        elif field.kind == "texts":
            read.setdefault(name, []).append(text)
        else:
            read[name] = _query_value(field, text)
    return read


def _query_value(field: Field, text: str) -> object:
    if field.kind == "whole":
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise BadRequest(f"Cannot parse query parameter {field.name}")
        return min(max(int(text), field.low), field.high)
    if field.kind == "flag":
        if text.lower() not in ("0", "1", "true", "false", "yes", "no", ""):
            raise BadRequest(f"Cannot parse query parameter {field.name}")
        return text.lower() in ("1", "true", "yes", "")
    if len(text) > field.longest or "\0" in text:
        raise BadRequest(f"Cannot parse query parameter {field.name}")
    return text


def check_ids(parameters: Mapping[str, str]) -> None:
    for kind, id in parameters.items():
        if kind in CHECKED and not (kind == "user" and id == "~") and (problem := problem_with(kind, id)):
            raise BadRequest(problem)
        if kind == "job" and not may_be_job(id):
            raise NotFound("Job not found")
        if kind in ("index", "token"):
            if not (id.isascii() and id.isdigit()):
                raise BadRequest(f"Wrong {kind} format: expected a number")
            if len(id) >= 10:
                raise NotFound(f"There is no {kind} {id[:40]}")
