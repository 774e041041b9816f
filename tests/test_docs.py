"""The reference keeps up with the program: a key that is not described, or described and not there, fails here."""

import re
from pathlib import Path

from snakepit import config
from snakepit.service.api.routes import ROUTES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def test_every_configuration_key_is_described_once_and_no_other() -> None:
    described = re.findall(r"^\| `(\w+)` \|", (REFERENCE / "configuration.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(config.KEYS)


def test_every_obsolete_key_is_said_to_be() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    assert [key for key in (*config.OBSOLETE, *config.RENAMED) if f"`{key}`" not in text] == []


def test_every_http_route_is_described_and_no_other() -> None:
    described = set()
    rows = re.findall(r"^\| ((?:GET|PUT|POST|DELETE).*?) \|", (REFERENCE / "http.md").read_text(), re.MULTILINE)
    for row in rows:
        for methods, paths in re.findall(r"((?:[A-Z]+, )*[A-Z]+) ((?:`/[^`]*`(?:, )?)+)", row):
            described |= {
                (method, shape(path)) for method in methods.split(", ") for path in re.findall("`(.*?)`", paths)
            }
    assert described == {(route.method, shape(route.path)) for route in ROUTES}


def shape(path: str) -> str:
    """Without the names of its parameters."""
    return re.sub(r":\w+|\{[^}]*\}", "*", path)
