"""`pit connect URL`: writes `.pitconnect.txt`, after a look at who answers there."""

from __future__ import annotations

import os

from snakepit.client import files
from snakepit.client.client import Client
from snakepit.client.http import Address
from snakepit.errors import SnakepitError
from snakepit.pit import ask, render
from snakepit.pit.arguments import Argument, Arguments, Command, Option


def connect(arguments: Arguments) -> int:
    url = arguments.word("url")
    address = Address(url if "://" in url else f"http://{url}")
    certificate = _certificate(address, arguments)
    with Client(address.url, certificate=certificate) as client:
        if client.hello() != "Here I am":
            raise SnakepitError(f"no snakepit service answers at {address.url}")
    folder = os.getcwd() if arguments.on("here") else None
    path = files.save_connection(files.Connection(address.url, certificate), folder)
    used = files.find(files.CONNECT_FILE)
    render.talk(f"Wrote {path}")
    if used is not None and not os.path.samefile(used, path):
        render.talk(f"Mind that {used} overrules it in this directory.")
    return 0


def _certificate(address: Address, arguments: Arguments) -> str:
    """The one to pin: from a file, or the shown one when a person (or a fingerprint) vouches for it. Else none."""
    if path := arguments.text("certificate"):
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise files.unreadable(path, problem) from None
    if not address.tls:
        return ""
    from snakepit.client import tls

    expected = arguments.text("fingerprint")
    try:
        if expected is None:
            Client(address.url).hello()
            return ""
    except tls.UntrustedCertificate as problem:
        render.talk(problem.message)
    shown = tls.shown_certificate(address)
    print_of_it = tls.fingerprint(shown)
    if expected is not None:
        if expected.replace(":", "").upper() != print_of_it.replace(":", ""):
            raise SnakepitError(f"the service shows another certificate: SHA-256 {print_of_it}")
        return shown
    render.talk(f"The service shows a certificate with SHA-256 fingerprint\n  {print_of_it}")
    if not ask.yes("Trust it, and no other, from now on (yes|no)? ", "--fingerprint <sha256> or --certificate <file>"):
        raise SystemExit(1)
    return shown


COMMANDS = (
    Command(
        "connect",
        "writes the .pitconnect.txt of a service",
        connect,
        (Argument("url"),),
        (
            Option("--here", "writes it in this directory, not at home"),
            Option("--certificate", "trusts the certificate in this file, and no other", "file"),
            Option("--fingerprint", "trusts the shown certificate if it has this fingerprint", "sha256"),
        ),
        examples=("pit connect http://127.0.0.1:8080", "pit connect https://pit.example.org --certificate pit.pem"),
    ),
)
