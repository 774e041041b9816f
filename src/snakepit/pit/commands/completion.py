"""`pit completion`: what a shell needs to complete `pit`. The scripts ask `pit __complete`, so they never grow old."""

from __future__ import annotations

from snakepit.client import files
from snakepit.client.client import DONE, Client, account_of_environment
from snakepit.errors import SnakepitError
from snakepit.pit import render
from snakepit.pit.arguments import Argument, Arguments, Command, UsageError

BASH = """\
_pit_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" words cur
    read -ra words <<< "$line"
    [[ "$line" == *" " ]] && words+=("")
    cur="${words[-1]}"
    local IFS=$'\\n'
    COMPREPLY=($(pit __complete -- "${words[@]:1}" 2>/dev/null))
    # bash breaks words at colons; what stands before the last one is there already
    if [[ "$cur" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*:}"}"}")
    fi
    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[:=] ]] && compopt -o nospace
    return 0
}
complete -o default -F _pit_complete pit
"""
ZSH = """\
#compdef pit
# Requests like [2:gtx1070] are patterns for zsh: noglob lets them pass as they are.
alias pit='noglob pit'
_pit() {
    local -a found
    found=("${(@f)$(pit __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -Q -S '' -- ${found:#}
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _pit pit
"""
FISH = """\
complete -c pit -f -a '(pit __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
NOT_OVER = ("stop", "exec", "shell", "forward")  # commands for jobs that are not over
LATEST = 100
FILE_COMMANDS = ("ls", "cat", "pull", "push", "mkdir", "delete", "du", "mount")
LISTS = {"node": "nodes", "user": "users", "group": "groups", "alias": "aliases"}


def completion(arguments: Arguments) -> int:
    shell = arguments.word("shell")
    if shell not in SHELLS:
        raise UsageError(f'no completion for "{shell}" (expected bash, zsh or fish)')
    render.out(SHELLS[shell])
    return 0


def complete(arguments: Arguments) -> int:
    words = arguments.rest or [""]
    try:
        found = candidates(words[:-1], words[-1])
    except (SnakepitError, KeyError, TypeError):
        return 0  # whoever presses Tab wants no error message
    render.out("".join(f"{render.clean(each)}\n" for each in found))
    return 0


def candidates(before: list[str], word: str) -> list[str]:
    """What the last word could become."""
    from snakepit.pit.main import FILES, every_command, find

    given = [each for each in before if not each.startswith("-")]
    if not given:
        names = [name for command in every_command() for name in (command.name, *command.aliases)]
        return [name for name in sorted(names) if name.startswith(word)]
    if given[0] not in FILES:
        return []
    command = find(given[0])
    if word.startswith("-"):
        return [option.long for option in command.options if option.long.startswith(word)]
    choices = next((o.choices for o in command.options if before[-1] in (o.short, o.long) and o.metavar), None)
    if choices is not None:
        return [choice for choice in choices if choice.startswith(word)]
    return [each for each in _words(command, len(given) - 1, word) if each.startswith(word)]


def _words(command: Command, place: int, word: str) -> list[str]:
    if not command.arguments:
        return []
    name = command.arguments[min(place, len(command.arguments) - 1)].name
    if name == "shell":
        return list(SHELLS)
    if name == "jobNumber":
        return _job_numbers(over=command.name not in NOT_OVER)
    if name == "node":
        return [f"node:{each}" for each in _ids("nodes")]
    if name == "group":
        return _ids("groups")
    return _entities(command, word) if name == "entity" else []


def _entities(command: Command, word: str) -> list[str]:
    type, colon, _ = word.partition(":")
    if colon:
        ids = _job_numbers() if type == "job" else _ids(LISTS[type])
        return [f"{type}:{each}" for each in ids]
    lists = ["me", "jobs", *LISTS.values()] if command.name == "show" else []
    if command.name in FILE_COMMANDS:
        return ["home", "shared", "job:", "user:", "group:"]
    return [*lists, "job:", *(f"{each}:" for each in LISTS)]


def _ids(what: str) -> list[str]:
    return [str(each) for each in _client().call("GET", f"/{what}", limit_s=3)]


def _job_numbers(over: bool = True) -> list[str]:
    """All that are not over, and of those that are the latest."""
    client = _client()
    jobs = [job for group in client.call("GET", "/jobs/status", limit_s=3).values() for job in group]
    if not over:
        return [str(job["id"]) for job in jobs if job["state"] < DONE]
    jobs += client.call("GET", f"/jobs?limit={LATEST}", limit_s=3)
    return list(dict.fromkeys(str(job["id"]) for job in jobs))


def _client() -> Client:
    """As it stands in the files: nobody is asked anything here."""
    connection, account = files.load_connection(), account_of_environment() or files.load_account()
    if account is None:
        raise SnakepitError("not logged in")
    return Client(connection.url, account.user, account.token, connection.certificate)


COMMANDS = (
    Command(
        "completion",
        "prints the completion script of a shell",
        completion,
        (Argument("shell"),),
        examples=(
            'eval "$(pit completion bash)"   # in ~/.bashrc',
            'eval "$(pit completion zsh)"    # in ~/.zshrc, after compinit',
            "pit completion fish > ~/.config/fish/completions/pit.fish",
        ),
        notes="""
The one for zsh also makes pit a noglob command, so that requests need no quotes.""",
    ),
    Command("__complete", "candidates for a word", complete, rest="words"),
)
