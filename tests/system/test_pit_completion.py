"""Completion in the real shells, typed at a prompt; and what zsh does to a request."""

from pathlib import Path

from tests.pitting import Pit
from tests.serving import PROGRAMS
from tests.terminal import Terminal


def shell(pit: Pit, *command: str) -> Terminal:
    path = f"{PROGRAMS}:/usr/bin:/bin"
    return Terminal(*command, cwd=pit.project, env=pit.environment(PATH=path, PS1="ready> "))


def test_bash_completes_at_the_prompt(pit: Pit) -> None:
    with shell(pit, "bash", "--norc", "--noprofile", "-i") as terminal:
        terminal.expect("ready> ")
        terminal.type('eval "$(pit completion bash)"; echo lo""aded\n')
        terminal.expect("loaded")
        terminal.type("pit show node:n\t\n")
        terminal.expect("Node name: n0")
        terminal.type("pit sho\tme\n")
        terminal.expect("Username:         tilman")
        terminal.type("exit\n")
        assert terminal.end() == 0


def test_zsh_completes_and_leaves_requests_alone(pit: Pit) -> None:
    with shell(pit, "zsh", "-f", "-i") as terminal:
        terminal.expect("ready> ")
        terminal.type('autoload -Uz compinit; compinit -u; eval "$(pit completion zsh)"; echo lo""aded\n')
        terminal.expect("loaded")
        terminal.type("pit show node:n\t\n")
        terminal.expect("Node name: n0")
        terminal.type("pit run T [] -s -l -d 'echo from $JOB_NUMBER'\n")
        terminal.expect('Resources:  "[]"')
        terminal.expect("[worker 0] from ")
        terminal.type("exit\n")
        assert terminal.end() == 0


def test_stop_offers_what_is_not_over_and_log_more_than_the_status_shows(pit: Pit) -> None:
    ended = [pit.submit("true") for _ in range(22)]
    pit.ok("wait", *map(str, ended))
    lives = pit.submit("sleep 300")
    for command in ("stop", "cancel", "exec", "shell", "forward"):
        assert pit.ok("__complete", "--", command, "").split() == [str(lives)]
    for command in ("log", "rerun"):
        assert {int(each) for each in pit.ok("__complete", "--", command, "").split()} >= {lives, *ended}
    pit.ok("stop", str(lives))


def test_fish_completes(pit: Pit, tmp_path: Path) -> None:
    script = tmp_path / "try.fish"
    script.write_text(
        "pit completion fish | source\n"
        "complete -C 'pit stat'\n"
        "complete -C 'pit show node:n'\n"
        "complete -C 'pit run --until a'\n"
    )
    with shell(pit, "fish", "--no-config", str(script)) as terminal:
        assert terminal.end() == 0
        assert terminal.shown.split() == ["status", "node:n0", "all", "any"]
