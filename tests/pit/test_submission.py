"""What `pit run` makes of its words."""

import shlex
import subprocess
from pathlib import Path

import pytest

from snakepit.pit import submission
from snakepit.pit.arguments import Arguments, UsageError, parse
from snakepit.pit.commands.run import COMMANDS


def read(*line: str) -> Arguments:
    return parse(COMMANDS[0], list(line))


def title_and_request(*line: str) -> tuple[str, str]:
    arguments = read(*line)
    return submission.title_and_request(arguments, submission.script(arguments))


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_title_and_request_are_kept_as_written() -> None:
    assert title_and_request("My task", "2:[8:gtx1070]") == ("My task", "2:[8:gtx1070]")


def test_the_default_request_stands_in_a_file() -> None:
    Path(".pitrequest.txt").write_text("  [gpu] \n")
    assert title_and_request("My task") == ("My task", "[gpu]")


def test_no_request_at_all_is_an_error() -> None:
    with pytest.raises(UsageError, match="No resources requested from cluster"):
        title_and_request("My task")


def test_flags_stand_for_a_request_and_the_command_for_a_title() -> None:
    title, request = title_and_request("--gpus", "2", "--vram", "24G", "--procs", "2", "--", "python", "train.py")
    assert (title, request) == ("python train.py", "2:[2:gpu/24G]")


def test_a_long_command_makes_a_short_title() -> None:
    title, _ = title_and_request("--cpus", "1", "--", "echo", "x" * 100)
    assert len(title) == 40
    assert title.endswith("…")


def test_a_request_alone_before_a_command_is_a_request() -> None:
    assert title_and_request("[gpu]", "--", "nvidia-smi") == ("nvidia-smi", "[gpu]")


def test_flags_and_a_request_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="not both"):
        title_and_request("T", "[]", "--gpus", "1")


@pytest.mark.parametrize("request_", ["[]", "[gpu", "2:[gpu]", "2[gpu]", " 2 : [gpu]"])
def test_a_request_beside_flags_is_no_title(request_: str) -> None:
    with pytest.raises(UsageError) as caught:
        title_and_request("--gpus", "1", "--mem", "2G", request_, "-s", "-d", "true")
    assert caught.value.message.endswith(f"Leave out {request_}, or --gpus, --mem (and give a title)")


@pytest.mark.parametrize("title", ["2 GPUs", "3: third try", "gpu[0]", "12"])
def test_a_title_beside_flags_may_begin_with_a_number(title: str) -> None:
    assert title_and_request("--gpus", "1", title, "-d", "true") == (title, "[gpu]")


def test_a_long_title_is_refused() -> None:
    with pytest.raises(UsageError, match="40 characters max"):
        title_and_request("x" * 41, "[]")


def test_a_wrong_request_points_at_the_character() -> None:
    with pytest.raises(UsageError) as caught:
        title_and_request("T", "2[gpu]")
    assert "\n  2[gpu]\n   ^" in caught.value.message


@pytest.mark.parametrize(("left", "meant"), [("g", "[…]"), ("[a100", "[a100|…]"), ("2:{gpu}", "2:[gpu]")])
def test_what_a_shell_left_of_a_request_is_recognised(left: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        title_and_request("T", left)
    assert f"\n  {left}\n" in caught.value.message
    assert caught.value.message.endswith(f"^\nPerhaps your shell changed it. Quote it, as in: pit run … '{meant}'")


@pytest.mark.parametrize("line", [("-i", "{}"), ("{}", "--", "true"), ("-i", "T", "{}"), ("T", "{}", "-d", "true")])
@pytest.mark.parametrize(
    ("wrong", "under"), [("[gpu", "[gpu"), ("2:[gpu", "2:[gpu"), ("2[gpu]", "2"), ("2:gpu]", "2:")]
)
def test_a_mistyped_request_is_no_title(line: tuple[str, ...], wrong: str, under: str) -> None:
    with pytest.raises(UsageError) as caught:
        title_and_request(*(wrong if word == "{}" else word for word in line))
    assert f"\n  {wrong}\n  {' ' * len(under)}^" in caught.value.message


def test_a_request_without_a_title_is_said_to_be_one() -> None:
    with pytest.raises(UsageError, match=r"missing argument <title>: \[gpu\] looks like a clusterRequest"):
        title_and_request("[gpu]", "-d", "true")


@pytest.mark.parametrize("title", ["Look", "2 GPUs", "gpu[0]", "3d scan"])
def test_a_title_alone_is_one_where_the_request_can_be_left_out(title: str) -> None:
    assert title_and_request("-i", title) == (title, "[]")


def test_flags_without_a_command_take_the_directory_for_a_title(tmp_path: Path) -> None:
    assert title_and_request("--gpus", "1") == (tmp_path.name[:40], "[gpu]")


def test_wrong_flags_are_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--gpus"):
        title_and_request("--gpus", "many", "--", "x")


def test_a_request_with_blanks_may_come_in_several_words() -> None:
    assert title_and_request("T", "[2:gpu,", "a100]")[1] == "[2:gpu, a100]"


@pytest.mark.parametrize("words", [["a b", "$HOME", "`id`", "';rm"], ["", "*", "\n", "日本"], ["-x", "--", "!"]])
def test_words_after_two_dashes_reach_bash_as_they_are(words: list[str]) -> None:
    script = submission.script(read("T", "[]", "--", "printf", r"%s\0", *words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words
    assert shlex.split(script)[2:] == words


def test_only_one_thing_can_be_run() -> None:
    with pytest.raises(UsageError, match="only one of"):
        submission.script(read("T", "[]", "-d", "a", "-e", "b"))
    with pytest.raises(UsageError, match="nothing follows"):
        submission.script(read("T", "[]", "--"))
    with pytest.raises(UsageError, match="nothing in the command"):
        submission.script(read("T", "[]", "-d", "  "))


def test_variables_come_from_files_flags_and_here(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("vars").write_text("# comment\nexport A=1\nB = 'two words'\n\nC=x=y\n")
    monkeypatch.setenv("HERE", "from here")
    arguments = read("T", "[]", "--env-file", "vars", "--env", "A=over", "--env", "HERE", "--env", "E=a=b")
    assert submission.environment(arguments) == {
        "A": "over",
        "B": "two words",
        "C": "x=y",
        "HERE": "from here",
        "E": "a=b",
    }


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("1A=x", "no name"),
        ("=x", "no name"),
        ("NOT_SET_HERE", "not set here"),
        ("JOB_NUMBER=3", "JOB_NUMBER is set by the scheduler"),
    ],
)
def test_wrong_variables_are_refused(word: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        submission.environment(read("T", "[]", "--env", word))


def test_a_wrong_line_of_a_file_is_named() -> None:
    Path("vars").write_text("A=1\nnonsense\n")
    with pytest.raises(UsageError, match="vars, line 2"):
        submission.environment(read("T", "[]", "--env-file", "vars"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2h", 7200), ("1h 30m", 5400), ("1.5h", 5400), ("1d2s", 86402)]
)
def test_time_limits_are_read(text: str, seconds: int) -> None:
    assert submission.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2 fortnights", "-1", "0", "1h30", "99999999d"])
def test_wrong_time_limits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--time-limit"):
        submission.seconds(text)
