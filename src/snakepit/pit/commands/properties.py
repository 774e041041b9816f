"""`pit set` and `pit get`."""

from __future__ import annotations

from snakepit.client import entities
from snakepit.errors import NotFound
from snakepit.pit import ask, render, session
from snakepit.pit.arguments import JSON, Argument, Arguments, Command, UsageError

SETTABLE = {
    "user": ("fullname", "email", "admin", "autoshare"),
    "node": ("resources", "isolation", "slots", "mounts"),
    "alias": ("name",),
    "group": ("title",),
}


def set_(arguments: Arguments) -> int:
    entity = entities.parse(arguments.word("entity"), tuple(SETTABLE))
    given = entities.properties(arguments.words("assignments"))
    if not given:
        raise UsageError("missing argument <assignments...>")
    if "password" in given:
        raise UsageError("passwords are changed with: pit passwd [username]")
    for name in given:
        if name not in SETTABLE[entity.type]:
            known = ", ".join(SETTABLE[entity.type])
            raise UsageError(f'unknown property "{name}" of a {entity.type} (expected {known})')
    body = entities.converted(entity.type, given)
    client = session.open_client()
    if entity.type == "user":
        session.check_login(client)
        body["verification"] = ask.password("Own password for verification: ")
    client.call("POST", entity.path, body, limit_s=300)
    return 0


def get(arguments: Arguments) -> int:
    entity, name = entities.parse(arguments.word("entity")), arguments.word("property")
    body = session.open_client().call("GET", entity.path)
    if name not in body:
        raise NotFound(f'{entity} has no property "{name}" (it has {", ".join(sorted(body))})')
    value = body[name]
    if arguments.on("json") or isinstance(value, dict) or _nested(value):
        render.json_out(value)
    else:
        render.out(render.clean(_plain(value), lines=True) + "\n")
    return 0


def _nested(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, dict | list) for each in value)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(str(each) for each in value) if isinstance(value, list) else str(value)


COMMANDS = (
    Command(
        "set",
        "sets properties of an entity",
        set_,
        (Argument("entity"), Argument("assignments", many=True)),
        examples=(
            "pit set me autoshare=students,staff",
            "pit set user:anna admin=yes",
            "pit set node:n0 resources='2:GeForce GTX 1070'",
            "pit set group:students title='Students of 2027'",
        ),
        notes="""
Properties: user fullname, email, admin, autoshare; node resources, isolation, slots, mounts; alias name;
group title. Changing a user asks for your own password (in scripts: PIT_PASSWORD or --password-file).""",
    ),
    Command(
        "get",
        "gets a property of an entity",
        get,
        (Argument("entity"), Argument("property")),
        (JSON,),
        examples=("pit get me email", "pit get job:190 state", "pit get node:n0 online"),
    ),
)
