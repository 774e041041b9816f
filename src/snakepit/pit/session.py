"""A client that is logged in: from the two files, from the environment, or after the talk that makes them.

The questions are the seed's. A token that ended is renewed in the middle of any command, with the
password asked for once.
"""

from __future__ import annotations

import os

from snakepit.client import files
from snakepit.client.client import Client, account_of_environment
from snakepit.errors import BadRequest, Forbidden, NotFound, SnakepitError, Unauthorized
from snakepit.pit import ask, render


def open_client() -> Client:
    """For every command that talks to the service."""
    connection = files.load_connection()
    account = account_of_environment()
    if account is not None:
        return _client(connection, account, None)
    account = files.load_account()
    wanted = os.environ.get("PIT_USER", "")
    if account is not None and wanted and wanted != account.user:
        # Somebody else for this one command: nothing is written down.
        password = ask.given_password()
        if password is None:
            raise SnakepitError(
                f"PIT_USER is {wanted}, but {account.path} is of {account.user}: set PIT_PASSWORD too, or use pit login"
            )
        client = _client(connection, files.Account(wanted, ""), None)
        authenticate(client, wanted, password)
        return client
    if account is None:
        return log_in(connection)
    return _client(connection, account, _Renewal(account))


def _client(connection: files.Connection, account: files.Account, renewal: _Renewal | None) -> Client:
    trace = render.talk if render.debugging else None
    return Client(connection.url, account.user, account.token, connection.certificate, renewal, trace)


class _Renewal:
    """Gets a new token for an account and writes it where the old one was found."""

    def __init__(self, account: files.Account) -> None:
        self._account = account

    def __call__(self, client: Client) -> str | None:
        try:
            password = ask.password("Please enter password: ")
        except ask.Unanswered:
            raise Unauthorized(
                "The login on this machine has ended. Log in again: pit login "
                "(in scripts: PIT_PASSWORD, --password-file or PIT_TOKEN)"
            ) from None
        plain = Client(client.address.url, certificate=client.certificate)
        token = authenticate(plain, self._account.user, password, remembered=True)
        files.save_account(files.Account(self._account.user, token, self._account.path))
        return token


# ------------------------------------------------------------------------------------------------------- the first time


def log_in(
    connection: files.Connection,
    user: str | None = None,
    register: bool | None = None,
    fullname: str | None = None,
    email: str | None = None,
    path: str = "",
) -> Client:
    """The talk of a first login, or of a registration; `path` is the file of an earlier account, if any."""
    user = user or os.environ.get("PIT_USER")
    if not user and ask.interactive():
        render.talk("No user info found. Seems like a new user or first time login from this machine.")
    user = ask.text("Please enter an existing or new username: ", "PIT_USER (and PIT_PASSWORD), or PIT_TOKEN", user)
    trace = render.talk if render.debugging else None
    client = Client(connection.url, user, certificate=connection.certificate, trace=trace)
    if client.user_exists(user):
        password = ask.password("Please enter password: ")
    else:
        password = _register(client, user, register, fullname, email)
    token = authenticate(client, user, password)
    account = files.Account(user, token, path)
    account.path = files.save_account(account)
    return _client(connection, account, _Renewal(account))


def _register(client: Client, user: str, register: bool | None, fullname: str | None, email: str | None) -> str:
    if ask.interactive():
        render.talk("Found no user of that name.")
    elif not register:
        raise NotFound(f'Found no user "{user}". To register this name: pit login --register')
    if not ask.yes("Do you want to register this usename (yes|no)? ", "pit login --register", register or None):
        raise SystemExit(0)
    fullname = ask.text("Full name: ", "PIT_FULLNAME", fullname or os.environ.get("PIT_FULLNAME"))
    email = ask.email("E-Mail address: ", "PIT_EMAIL", email or os.environ.get("PIT_EMAIL"))
    password = ask.new_password()
    client.register(user, fullname, email, password)
    return password


def authenticate(client: Client, user: str, password: str, remembered: bool = False) -> str:
    """`remembered`: the name is from a file of an earlier login, and may have gone since."""
    try:
        return client.authenticate(user, password)
    except (BadRequest, Unauthorized, Forbidden, NotFound) as problem:
        if remembered and isinstance(problem, NotFound):
            words = (
                f'Unable to authenticate. If user "{user}" is not valid anymore, remove ".pituser.txt" from this '
                "directory or your home folder and start over."
            )
        else:
            words = f'Unable to authenticate: wrong user name or password (user "{user}").'
        raise Unauthorized(words) from None


def check_login(client: Client) -> None:
    """Before a change that carries the own password: a refusal of that could not be told from one of the token."""
    client.call("GET", "/users/~")
