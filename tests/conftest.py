"""Fixtures for all rooms, and two rules: what lies below tests/system is marked `system`, and where SNAKEPIT_NO_SKIPS
is set (continuous integration) a skipped system test fails the run."""

import errno
import os
import signal
import socket
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres

SYSTEM = Path(__file__).parent / "system"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(SYSTEM):
            item.add_marker(pytest.mark.system)


class SkipsAreFailures:
    """A system test that did not run proves nothing, so its skip is reported as the failure it is."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome = yield
        report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
        if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("system"):
            report.outcome = "failed"
            report.longrepr = f"skipped, which SNAKEPIT_NO_SKIPS does not allow: {report.longrepr}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A module that skips itself while it is collected (importorskip) counts as skipped too."""
    outcome = yield
    report: pytest.CollectReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.outcome == "skipped" and no_skips() and collector.path.is_relative_to(SYSTEM):
        report.outcome = "failed"
        report.longrepr = f"skipped, which SNAKEPIT_NO_SKIPS does not allow: {report.longrepr}"


def no_skips() -> bool:
    return bool(os.environ.get("SNAKEPIT_NO_SKIPS"))


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and so would all that the tests start.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if no_skips():
        config.pluginmanager.register(SkipsAreFailures())


CLAIMED: deque[int] = deque()  # handles
MOST_CLAIMED = 32


def pick_free_port() -> int:
    """One that no other run of these tests on this machine picks before it is used."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0snakepit-test-port-{port}")
        except OSError as problem:
            claim.close()
            if problem.errno != errno.EADDRINUSE:
                raise
            continue
        CLAIMED.append(claim.detach())
        if len(CLAIMED) > MOST_CLAIMED:
            os.close(CLAIMED.popleft())
        return port


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at the moment."""
    return pick_free_port()


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    """An empty directory for the data of one service."""
    root = tmp_path / "data"
    root.mkdir()
    return root


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A real PostgreSQL server of this test run, on a free loopback port."""
    if (missing := Postgres.missing()) is not None:
        pytest.skip(missing)
    server = Postgres.start(tmp_path_factory.mktemp("postgres"), pick_free_port())
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> str:
    """The address of a database on it that the whole run shares; `postgres.fresh_database()` gives one of one's own."""
    return postgres.fresh_database("shared")
