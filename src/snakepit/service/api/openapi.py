"""The OpenAPI document, drawn from the route table and the wire shapes."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Sequence
from typing import Any

from snakepit import __version__
from snakepit.service.api.route import Route
from snakepit.wire import fields, names
from snakepit.wire.shapes import Message

MESSAGE = {"$ref": "#/components/schemas/Message"}
STATUS_WORDS = {
    400: "Bad input; the message names what is wrong",
    401: "No token, an unknown one or an expired one",
    403: "Not allowed",
    404: "Not found",
    406: "No set of known nodes could ever hold this",
    409: "In conflict with what is there",
    412: "Not in this state",
    413: "Too large",
    416: "No such range",
    429: "Too many failed attempts, or too many pipes",
    502: "The node cannot be reached, or cannot at the moment",
    503: "Not possible on this head at the moment",
    507: "No room: the limit of a user or group is reached, or the disk is full",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    shapes: dict[str, Any] = {}
    _shape(Message, shapes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = re.sub(r":\w+}", "}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Snakepit", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": shapes,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(route: Route, shapes: dict[str, Any]) -> dict[str, Any]:
    words = re.sub(r"[^a-zA-Z]+", "_", route.path).strip("_")
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{words}",
        "tags": [route.path.split("/")[1]],
        "parameters": [*_path_parameters(route.path), *_query_parameters(route)],
        "responses": _responses(route, shapes),
    }
    if route.asks == "user":
        operation["security"] = [{"token": []}, {"bearer": []}]
    if route.body is not None:
        content = {"application/json": {"schema": fields.schema(route.body)}}
        operation["requestBody"] = {"content": content, "required": any(f.required for f in route.body.values())}
    elif route.raw_body:
        schema = {"type": "string", "format": "binary"}
        operation["requestBody"] = {"content": {"application/octet-stream": {"schema": schema}}}
    return operation


def _responses(route: Route, shapes: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done"}
    if route.media_type != "application/json":
        good["content"] = {route.media_type: {"schema": {"type": "string"}}}
    elif route.answer is not None:
        good["content"] = {"application/json": {"schema": _shape(route.answer, shapes)}}
    codes = {400, *route.errors} | ({401} if route.asks != "nobody" else set()) | ({413} if route.body else set())
    responses = {str(route.status): good}
    for code in sorted(codes):
        content = {"application/json": {"schema": MESSAGE}}
        responses[str(code)] = {"description": STATUS_WORDS[code], "content": content}
    return responses


def _path_parameters(path: str) -> list[dict[str, Any]]:
    parameters = []
    for name in re.findall(r"{(\w+)(?::\w+)?}", path):
        schema: dict[str, Any] = {"type": "string"}
        if name == "user":
            schema["pattern"] = f"^({names.USER}|~)$"
        elif name in ("node", "alias", "group", "job"):
            schema["pattern"] = names.pattern_of(name)
        elif name in ("index", "token"):
            schema = {"type": "integer", "minimum": 0}
        elif name == "aspect":
            schema["enum"] = ["stats", "content"]
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    return parameters


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "in": "query", "required": False, "schema": fields.value_schema(field)}
        for field in route.query.values()
    ]


def _shape(kind: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of a wire shape: TypedDicts become components."""
    simple = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    if kind in simple:
        return {"type": simple[kind]}
    if typing.is_typeddict(kind):
        if kind.__name__ not in shapes:
            shapes[kind.__name__] = {}  # stands for itself while its members are drawn
            members = typing.get_type_hints(kind)
            shapes[kind.__name__] = {
                "type": "object",
                "properties": {name: _shape(member, shapes) for name, member in members.items()},
                "required": sorted(kind.__required_keys__),
            }
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return {"type": "array", "items": _shape(arguments[0], shapes)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_shape(argument, shapes) for argument in arguments]}
    raise TypeError(f"no JSON schema for {kind!r}")
