"""`pit login` and `pit logout`."""

from __future__ import annotations

import os

from snakepit.client import files
from snakepit.client.client import Client
from snakepit.errors import SnakepitError
from snakepit.pit import render, session
from snakepit.pit.arguments import Argument, Arguments, Command, Option


def login(arguments: Arguments) -> int:
    connection = files.load_connection()
    old = files.load_account()
    user = arguments.word("username") or os.environ.get("PIT_USER") or (old.user if old is not None else None)
    client = session.log_in(
        connection,
        user,
        register=arguments.on("register"),
        fullname=arguments.text("fullname"),
        email=arguments.text("email"),
        path=old.path if old is not None else "",
    )
    render.talk(f"Logged in as {client.user}.")
    return 0


def logout(_: Arguments) -> int:
    """The token ends at the service; where that cannot be reached, it is forgotten here all the same."""
    account = files.load_account()
    if account is None:
        render.talk("Not logged in.")
        return 0
    connection = files.load_connection()
    problem = ""
    try:
        with Client(connection.url, account.user, account.token, connection.certificate) as client:
            client.logout()
    except SnakepitError as error:
        problem = f" (the service did not end the token: {error.message})" if error.status != 401 else ""
    files.forget_account()
    render.talk(f"Logged out; removed {account.path}{problem}")
    return 0


COMMANDS = (
    Command(
        "login",
        "logs in on this machine, or registers a new user",
        login,
        (Argument("username", required=False),),
        (
            Option("--register", "registers the user if there is none of that name"),
            Option("--fullname", "full name of a new user", "name"),
            Option("--email", "e-mail address of a new user", "address"),
        ),
        examples=(
            "pit login tilman",
            "PIT_USER=tilman pit login --password-file ~/secret.txt",
            "PIT_USER=tilman PIT_PASSWORD=… PIT_FULLNAME='Tilman' PIT_EMAIL=t@example.org pit login --register",
        ),
        notes="""
In scripts the questions are answered by PIT_USER, PIT_PASSWORD (or --password-file), PIT_FULLNAME and PIT_EMAIL.
With PIT_TOKEN, a token of the service, no login is needed at all.""",
    ),
    Command("logout", "ends the login on this machine", logout),
)
