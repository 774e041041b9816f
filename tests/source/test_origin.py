"""Addresses of repositories: which are followed, and that the secret half never shows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.core.origin import read_origin
from snakepit.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "scheme", "shown", "credentials"),
    [
        ("https://github.com/a/b.git", "https", "https://github.com/a/b.git", ""),
        ("https://me:s3cret@example.org:8443/a", "https", "https://example.org:8443/a", "me:s3cret"),
        ("https://token@example.org/a", "https", "https://example.org/a", "token"),
        ("http://me:p@ss@example.org/a", "http", "http://example.org/a", "me:p@ss"),
        ("git@example.org:group/a.git", "ssh", "git@example.org:group/a.git", ""),
        ("ssh://git:pw@example.org:22/a", "ssh", "ssh://git@example.org:22/a", ""),
        ("git://example.org/a", "git", "git://example.org/a", ""),
        ("file:///srv/a.git", "file", "file:///srv/a.git", ""),
        ("/srv/a.git", "file", "/srv/a.git", ""),
    ],
)
def test_the_two_halves_of_an_address(text: str, scheme: str, shown: str, credentials: str) -> None:
    origin = read_origin(text)
    assert (origin.scheme, origin.shown, origin.credentials) == (scheme, shown, credentials)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-uhttps://x",
        "--upload-pack=touch /tmp/x",
        "ext::sh -c id",
        "ext::sh",
        "fd::17",
        "ftp://example.org/a",
        "ssh://-oProxyCommand=id/a",
        "ssh://-oProxyCommand=id@host/a",
        "-oProxyCommand=id:a",
        "host:-a",
        "https:///a",
        "file://other/a",
        "https://example.org/a b",
        "https://example.org/a\nb",
        "../relative",
        "x" * 5000,
    ],
)
def test_options_commands_and_odd_schemes_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        read_origin(text)


def test_errors_do_not_show_the_password() -> None:
    with pytest.raises(BadRequest) as refused:
        read_origin("https://me:s3cret@example.org/a b")
    assert "s3cret" not in refused.value.message


def test_lines_are_scrubbed() -> None:
    origin = read_origin("https://me:s3cret@example.org/a")
    line = "fatal: unable to access 'https://me:s3cret@example.org/a/': s3cret, also https://you:other@example.org/"
    assert origin.scrub(line) == "fatal: unable to access 'https://example.org/a/': ***, also https://example.org/"
    assert "s3cret" not in repr(origin)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        origin = read_origin(text)
    except BadRequest:
        return
    assert not origin.shown.startswith("-")
    assert read_origin(origin.shown).shown == origin.shown


@settings(deadline=None)
@given(st.text("abc:@", min_size=4).map(lambda text: f"{text}"))
def test_no_userinfo_survives_in_what_is_shown(userinfo: str) -> None:
    assert read_origin(f"https://{userinfo}@example.org/a").shown == "https://example.org/a"
