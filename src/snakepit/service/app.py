"""The application: the route table on FastAPI, with our own errors and our own OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute

from snakepit import __version__
from snakepit.service.api import docs, openapi
from snakepit.service.api.answers import foreign
from snakepit.service.api.dispatch import Path
from snakepit.service.api.route import Route
from snakepit.service.api.routes import ROUTES
from snakepit.service.inside import socket
from snakepit.service.service import Service

__all__ = ["Service", "make_app"]


def make_app(service: Service, more: Sequence[Route] = ()) -> FastAPI:
    """The HTTP side of `service`."""
    app = FastAPI(title="Snakepit", version=__version__, redirect_slashes=False, docs_url=None, redoc_url=None)
    routes = (*ROUTES, *more)
    document: dict[str, Any] = openapi.document(routes)
    app.openapi = lambda: document  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, foreign)
    shown = HTMLResponse(docs.page(document))
    app.router.routes.append(HttpRoute("/docs", endpoint=shown))
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    for path, methods in by_path.items():
        app.router.routes.append(HttpRoute(path, endpoint=Path(service, methods)))
    for path, serve in socket.ROUTES.items():
        app.router.routes.append(WebSocketRoute(path, endpoint=socket.Inside(service, serve)))
    return app
