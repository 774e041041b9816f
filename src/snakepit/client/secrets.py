"""Which files look like secrets by their name: what nobody means to send along with a job. Pure.

Contents are not read: a name is quick to check, easy to explain, and what people forget to ignore has such a name.
"""

from __future__ import annotations

import re

_SECRET = re.compile(
    rb"""
    \.env(?:rc|\..+)? | .+\.env
    | .+\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)
    | id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:[._-].*)?
    | [._]netrc | \.pgpass | \.my\.cnf | \.htpasswd | \.pypirc | \.npmrc
    | \.dockercfg | \.git-credentials | \.s3cfg | \.boto
    | \.?vault[-_]pass(?:word)?(?:\..*)?
    | (?:client[-_]secrets?|service[-_]account|application[-_]default[-_]credentials|credentials?|secrets?)
      (?:[-_.].*)?\.(?:json|ya?ml|toml|ini|txt|cfg)
    | credentials | kubeconfig | kaggle\.json
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_HARMLESS = re.compile(rb".*(?:\.pub|[._-](?:example|sample|template|dist|default|tmpl))", re.IGNORECASE | re.DOTALL)


def looks_secret(path: bytes) -> bool:
    """`path` as git names it: only its last part counts."""
    name = path.rpartition(b"/")[2]
    return _SECRET.fullmatch(name) is not None and _HARMLESS.fullmatch(name) is None
