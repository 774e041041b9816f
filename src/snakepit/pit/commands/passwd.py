"""`pit passwd`: a new password, for oneself or (admins) for somebody else."""

from __future__ import annotations

from snakepit.client import files
from snakepit.client.client import Client
from snakepit.client.http import quote
from snakepit.errors import Unauthorized
from snakepit.pit import ask, render, session
from snakepit.pit.arguments import Argument, Arguments, Command


def passwd(arguments: Arguments) -> int:
    name = arguments.word("username").removeprefix("user:")
    client = session.open_client()
    session.check_login(client)
    own = not name or name == client.user
    verification = ask.password("Own password for verification: ")
    password = ask.new_password(which=ask.NEW)
    path = "/users/~" if own else f"/users/{quote(name)}"
    client.call("POST", path, {"verification": verification, "password": password})
    if own:
        _stay_logged_in(client.user, password)
    render.talk("Password changed.")
    return 0


def _stay_logged_in(user: str, password: str) -> None:
    """A change of password ends tokens; where that took the one of this machine, it gets a new one."""
    account = files.load_account()
    if account is None or account.user != user:
        return
    connection = files.load_connection()
    client = Client(connection.url, user, account.token, connection.certificate)
    try:
        client.call("GET", "/users/~")
    except Unauthorized:
        token = session.authenticate(client, user, password)
        files.save_account(files.Account(user, token, account.path))


COMMANDS = (
    Command(
        "passwd",
        "changes a password",
        passwd,
        (Argument("username", required=False),),
        examples=("pit passwd", "PIT_NEW_PASSWORD=… pit passwd anna --password-file ~/secret.txt"),
        notes="""
In scripts: the own password by PIT_PASSWORD or --password-file, the new one by PIT_NEW_PASSWORD or
--new-password-file.""",
    ),
)
