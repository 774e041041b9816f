"""Reading command lines."""

import pytest

from snakepit.pit.arguments import Argument, Arguments, Command, Option, UsageError, help_of, parse


def command(rest: str = "") -> Command:
    options = (
        Option("-p --private", "a switch"),
        Option("-n --lines", "a number", "count"),
        Option("--env", "many", "K=V", many=True),
        Option("--until", "a choice", "which", choices=("all", "any")),
    )
    arguments = (Argument("title"), Argument("more", required=False, many=True))
    return Command("run", "runs", lambda _: 0, arguments, options, aliases=("put",), rest=rest)


def read(*line: str, rest: str = "") -> Arguments:
    return parse(command(rest), list(line))


def test_options_and_words_come_in_any_order() -> None:
    for line in (
        ["t", "-p", "x", "-n", "5"],
        ["-n5", "-p", "t", "x"],
        ["-pn", "5", "t", "x"],
        ["t", "x", "--lines=5", "-p"],
    ):
        arguments = read(*line)
        assert (arguments.word("title"), arguments.words("more")) == ("t", ["x"])
        assert (arguments.on("private"), arguments.number("lines")) == (True, 5)


def test_a_value_may_look_like_an_option() -> None:
    assert read("t", "--lines", "-5").text("lines") == "-5"


def test_only_options_made_for_it_are_given_twice() -> None:
    assert read("t", "--env", "a=1", "--env", "b=2").texts("env") == ["a=1", "b=2"]
    with pytest.raises(UsageError, match="--lines is given twice"):
        read("t", "-n", "1", "--lines", "2")


def test_what_follows_two_dashes_is_left_alone() -> None:
    assert read("-p", "t", "--", "python", "--lines", "--", "x", rest="command").rest == [
        "python",
        "--lines",
        "--",
        "x",
    ]
    assert read("t", "--", "-p").words("more") == ["-p"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "missing argument <title>"),
        (["t", "--private=yes"], "takes no value"),
        (["t", "--lines"], "needs a value"),
        (["t", "--line", "5"], "did you mean --lines"),
        (["t", "-px"], "unknown option -x in -px"),
        (["t", "--until", "never"], "expected all or any"),
    ],
)
def test_a_wrong_line_is_told_what_is_wrong(line: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read(*line)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", "9" * 30, "²"])
def test_a_number_is_a_number(text: str) -> None:
    with pytest.raises(UsageError, match="whole number"):
        read("t", f"--lines={text}").number("lines")


def test_help_shows_usage_options_and_examples() -> None:
    text = help_of(command("command args..."))
    assert text.startswith("Usage: pit run|put [options] <title> [more...] [-- command args...]\n\nruns\n\nOptions:\n")
    assert "  -n, --lines <count>  a number\n" in text
    assert "      --env <K=V>      many\n" in text
