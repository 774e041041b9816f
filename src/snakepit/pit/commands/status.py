"""`pit status`: what runs, waits and ended; `-w` keeps looking."""

from __future__ import annotations

from snakepit.pit import render, session, tables
from snakepit.pit.arguments import JSON, Arguments, Command, Option


def status(arguments: Arguments) -> int:
    client = session.open_client()
    if arguments.on("watch"):
        from snakepit.pit.watch import watch

        return watch(client, arguments.on("json"))
    found = client.status()
    if arguments.on("json"):
        render.json_out(found)
    else:
        render.out(tables.status(found, render.columns()))
    return 0


COMMANDS = (
    Command(
        "status",
        "prints a job status report",
        status,
        options=(Option("-w --watch", "keeps watching until Ctrl-C"), JSON),
        aliases=("ps",),
        examples=("pit status", "pit status -w", "pit status --json"),
    ),
)
