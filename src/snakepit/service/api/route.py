"""A row of the route table: method, path, verb, who may ask, what may be sent, what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from snakepit.service.call import Call
from snakepit.wire.fields import Field

Verb = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """`asks`: nobody (no token looked at), anybody (a token counts if there), user (a token is needed)."""

    method: str
    path: str
    verb: Verb
    asks: Literal["nobody", "anybody", "user"] = "user"
    body: Mapping[str, Field] | None = None  # None: no JSON body is read
    query: Mapping[str, Field] = field(default_factory=dict)
    answer: Any = None  # a wire shape, list[...] of one, or None for an empty 200
    media_type: str = "application/json"
    status: int = 200  # of a success
    errors: tuple[int, ...] = ()
    strict_query: bool = False
    raw_body: bool = False

    @property
    def summary(self) -> str:
        return (self.verb.__doc__ or self.verb.__name__).strip().splitlines()[0].rstrip(".")
