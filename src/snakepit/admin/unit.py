"""The systemd unit of the service. Jobs outlive it: only the main process is ended, never the control group."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

UNIT = """\
[Unit]
Description=Snakepit: schedules machine-learning jobs
Wants=network-online.target
After=network-online.target postgresql.service

[Service]
Type=exec
ExecStart={command}
# Jobs run on while the service is stopped, restarted or upgraded.
KillMode=process
OOMPolicy=continue
Restart=on-failure
RestartSec=5
# 2: the configuration is wrong; trying again does not mend it.
RestartPreventExitStatus=2
Delegate=yes
TasksMax=infinity
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""


def unit(program: Path, config_file: Path | None = None) -> str:
    words = [str(program), "serve", *(["--config", str(config_file)] if config_file else [])]
    return UNIT.format(command=" ".join(_quoted(word) for word in words))


def own_program() -> Path:
    """The `snakepit` that is running."""
    called = Path(sys.argv[0])
    if called.name == "snakepit" and called.exists():
        return called.absolute()
    return Path(shutil.which("snakepit") or Path(sys.executable).parent / "snakepit").absolute()


def _quoted(word: str) -> str:
    """As systemd reads it: % and $ are special even in quotes."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if plain != word or any(c in word for c in " '\t") else word
