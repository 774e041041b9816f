"""The `snakepit` command: what an admin types on the head. An error is one line; those of a configuration
are one each, and exit with 2."""

from __future__ import annotations

import errno
import getpass
import sys
from pathlib import Path
from typing import Any

import click

from snakepit import __version__, config
from snakepit.errors import BadRequest, ConfigError, SnakepitError

CONFIG = click.option("--config", "config_file", metavar="FILE", help="configuration file")
DATA = click.option("--data", metavar="DIR", help="data root")


class Commands(click.Group):
    """Speaks a line of each thing of ours that is wrong."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ConfigError as problem:
            for line in problem.message.splitlines():
                click.echo(f"snakepit: {line}", err=True)
            raise SystemExit(problem.exit_code) from problem
        except SnakepitError as problem:
            click.echo(f"snakepit: {problem.message}", err=True)
            raise SystemExit(problem.exit_code) from problem
        except OSError as problem:
            if problem.errno == errno.EPIPE:
                raise  # click's own affair
            place = f"{problem.filename}: " if problem.filename else ""
            click.echo(f"snakepit: {place}{problem.strerror or problem}", err=True)
            raise SystemExit(1) from problem


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="%(version)s")
def main() -> None:
    """Runs the Snakepit service on this machine and looks after it."""


@main.command()
@CONFIG
@DATA
@click.option("--interface", metavar="ADDRESS", help="address to listen on")
@click.option("--port", metavar="N", help="port to listen on (80 as root, else 8080)")
@click.option("--no-local-node", is_flag=True, help="do not register this machine as node n0")
def serve(
    config_file: str | None, data: str | None, interface: str | None, port: str | None, no_local_node: bool
) -> None:
    """Run the service until SIGTERM or Ctrl-C; jobs run on."""
    settings = load(config_file, data, interface=interface, port=port)
    from snakepit.admin.serve import run

    run(settings, local_node=not no_local_node)


@main.command()
@CONFIG
@DATA
@click.option("--admin", metavar="NAME", required=True, help="the first admin")
@click.option("--fullname", default="", metavar="TEXT")
@click.option("--email", default="", metavar="TEXT")
def init(config_file: str | None, data: str | None, admin: str, fullname: str, email: str) -> None:
    """Prepare the data root and make an admin.

    The password is asked for, or taken from $SNAKEPIT_PASSWORD or the first line of standard input.
    """
    settings = load(config_file, data)
    from snakepit.admin.init import make_admin

    make_admin(settings, admin, read_password(admin), fullname, email)
    click.echo(f"{admin} is an administrator of the cluster in {settings.data_root}")


@main.group("config")
def config_group() -> None:
    """Look at the configuration."""


@config_group.command("check")
@CONFIG
@DATA
def check(config_file: str | None, data: str | None) -> None:
    """Read the configuration; print every effective value and where it comes from."""
    settings = load(config_file, data)
    rows = config.effective(settings)
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}")


@main.command("install-service")
@CONFIG
@click.option("--output", default="/etc/systemd/system/snakepit.service", metavar="FILE", help="- for standard output")
def install_service(config_file: str | None, output: str) -> None:
    """Write a systemd unit; restarting or stopping it does not end jobs."""
    from snakepit.admin.unit import own_program, unit

    text = unit(own_program(), Path(config_file).absolute() if config_file else None)
    if output == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text)
    except OSError as problem:
        raise ConfigError(f"{output} cannot be written: {problem.strerror}") from problem
    click.echo(f"Wrote {output}. Now: systemctl daemon-reload && systemctl enable --now {Path(output).stem}")


@main.command()
@CONFIG
@DATA
def doctor(config_file: str | None, data: str | None) -> None:
    """Say what works on this machine, and how to mend what does not."""
    settings = load(config_file, data)
    from snakepit.admin.doctor import examine

    findings = examine(settings)
    for finding in findings:
        click.echo(f"{'ok ' if finding.good else '-- '} {finding.what}: {finding.words}")
    if any(finding.needed and not finding.good for finding in findings):
        raise SystemExit(1)


def load(config_file: str | None, data: str | None, **more: str | None) -> config.Settings:
    settings = config.load(config_file, {"dataRoot": data, **more})
    for warning in settings.warnings:
        click.echo(f"snakepit: {warning}", err=True)
    return settings


def read_password(user: str) -> str:
    given = config.password_from_environment()
    if given is None and not sys.stdin.isatty():
        given = sys.stdin.readline().rstrip("\r\n")
        if not given:
            raise BadRequest("no password: type it, or give it by $SNAKEPIT_PASSWORD or on standard input")
    if given is None:
        given = getpass.getpass(f"New password of {user}: ")
        if getpass.getpass("The same again: ") != given:
            raise BadRequest("the two passwords differ")
    return given


if __name__ == "__main__":
    main()
