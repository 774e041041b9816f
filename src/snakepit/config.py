"""The only reader of the environment and of snakepit.conf: a YAML file becomes one frozen value, `Settings`.

Every value knows where it came from (default, file, environment, command line). Obsolete keys are warned about, unknown
keys and bad values refused by name, all of them at once. Times are seconds inside, time-values (`1h 30m`; a plain
number is ms) in the file.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from snakepit.core.sizes import parse_size
from snakepit.errors import ConfigError, SnakepitError
from snakepit.wire.durations import parse_duration_s, render_duration
from snakepit.wire.names import is_reserved

SYSTEM_FILE = Path("/etc/snakepit/snakepit.conf")
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the service may be told. `load` makes it; nobody else reads the file or the environment."""

    data_root: Path
    port: int
    interface: str = "0.0.0.0"
    log_level: int = 1
    debug_http: bool = False
    database: str = ""  # empty: SQLite in the data root
    open_registration: bool = True
    external_url: str = ""
    trusted_proxies: tuple[str, ...] = ()
    token_ttl_s: float = DAY_S
    token_max_age_s: float = 30 * DAY_S
    hash_rounds: int = 10
    endpoint: str = ""
    client_key: str = ""
    client_cert: str = ""
    lxd_timeout_s: float = 10.0
    lxd_bridge: str = "lxdbr0"
    lxd_domain: str = "lxd"
    container_timeout_s: float = 30.0
    poll_interval_s: float = 1.0
    max_parallel_prep: int = 2
    max_prep_duration_s: float = 3600.0
    max_start_duration_s: float = 300.0
    query_limit: int = 100
    until: str = "all"
    worker_env: Mapping[str, str] = field(default_factory=dict)
    port_range: tuple[int, int] = (20000, 29999)
    slots: int = 0  # 0: eight per core
    reserve_cpus: int = 0
    reserve_mem_bytes: int = 1_000_000_000
    max_log_size_bytes: int = 1_000_000_000
    max_snapshot_size_bytes: int = 5_000_000_000
    max_user_size_bytes: int = 0  # 0: no limit
    max_group_size_bytes: int = 0
    keep_src_s: float = 7 * DAY_S
    keep_jobs_s: float = 365 * DAY_S
    keep_audit_s: float = 365 * DAY_S
    keep_trash_s: float = 30 * DAY_S
    file_origins: bool = False
    warnings: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data_root.absolute() / 'snakepit.db'}"

    @property
    def address(self) -> str:
        """How people reach the service, without a trailing slash."""
        if self.external_url:
            return self.external_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self.interface, self.interface)
        return f"http://{host}" if self.port == 80 else f"http://{host}:{self.port}"


def load(
    path: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The effective settings: command line (`overrides`, by key) over environment over file over defaults."""
    environ = os.environ if environ is None else environ
    origins: dict[str, str] = {}
    written: dict[str, Any] = {}
    warnings: list[str] = []
    mistakes: list[str] = []
    found = find_file(path, environ)
    if found is not None:
        _merge(written, origins, _known(_read(found, mistakes), found, warnings, mistakes), str(found))
    for variable, key in ENVIRONMENT.items():
        if environ.get(variable):
            _merge(written, origins, {key: environ[variable]}, f"${variable}")
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    _merge(written, origins, _known(given, "command line", warnings, mistakes), "command line")
    values = _values(written, origins, mistakes)
    values.setdefault("data_root", default_data_root(environ))
    values.setdefault("port", 80 if os.geteuid() == 0 else 8080)
    settings = Settings(**values, warnings=tuple(warnings), origins=origins)
    well_read = all(KEYS[key].attribute in values for key in written if key in ("tokenTTL", "tokenMaxAge"))
    if well_read and settings.token_max_age_s < settings.token_ttl_s:
        mistakes.append("tokenMaxAge must not be shorter than tokenTTL")
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return settings


def find_file(path: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """--config, $SNAKEPIT_CONF, /etc/snakepit/snakepit.conf, ~/.snakepit/snakepit.conf: the first one counts."""
    if path is not None:
        return Path(path)
    if environ.get("SNAKEPIT_CONF"):
        return Path(environ["SNAKEPIT_CONF"])
    own = _home(environ) / ".snakepit" / "snakepit.conf"
    return next((candidate for candidate in (SYSTEM_FILE, own) if _exists(candidate)), None)


def default_data_root(environ: Mapping[str, str]) -> Path:
    return Path("/snakepit") if os.geteuid() == 0 else _home(environ) / ".snakepit" / "data"


def password_from_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """What `snakepit init` takes instead of asking."""
    return (os.environ if environ is None else environ).get("SNAKEPIT_PASSWORD")


def effective(settings: Settings) -> list[tuple[str, str, str]]:
    """Key, value and origin of every setting, for people; secrets are never in it."""
    rows = []
    for name, key in KEYS.items():
        value = getattr(settings, key.attribute)
        rows.append((name, key.show(value), settings.origins.get(name, "default")))
    return rows


# ------------------------------------------------------------------------------------------------------- kinds of value


def _text(raw: object) -> str:
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        raise ValueError("expected a text")
    return str(raw)


def _interface(raw: object) -> str:
    """An address, or the name of a host; what is only digits and dots is meant as an address."""
    text = _text(raw)
    try:
        if re.fullmatch(r"[0-9.]+|.*[^A-Za-z0-9_.-].*", text, re.DOTALL):
            ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("expected an address such as 127.0.0.1, or the name of a host") from None
    return text


def _path(raw: object) -> Path:
    text = _text(raw)
    if not text or "\0" in text:
        raise ValueError("expected a path")
    return Path(text).expanduser().absolute()


def _flag(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower()
    if word not in ("true", "false", "yes", "no", "on", "off", "1", "0"):
        raise ValueError("expected true or false")
    return word in ("true", "yes", "on", "1")


def _whole(low: int, high: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        text = str(raw).strip()
        if isinstance(raw, bool) or not re.fullmatch(r"-?[0-9]{1,15}", text) or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return read


def _time(low_s: float = 0.0) -> Callable[[object], float]:
    def read(raw: object) -> float:
        if not isinstance(raw, str | int | float):
            raise ValueError("expected a time-value such as '1h 30m'")
        seconds = parse_duration_s(raw)
        if seconds < low_s:
            raise ValueError(
                f"expected at least {render_duration(low_s)}, not {render_duration(seconds)} (a plain number is ms)"
            )
        return seconds

    return read


def _kept(raw: object) -> float:
    seconds = _time()(raw)
    if seconds == 0:
        raise ValueError("0 would remove all of them at once; a time such as 100y keeps them")
    return seconds


def _size(raw: object) -> int:
    try:
        return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0 else parse_size(_text(raw))
    except SnakepitError as problem:
        raise ValueError(problem.message) from problem


def _one_of(*words: str) -> Callable[[object], str]:
    def read(raw: object) -> str:
        if raw not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return str(raw)

    return read


def _ports(raw: object) -> tuple[int, int]:
    match = re.fullmatch(r"\s*([0-9]{1,5})\s*-\s*([0-9]{1,5})\s*", str(raw))
    if match is None or not 1024 <= int(match[1]) < int(match[2]) <= 65535:
        raise ValueError("expected two ports from 1024 to 65535, such as '20000-29999'")
    return int(match[1]), int(match[2])


def _networks(raw: object) -> tuple[str, ...]:
    words = raw if isinstance(raw, list) else str(raw).split(",")
    return tuple(str(_network(str(word).strip())) for word in words)


def _network(word: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        raise ValueError(f"{word!r} is no address or network such as 127.0.0.1 or 10.0.0.0/24") from None


def _environment(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise ValueError("expected a map of names to values")
    for name, value in raw.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is no name of an environment variable")
        if isinstance(value, dict | list) or value is None:
            raise ValueError(f"the value of {name} must be a text or a number")
        if is_reserved(name):
            raise ValueError(f"{name} is set by the scheduler")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in raw.items()}


def _database(raw: object) -> str:
    text = _text(raw)
    if not re.match(r"(sqlite|postgresql)(\+[a-z0-9]+)?://", text):
        raise ValueError("expected an address such as sqlite:////var/lib/snakepit.db or postgresql://user@host/name")
    return text


def _url(raw: object) -> str:
    text = _text(raw)
    if not re.fullmatch(r"https?://[^\s/]+[^\s]*", text):
        raise ValueError("expected an address such as https://snakepit.example.org")
    return text


# ----------------------------------------------------------------------------------------------------------------- keys


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value == "" else str(value)


def _without_password(value: object) -> str:
    return re.sub(r"://([^/@:]*):[^/]*@", r"://\1:***@", str(value)) or "SQLite in the data root"


def _names_only(value: Mapping[str, str]) -> str:
    return ", ".join(f"{name}=***" for name in value) or "-"


@dataclass(frozen=True, slots=True)
class Key:
    attribute: str
    read: Callable[[object], Any]
    show: Callable[[Any], str] = _plain


KEYS: dict[str, Key] = {
    "interface": Key("interface", _interface),
    "port": Key("port", _whole(1, 65535)),
    "logLevel": Key("log_level", _whole(0, 2)),
    "debugHttp": Key("debug_http", _flag),
    "dataRoot": Key("data_root", _path),
    "database": Key("database", _database, _without_password),
    "openRegistration": Key("open_registration", _flag),
    "externalUrl": Key("external_url", _url),
    "trustedProxies": Key("trusted_proxies", _networks, lambda found: ", ".join(found) or "-"),
    "tokenTTL": Key("token_ttl_s", _time(60), render_duration),
    "tokenMaxAge": Key("token_max_age_s", _time(60), render_duration),
    "hashRounds": Key("hash_rounds", _whole(4, 20)),
    "endpoint": Key("endpoint", _text),
    "clientKey": Key("client_key", _text),
    "clientCert": Key("client_cert", _text),
    "lxdTimeout": Key("lxd_timeout_s", _time(0.1), render_duration),
    "lxdBridge": Key("lxd_bridge", _text),
    "lxdDomain": Key("lxd_domain", _text),
    "containerTimeout": Key("container_timeout_s", _time(0.1), render_duration),
    "pollInterval": Key("poll_interval_s", _time(0.01), render_duration),
    "maxParallelPrep": Key("max_parallel_prep", _whole(1, 1000)),
    "maxPrepDuration": Key("max_prep_duration_s", _time(0.1), render_duration),
    "maxStartDuration": Key("max_start_duration_s", _time(0.1), render_duration),
    "queryLimit": Key("query_limit", _whole(1, 100000)),
    "until": Key("until", _one_of("all", "any")),
    "workerEnv": Key("worker_env", _environment, _names_only),
    "portRange": Key("port_range", _ports, lambda ports: f"{ports[0]}-{ports[1]}"),
    "slots": Key("slots", _whole(0, 100000)),
    "reserveCpus": Key("reserve_cpus", _whole(0, 10000)),
    "reserveMem": Key("reserve_mem_bytes", _size),
    "maxLogSize": Key("max_log_size_bytes", _size),
    "maxSnapshotSize": Key("max_snapshot_size_bytes", _size),
    "maxUserSize": Key("max_user_size_bytes", _size),
    "maxGroupSize": Key("max_group_size_bytes", _size),
    "keepSrc": Key("keep_src_s", _time(), render_duration),
    "keepJobs": Key("keep_jobs_s", _kept, render_duration),
    "keepAudit": Key("keep_audit_s", _kept, render_duration),
    "keepTrash": Key("keep_trash_s", _time(), render_duration),
    "fileOrigins": Key("file_origins", _flag),
}
RENAMED = {"mountRoot": "dataRoot"}
OBSOLETE = {
    "debugJobFS": "mounts are no longer debugged this way",
    "tokenSecret": "tokens are random now and need no secret",
    "tokenSecretPath": "tokens are random now and need no secret",
    "mountUid": "the owner of the data root is taken",
    "keepDoneDuration": "use keepJobs",
}
ENVIRONMENT = {
    "SNAKEPIT_INTERFACE": "interface",
    "SNAKEPIT_PORT": "port",
    "SNAKEPIT_DEBUG_HTTP": "debugHttp",
}


def _known(raw: Mapping[str, Any], place: object, warnings: list[str], mistakes: list[str]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for key, value in raw.items():
        if key in OBSOLETE:
            warnings.append(f"{place}: {key} is obsolete and ignored: {OBSOLETE[key]}")
        elif key in RENAMED:
            warnings.append(f"{place}: {key} is now called {RENAMED[key]}")
            known.setdefault(RENAMED[key], value)
        elif key in KEYS:
            known[key] = value
        else:
            near = difflib.get_close_matches(str(key), [*KEYS, *RENAMED], n=1)
            mistakes.append(f"{place}: unknown key {str(key)!r}" + (f", did you mean {near[0]}?" if near else ""))
    return known


def _values(written: Mapping[str, Any], origins: Mapping[str, str], mistakes: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, raw in written.items():
        try:
            values[KEYS[key].attribute] = KEYS[key].read(raw)
        except ValueError as problem:
            shown = "" if key in ("database", "workerEnv") else f" (it is {raw!r})"
            mistakes.append(f"{origins[key]}: {key}: {problem}{shown}")
    return values


def _merge(written: dict[str, Any], origins: dict[str, str], new: Mapping[str, Any], origin: str) -> None:
    for key, value in new.items():
        if value is not None:
            written[key], origins[key] = value, origin


def _read(path: Path, mistakes: list[str]) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise ConfigError(f"{place}: not valid YAML: {getattr(problem, 'problem', None) or problem}") from problem
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected lines of the form 'key: value'")
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    for node in (top, *(value for _, value in top.value)):
        mistakes += [f"{path}:{place}: the key {key!r} is given twice" for key, place in _given_twice(node)]
    return content


def _given_twice(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """YAML lets the last one win without a word."""
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                yield key.value, key.start_mark.line + 1
            seen.add(key.value)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "/")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


assert {key.attribute for key in KEYS.values()} | {"warnings", "origins"} == {item.name for item in fields(Settings)}
