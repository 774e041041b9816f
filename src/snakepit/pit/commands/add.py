"""`pit add`: new users, nodes, aliases and groups. What is not given is asked for."""

from __future__ import annotations

from collections.abc import Callable

from snakepit.client import entities
from snakepit.pit import ask, session
from snakepit.pit.arguments import Argument, Arguments, Command, UsageError

PROPERTIES = {
    "user": ("fullname", "email", "password"),
    "node": ("endpoint", "password", "resources", "isolation", "slots", "mounts"),
    "alias": ("name",),
    "group": ("title",),
}


def add(arguments: Arguments) -> int:
    entity = entities.parse(arguments.word("entity"), tuple(PROPERTIES))
    given = entities.properties(arguments.words("properties"))
    check(entity.type, given, PROPERTIES[entity.type])
    client = session.open_client()
    body = entities.converted(entity.type, {**given, **ASKING[entity.type](given)})
    client.call("PUT", entity.path, body, limit_s=300)
    return 0


def check(type: str, given: dict[str, str], known: tuple[str, ...]) -> None:
    """Unknown names are refused before anything is asked; passwords have no place on a command line."""
    for name in given:
        if name not in known:
            raise UsageError(f'unknown property "{name}" of a {type} (expected {", ".join(known)})')
    if "password" in given:
        raise UsageError(
            "a password on the command line can be read by everybody on this machine; "
            "leave it out and it is asked for (in scripts: PIT_NEW_PASSWORD or --new-password-file)"
        )


def _user(given: dict[str, str]) -> dict[str, str]:
    return {
        "fullname": ask.text("Full name: ", "fullname=…", given.get("fullname")),
        "email": ask.email("E-Mail address: ", "email=…", given.get("email")),
        "password": ask.new_password(which=ask.NEW),
    }


def _node(given: dict[str, str]) -> dict[str, str]:
    endpoint = ask.text("LXD endpoint: ", "endpoint=…", given.get("endpoint"))
    if not endpoint.startswith("https:"):
        return {"endpoint": endpoint}
    return {"endpoint": endpoint, "password": ask.password("LXD endpoint password: ", ask.NEW)}


def _alias(given: dict[str, str]) -> dict[str, str]:
    return {"name": ask.text("Exact resource name: ", "name=…", given.get("name"))}


def _group(given: dict[str, str]) -> dict[str, str]:
    return {"title": ask.text("Group title: ", "title=…", given.get("title"))}


ASKING: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "user": _user,
    "node": _node,
    "alias": _alias,
    "group": _group,
}

COMMANDS = (
    Command(
        "add",
        "adds an entity to the system",
        add,
        (Argument("entity"), Argument("properties", required=False, many=True)),
        examples=(
            "pit add user:anna fullname='Anna' email=anna@example.org",
            "pit add node:n0 endpoint=local: resources='2:GeForce GTX 1070'",
            "pit add alias:gtx1070 name='GeForce GTX 1070'",
            "pit add group:students title='Students of 2026'",
        ),
        notes="""
Properties: user fullname, email; node endpoint, resources, isolation (auto, sandbox, none), slots, mounts;
alias name; group title. What is missing is asked for, passwords always
(in scripts: PIT_NEW_PASSWORD or --new-password-file).""",
    ),
)
