"""What commands accept, as plain values, and one function that reads a command line by them.

Why not click: importing it takes 33 ms, three starts of Python, and `pit status` may take four in all. The same values
make the help texts and the shell completion.
"""

from __future__ import annotations

from collections.abc import Callable

from snakepit.errors import SnakepitError


class UsageError(SnakepitError):
    exit_code = 2


class Option:
    """`-n, --lines <count>`; without a metavar it is a switch. `many` may be given several times."""

    __slots__ = ("choices", "help", "key", "long", "many", "metavar", "short")

    def __init__(
        self, names: str, help: str, metavar: str = "", many: bool = False, choices: tuple[str, ...] = ()
    ) -> None:
        words = names.split()
        self.short = next((word for word in words if not word.startswith("--")), "")
        self.long = next(word for word in words if word.startswith("--"))
        self.key = self.long[2:]
        self.help, self.metavar, self.many, self.choices = help, metavar, many, choices

    @property
    def shown(self) -> str:
        names = f"{self.short}, {self.long}" if self.short else f"    {self.long}"
        return f"{names} <{self.metavar}>" if self.metavar else names


class Argument:
    """A word by its place: `<name>`, `[name]` when it may be left out, `<name...>` when there may be several."""

    __slots__ = ("many", "name", "required")

    def __init__(self, name: str, required: bool = True, many: bool = False) -> None:
        self.name, self.required, self.many = name, required, many

    @property
    def shown(self) -> str:
        inner = self.name + ("..." if self.many else "")
        return f"<{inner}>" if self.required else f"[{inner}]"


class Arguments:
    """What was given, by name."""

    __slots__ = ("_options", "_words", "rest")

    def __init__(
        self, options: dict[str, list[str]], words: dict[str, list[str]], rest: list[str] | None = None
    ) -> None:
        self._options, self._words, self.rest = options, words, rest

    def on(self, option: str) -> bool:
        return option in self._options

    def text(self, option: str) -> str | None:
        given = self._options.get(option)
        return given[-1] if given else None

    def texts(self, option: str) -> list[str]:
        return self._options.get(option, [])

    def number(self, option: str) -> int | None:
        text = self.text(option)
        if text is not None and not (text.isdigit() and text.isascii() and len(text) < 16):
            raise UsageError(f"--{option} {text}: expected a whole number of at least 0")
        return None if text is None else int(text)

    def word(self, name: str) -> str:
        """An argument that is there, or "" for one that was left out."""
        given = self._words.get(name)
        return given[0] if given else ""

    def words(self, name: str) -> list[str]:
        return self._words.get(name, [])


class Command:
    """A verb of `pit`. `rest` names what follows a `--`, where a command takes such."""

    __slots__ = ("aliases", "arguments", "examples", "name", "notes", "options", "rest", "run", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        run: Callable[[Arguments], int],
        arguments: tuple[Argument, ...] = (),
        options: tuple[Option, ...] = (),
        aliases: tuple[str, ...] = (),
        examples: tuple[str, ...] = (),
        notes: str = "",
        rest: str = "",
    ) -> None:
        self.name, self.summary, self.run, self.aliases = name, summary, run, aliases
        self.arguments, self.options, self.rest = arguments, options, rest
        self.examples, self.notes = examples, notes

    @property
    def usage(self) -> str:
        parts = ["|".join((self.name, *self.aliases))]
        parts += ["[options]"] if self.options else []
        parts += [argument.shown for argument in self.arguments]
        parts += [f"[-- {self.rest}]"] if self.rest else []
        return " ".join(parts)


JSON = Option("--json", "prints JSON")
YES = Option("-y --yes", "does not ask")
MINE = Option("--mine", "all jobs of mine that this applies to")


def parse(command: Command, line: list[str]) -> Arguments:
    """Options and words may come in any order; after `--` come words only (or the rest, for commands with one)."""
    options: dict[str, list[str]] = {}
    words: list[str] = []
    rest: list[str] | None = None
    left = list(line)
    while left:
        word = left.pop(0)
        if word == "--":
            if command.rest:
                rest = left
            else:
                words += left
            break
        if word.startswith("--"):
            _long(command, word, left, options)
        elif word.startswith("-") and len(word) > 1:
            _short(command, word, left, options)
        else:
            words.append(word)
    return Arguments(options, _placed(command, words), rest)


def _long(command: Command, word: str, left: list[str], options: dict[str, list[str]]) -> None:
    name, equals, value = word.partition("=")
    option = next((option for option in command.options if option.long == name), None)
    if option is None:
        raise UsageError(f"unknown option {name}{_did_you_mean(name, [o.long for o in command.options])}")
    if not option.metavar:
        if equals:
            raise UsageError(f"option {name} takes no value")
        _put(option, "", options)
    else:
        _put(option, value if equals else _value(option, left), options)


def _short(command: Command, word: str, left: list[str], options: dict[str, list[str]]) -> None:
    """`-l`, `-pl`, `-n 5` and `-n5`."""
    letters = word[1:]
    while letters:
        option = next((option for option in command.options if option.short == "-" + letters[0]), None)
        if option is None:
            raise UsageError(f"unknown option -{letters[0]}" + (f" in {word}" if len(word) > 2 else ""))
        letters = letters[1:]
        if option.metavar:
            _put(option, letters or _value(option, left), options)
            return
        _put(option, "", options)


def _value(option: Option, left: list[str]) -> str:
    if not left:
        raise UsageError(f"option {option.long} needs a value: {option.shown.strip()}")
    return left.pop(0)


def _put(option: Option, value: str, options: dict[str, list[str]]) -> None:
    if option.choices and value not in option.choices:
        raise UsageError(f"{option.long} {value}: expected {' or '.join(option.choices)}")
    given = options.setdefault(option.key, [])
    if given and option.metavar and not option.many:
        raise UsageError(f"option {option.long} is given twice")
    given.append(value)


def _placed(command: Command, words: list[str]) -> dict[str, list[str]]:
    placed: dict[str, list[str]] = {}
    left = list(words)
    for argument in command.arguments:
        if not left and argument.required:
            raise UsageError(f"missing argument {argument.shown} (pit {command.usage})")
        placed[argument.name], left = (left, []) if argument.many else (left[:1], left[1:])
    if left:
        raise UsageError(f'unexpected argument "{left[0]}" (pit {command.usage})')
    return placed


def _did_you_mean(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, known, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def help_of(command: Command) -> str:
    """As the seed's: usage, summary, options, examples, notes."""
    lines = [f"Usage: pit {command.usage}", "", command.summary, "", "Options:"]
    rows = [(option.shown, option.help) for option in command.options]
    rows.append(("-h, --help", "output usage information"))
    lines += two_columns(rows)
    if command.examples:
        lines += ["", "Examples:", "", *(f"  $ {example}" for example in command.examples)]
    if command.notes:
        lines += ["", *(f"  {line}".rstrip() for line in command.notes.strip().splitlines())]
    return "\n".join(lines) + "\n"


def two_columns(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left.ljust(width)}  {right}" for left, right in rows]
