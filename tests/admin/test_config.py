"""Configuration: files, environment, command line; defaults of the seed; refusals by name."""

import os
from pathlib import Path
from typing import Any

import pytest

from snakepit.config import KEYS, Settings, effective, find_file, load
from snakepit.errors import ConfigError
from snakepit.wire.durations import parse_duration_s, render_duration


def read(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
    path = tmp_path / "snakepit.conf"
    path.write_text(text)
    return load(path, overrides, environ=environ or {"HOME": str(tmp_path)})


def test_the_defaults_are_those_of_the_readme(tmp_path: Path) -> None:
    settings = read(tmp_path, "")
    assert (settings.interface, settings.log_level, settings.debug_http) == ("0.0.0.0", 1, False)
    assert (settings.token_ttl_s, settings.hash_rounds, settings.query_limit) == (86400, 10, 100)
    assert (settings.lxd_timeout_s, settings.container_timeout_s, settings.poll_interval_s) == (10, 30, 1)
    assert (settings.lxd_bridge, settings.lxd_domain) == ("lxdbr0", "lxd")
    assert (settings.max_parallel_prep, settings.max_prep_duration_s, settings.max_start_duration_s) == (2, 3600, 300)
    assert settings.port == (80 if os.geteuid() == 0 else 8080)


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "SNAKEPIT_PORT": "82", "SNAKEPIT_INTERFACE": "127.0.0.2"}
    settings = read(tmp_path, "port: 81\ninterface: 127.0.0.1\nqueryLimit: 7", environ, port="83")
    assert (settings.port, settings.interface, settings.query_limit) == (83, "127.0.0.2", 7)
    origins = {key: origin for key, _, origin in effective(settings)}
    assert origins["port"] == "command line"
    assert origins["interface"] == "$SNAKEPIT_INTERFACE"
    assert origins["queryLimit"].endswith("snakepit.conf")
    assert origins["logLevel"] == "default"


def test_the_file_is_looked_for_in_the_known_places(tmp_path: Path) -> None:
    own = tmp_path / ".snakepit" / "snakepit.conf"
    own.parent.mkdir()
    own.write_text("port: 85")
    assert find_file(None, {"HOME": str(tmp_path)}) in (own, Path("/etc/snakepit/snakepit.conf"))
    assert find_file(None, {"HOME": str(tmp_path), "SNAKEPIT_CONF": "/x/y"}) == Path("/x/y")
    assert find_file("/z", {"SNAKEPIT_CONF": "/x/y"}) == Path("/z")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.conf", environ={})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot: 80", "unknown key 'prot', did you mean port?"),
        ("tokenTtl: 1d", "did you mean tokenTTL?"),
        ("port: 0", "port: expected a whole number from 1 to 65535 (it is 0)"),
        ("port: true", "port: expected a whole number"),
        ("logLevel: 3", "logLevel: expected a whole number from 0 to 2"),
        ("debugHttp: perhaps", "debugHttp: expected true or false"),
        ("tokenTTL: soon", "tokenTTL: 'soon' is no time-value"),
        ("tokenTTL: 3600", "tokenTTL: expected at least 1m, not 3s 600ms (a plain number is ms)"),
        ("tokenTTL: 2d\ntokenMaxAge: 1d", "tokenMaxAge must not be shorter than tokenTTL"),
        ("maxLogSize: big", "maxLogSize"),
        ("until: some", "until: expected one of all, any"),
        ("workerEnv: [a]", "workerEnv: expected a map"),
        ("workerEnv: {a-b: c}", "'a-b' is no name of an environment variable"),
        ("trustedProxies: localhost", "trustedProxies: 'localhost' is no address or network"),
        ("portRange: 5-3", "portRange: expected two ports"),
        ("database: mysql://x", "database: expected an address"),
        ("externalUrl: example.org", "externalUrl: expected an address"),
        ("- a", "expected lines of the form 'key: value'"),
        ("a: [", "not valid YAML"),
        ("interface: [a]", "interface: expected a text"),
        ("interface: 999.1.1.1", "interface: expected an address such as 127.0.0.1"),
        ("interface: http://localhost", "interface: expected an address such as 127.0.0.1"),
        ("port: 81\nlogLevel: 2\nport: 82", "snakepit.conf:3: the key 'port' is given twice"),
        ("workerEnv:\n  A: 1\n  A: 2", "snakepit.conf:3: the key 'A' is given twice"),
        ("workerEnv: {JOB_NUMBER: 3}", "workerEnv: JOB_NUMBER is set by the scheduler"),
        ("keepJobs: 0", "keepJobs: 0 would remove all of them at once"),
        ("keepAudit: 0s", "keepAudit: 0 would remove all of them at once"),
    ],
)
def test_bad_values_and_unknown_keys_are_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert words in refused.value.message
    assert "\n" not in refused.value.message


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "prot: 80\nport: 0\ntokenTTL: soon\ntokenMaxAge: 1h\nuntil: all\nuntil: some", slots="many")
    said = refused.value.message.splitlines()
    words = ("'until' is given twice", "unknown key 'prot'", "port: ", "tokenTTL: 'soon'", "until: exp", "slots: exp")
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))


@pytest.mark.parametrize("interface", ["127.0.0.1", "::1", "fe80::1%eth0", "localhost", "head.example.org", ""])
def test_the_interface_is_an_address_or_a_host(tmp_path: Path, interface: str) -> None:
    assert read(tmp_path, f'interface: "{interface}"').interface == interface


def test_code_and_trash_may_go_at_once(tmp_path: Path) -> None:
    settings = read(tmp_path, "keepSrc: 0\nkeepTrash: 0\nkeepJobs: 1ms")
    assert (settings.keep_src_s, settings.keep_trash_s, settings.keep_jobs_s) == (0, 0, 0.001)


def test_obsolete_keys_are_warned_about_and_old_names_still_count(tmp_path: Path) -> None:
    settings = read(tmp_path, f"tokenSecretPath: /x\ndebugJobFS: true\nmountUid: 5\nmountRoot: {tmp_path}/old")
    assert settings.data_root == tmp_path / "old"
    assert len(settings.warnings) == 4
    assert any("mountRoot is now called dataRoot" in warning for warning in settings.warnings)


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    text = "database: postgresql://me:s3cret@db/pit\nworkerEnv: {PROXY: s3cret, B: 2}"
    shown = {key: value for key, value, _ in effective(read(tmp_path, text))}
    assert set(shown) == set(KEYS)
    assert "s3cret" not in str(shown)
    assert shown["database"] == "postgresql://me:***@db/pit"
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "database: mysql://me:s3cret@db/pit")
    assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h 30m", 5400),
        ("500ms", 0.5),
        ("1d", 86400),
        ("1000", 1),
        (1000, 1),
        ("2 hours, 5 minutes", 7500),
        ("1.5s", 1.5),
    ],
)
def test_time_values(text: str | int, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "5 parsecs", "1e400", "-1s", "9999999999y", "1h h"])
def test_what_is_no_time_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_duration_s(text)


@pytest.mark.parametrize("seconds", [0, 0.5, 59, 3600, 90061.25])
def test_time_values_are_read_as_they_are_written(seconds: float) -> None:
    assert parse_duration_s(render_duration(seconds)) == pytest.approx(seconds)


def test_the_address_for_people(tmp_path: Path) -> None:
    assert read(tmp_path, "interface: 0.0.0.0\nport: 80").address == "http://127.0.0.1"
    assert read(tmp_path, "interface: 192.0.2.1\nport: 8080").address == "http://192.0.2.1:8080"
    assert read(tmp_path, "externalUrl: https://pit.example.org/").address == "https://pit.example.org"
