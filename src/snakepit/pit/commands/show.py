"""`pit show`: lists of things, one thing, or old jobs."""

from __future__ import annotations

from snakepit.client import entities
from snakepit.client.client import Client
from snakepit.client.http import query
from snakepit.errors import BadRequest
from snakepit.pit import render, session, tables
from snakepit.pit.arguments import JSON, Argument, Arguments, Command, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LISTS = ("users", "groups", "nodes", "aliases")
AUDIT_FILTERS = ("user", "job", "before", "limit")
NUMBERS = ("job", "before", "limit", "offset")
FILTERS = ("since", "till", "user", "title", "asc", "desc", "limit", "offset")


def show(arguments: Arguments) -> int:
    what, more = arguments.word("entity"), arguments.words("filter")
    if what == "jobs":
        return _jobs(more, arguments.on("json"))
    if what == "audit":
        return _audit(more, arguments.on("json"))
    if more:
        raise UsageError(f'unexpected argument "{more[0]}"')
    if what in LISTS:
        return _list(what, arguments.on("json"))
    entity = entities.parse(what)
    body = session.open_client().call("GET", entity.path)
    if arguments.on("json"):
        render.json_out(body)
    else:
        render.out(tables.entity(entity.type, body))
    return 0


def _jobs(words: list[str], as_json: bool) -> int:
    found = _filtered("/jobs", words, FILTERS)
    if as_json:
        render.json_out(found)
    else:
        render.out(tables.jobs(found, render.columns()))
    return 0


def _audit(words: list[str], as_json: bool) -> int:
    found = _filtered("/audit", words, AUDIT_FILTERS)
    if as_json:
        render.json_out(found)
    else:
        render.out(tables.audit(found))
    return 0


def _filtered(path: str, words: list[str], known: tuple[str, ...]) -> Any:
    filters = entities.properties(words)
    for name, value in filters.items():
        if name not in known:
            raise UsageError(f'unknown filter "{name}" (expected {", ".join(known)})')
        if name in NUMBERS and not (value.isdigit() and value.isascii()):
            raise UsageError(f"{name}={value}: expected a number")
    try:
        return session.open_client().call("GET", path + query(dict(filters)))
    except BadRequest as problem:  # which dates and fields there are, the service knows
        raise UsageError(problem.message) from None


def _list(what: str, as_json: bool) -> int:
    ids = session.open_client().call("GET", f"/{what}")
    if as_json:
        render.json_out(ids)
    else:
        render.out("".join(f"{render.clean(str(each))}\n" for each in ids))
    return 0


def ids_of(client: Client, what: str) -> list[str]:
    return [str(each) for each in client.call("GET", f"/{what}")]


COMMANDS = (
    Command(
        "show",
        "shows info about an entity",
        show,
        (Argument("entity"), Argument("filter", required=False, many=True)),
        (JSON,),
        examples=(
            "pit show me",
            "pit show nodes",
            "pit show node:n0",
            "pit show job:190",
            "pit show audit user=anna",
            "pit show jobs user=tilman since=2026-01-01 desc=date limit=20",
        ),
        notes="""
"entity" is me, users, groups, nodes, aliases, jobs, audit,
user:<name>, group:<name>, node:<name>, alias:<name> or job:<number>.
"jobs" can be narrowed by since=<date>, till=<date>, user=<name>, title=<pattern with % and _>,
ordered by asc=<field> or desc=<field> (date, user, title, state), and paged by limit=<n> and offset=<n>.
"audit" says who went inside which job, the newest first (for administrators); narrowed by user=<name> and job=<number>,
paged by limit=<n> and before=<entry>.""",
    ),
)
