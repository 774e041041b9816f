"""The address of a repository: which ones we follow, and its two halves, what may be shown and what is secret.

Pure text. The client shows the harmless half, provisioning hands the secret half to git by a file, never by argv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from snakepit.errors import BadRequest

SCHEMES = ("https", "http", "ssh", "git", "file")
LONGEST = 4096

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:(?P<userinfo>[^/?#]*)@)?(?P<host>[^/?#@]*)(?P<rest>.*)")
_SCP = re.compile(r"(?:(?P<user>\w[\w.+-]*)@)?(?P<host>\w[\w.-]*|\[[0-9A-Fa-f:.]+\]):(?P<path>[^:-].*)")
_ODD = re.compile(r"[\x00-\x20\x7f]")
_SHOWN_CREDENTIALS = re.compile(r"\b(https?|ftps?|git)://[^/\s@]*@")


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str  # one of SCHEMES
    shown: str  # the address without credentials: what git, logs and people get to see
    host: str = ""  # with the port
    path: str = ""  # of a file origin: the directory
    credentials: str = field(default="", repr=False)  # "user:password" as it stood in the address

    def scrub(self, text: str) -> str:
        """`text` without the secret half, for logs and errors."""
        password = self.credentials.partition(":")[2] or self.credentials
        for secret in (self.credentials, password):
            if len(secret) >= 4:
                text = text.replace(secret, "***")
        return _SHOWN_CREDENTIALS.sub(r"\1://", text)


def read_origin(text: str) -> Origin:
    """BadRequest for what git would take as an option, as a command (`ext::`) or from a place we do not know."""
    if len(text) > LONGEST:
        raise BadRequest(f"The address of the repository is longer than {LONGEST} characters")
    if not text or text.startswith("-") or _ODD.search(text):
        raise BadRequest(f"Not an address of a repository: {_harmless(text)!r}")
    if text.startswith("/"):
        return Origin("file", text, path=text)
    if url := _URL.fullmatch(text):
        return _from_url(text, url["scheme"].lower(), url["userinfo"] or "", url["host"], url["rest"])
    if scp := _SCP.fullmatch(text):
        return Origin("ssh", text, scp["host"])
    raise BadRequest(f"Not an address of a repository: {_harmless(text)!r} (known are {', '.join(SCHEMES)})")


def _from_url(text: str, scheme: str, userinfo: str, host: str, rest: str) -> Origin:
    if scheme not in SCHEMES:
        raise BadRequest(f"Repositories cannot be fetched by {scheme!r} (known are {', '.join(SCHEMES)})")
    if scheme == "file":
        if userinfo or host not in ("", "localhost") or not rest.startswith("/"):
            raise BadRequest(f"Not an address of a local repository: {_harmless(text)!r}")
        return Origin("file", f"file://{rest}", path=rest)
    user = userinfo.partition(":")[0]
    if not host or host.startswith("-") or user.startswith("-"):
        raise BadRequest(f"Not an address of a repository: {_harmless(text)!r}")
    if scheme == "ssh":  # the user is part of the address, there is no use for a password
        return Origin("ssh", f"ssh://{user}@{host}{rest}" if user else f"ssh://{host}{rest}", host)
    return Origin(scheme, f"{scheme}://{host}{rest}", host, credentials=userinfo if scheme != "git" else "")


def _harmless(text: str) -> str:
    return re.sub(r"//[^/\s]*@", "//", text)[:200]
