"""`pit status -w`: paints the status again whenever something changed, and every few seconds for the clocks in it."""

from __future__ import annotations

from functools import partial

from snakepit.client.client import Client
from snakepit.client.follow import patient
from snakepit.pit import render, tables

TICK_S = 2


def watch(client: Client, as_json: bool) -> int:
    """On a terminal one live picture; in a pipe a new report for every change."""
    live = render.on_terminal() and not as_json
    if live:
        render.open_screen()
    try:
        _watch(client, as_json, live)
    except KeyboardInterrupt:
        pass
    finally:
        if live:
            render.close_screen()
    return 0


def _watch(client: Client, as_json: bool, live: bool) -> None:
    version = ""
    while True:
        seen = version
        version, found = patient(partial(client.status_after, seen, TICK_S if live else 30))
        if live:
            render.screen(tables.status(found, render.columns()) + "\nCtrl-C ends.\n")
        elif version != seen:
            if as_json:
                render.json_out(found)
            else:
                render.out(("\n" if seen else "") + tables.status(found, None))
            render.flush()
