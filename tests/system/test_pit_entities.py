"""Users, groups, nodes and aliases through `pit`; completion; the library."""

import json
import os
import subprocess

import pytest

from snakepit import Client
from snakepit.errors import NotFound
from tests.pitting import Pit
from tests.serving import PASSWORD, PROGRAMS


def test_the_node_of_the_seed_can_be_declared(pit: Pit) -> None:
    pit.ok("set", "node:n0", "resources=2:GeForce GTX 1070")
    pit.ok("add", "alias:gtx1070", "name=GeForce GTX 1070")
    assert pit.ok("show", "nodes") == "n0\n"
    lines = pit.ok("show", "node:n0").splitlines()
    assert lines[:2] == ["Node name: n0", "State:     ONLINE"]
    assert lines[3:6] == [
        "Resources: ",
        '  0: "GeForce GTX 1070" aka "gtx1070" (cuda 0) - declared',
        '  1: "GeForce GTX 1070" aka "gtx1070" (cuda 1) - declared',
    ]
    assert pit.ok("show", "aliases") == "gtx1070\n"
    assert pit.ok("show", "alias:gtx1070") == "Alias: gtx1070\nFor:   GeForce GTX 1070\n"
    assert json.loads(pit.ok("show", "alias:gtx1070", "--json")) == {"id": "gtx1070", "name": "GeForce GTX 1070"}


def test_a_value_keeps_its_equals_signs(pit: Pit) -> None:
    pit.ok("add", "group:mathe", "title=a=b=c")
    assert pit.ok("get", "group:mathe", "title") == "a=b=c\n"
    pit.ok("set", "group:mathe", "title=x = y")
    assert pit.ok("show", "group:mathe") == "Name:  mathe\nTitle: x = y\n"


def test_groups_have_members_and_resources(pit: Pit) -> None:
    pit.ok("set", "node:n0", "resources=2:GeForce GTX 1070")
    pit.ok("add", "group:students", "title=Students")
    pit.ok("add-group", "user:tilman", "students")
    pit.ok("add-group", "node:n0:1", "students")
    assert "Groups:           students\n" in pit.ok("show", "me")
    assert "(cuda 1) - declared - Groups: students\n" in pit.ok("show", "node:n0")
    pit.ok("set", "me", "autoshare=students", PIT_PASSWORD=PASSWORD)
    assert pit.ok("get", "me", "autoshare") == "students\n"
    number = pit.submit("true")
    assert "Groups:        students\n" in pit.ok("show", f"job:{number}")
    pit.ok("wait", str(number))
    pit.ok("remove-group", f"job:{number}", "students")
    pit.ok("remove-group", "node:n0:1", "students")
    pit.ok("set", "me", "autoshare=", PIT_PASSWORD=PASSWORD)
    assert "Groups" not in pit.ok("show", f"job:{number}")
    assert "Groups" not in pit.ok("show", "node:n0")
    assert "answer it with -y" in pit.fails("rm", "group:students")
    pit.ok("rm", "-y", "group:students")
    assert "students" not in pit.ok("show", "groups")


def test_an_admin_makes_users(pit: Pit) -> None:
    assert "PIT_NEW_PASSWORD" in pit.fails("add", "user:anna", "fullname=Anna", "email=anna@example.org")
    pit.ok("add", "user:anna", "fullname=Anna", "email=anna@example.org", PIT_NEW_PASSWORD="pass-of-anna")
    assert pit.ok("show", "users").split() == ["anna", "tilman"]
    pit.ok("set", "user:anna", "admin=yes", PIT_PASSWORD=PASSWORD)
    assert "Is administrator: yes\n" in pit.ok("show", "user:anna")
    pit.ok("passwd", "anna", PIT_PASSWORD=PASSWORD, PIT_NEW_PASSWORD="another-of-anna")
    pit.ok("rm", "-y", "user:anna")
    assert pit.ok("show", "users").split() == ["tilman"]


def test_what_is_missing_is_asked_for_on_a_terminal(pit: Pit) -> None:
    with pit.terminal("add", "user:berta") as terminal:
        terminal.expect("Full name: ")
        terminal.type("Berta\n")
        terminal.expect("E-Mail address: ")
        terminal.type("b@example.org\n")
        terminal.expect("New password: ")
        terminal.type("pass-of-berta\n")
        terminal.expect("Reinput a same one to confirm it: ")
        terminal.type("pass-of-berta\n")
        assert terminal.end() == 0
    with pit.terminal("add", "group:asked") as terminal:
        terminal.expect("Group title: ")
        terminal.type("Asked for\n")
        assert terminal.end() == 0
    with pit.terminal("add", "alias:asked") as terminal:
        terminal.expect("Exact resource name: ")
        terminal.type("Some Card\n")
        assert terminal.end() == 0
    with pit.terminal("set", "me", "fullname=Tilman") as terminal:
        terminal.expect("Own password for verification: ")
        terminal.type(PASSWORD + "\n")
        assert terminal.end() == 0
    assert pit.ok("get", "user:berta", "fullname") == "Berta\n"
    assert pit.ok("get", "group:asked", "title") == "Asked for\n"


def test_nodes_can_be_removed_and_added_under_another_name(pit: Pit) -> None:
    twice = pit.run("add", "node:n7", "endpoint=local:")
    assert (twice.returncode, "local: is node n0 already" in twice.stderr) == (1, True)
    pit.ok("rm", "-y", "node:n0")
    pit.ok("add", "node:n7", "endpoint=local:", "resources=1:Special Card", "slots=3", "isolation=none")
    assert "Isolation: none" in pit.ok("show", "node:n7")
    assert pit.ok("get", "node:n7", "slots") == "3\n"
    pit.ok("rm", "-y", "node:n7")
    pit.ok("add", "node:n0", "endpoint=local:")
    assert pit.ok("show", "nodes") == "n0\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["add", "user:x", "password=secret123"], 2, "can be read by everybody"),
        (["set", "me", "password=secret123"], 2, "pit passwd"),
        (["add", "user:x", "shoesize=9"], 2, 'unknown property "shoesize"'),
        (["add", "job:1"], 2, 'Unknown entity type "job"'),
        (["set", "me", "nonsense"], 2, "is no assignment"),
        (["set", "me"], 2, "missing argument"),
        (["get", "me", "shoesize"], 1, 'has no property "shoesize"'),
        (["show", "user:nobodyhere"], 1, "Command failed: "),
        (["add", "group:UPPER", "title=x"], 1, "Command failed: "),
        (["show", "user:../nodes"], 1, "Command failed: "),
        (["drain", "node:nowhere"], 1, "Command failed: "),
        (["add-group", "user:tilman:1", "x"], 2, "Indices not allowed for user entities"),
        (["set", "node:n0", "isolation=maybe"], 2, "isolation=maybe: expected one of auto, sandbox, none"),
        (["add", "node:n9", "endpoint=local:", "isolation=maybe"], 2, "isolation=maybe: expected one of"),
        (["set", "node:n0", "slots=abc"], 2, "slots=abc: expected a number"),
        (["show", "jobs", "limit=abc"], 2, "limit=abc: expected a number"),
        (["show", "jobs", "since=yesterdayish"], 2, "Cannot parse query parameter since"),
        (["show", "jobs", "asc=colour"], 2, "Cannot parse query parameter asc"),
        (["show", "audit", "job=x"], 2, "job=x: expected a number"),
        (["run", "x" * 41, "[]", "-s", "-d", "true"], 2, "Job title too long (40 characters max)"),
        (
            ["run", "T", "[]", "-s", "-d", "true", "--env-file", "/nope"],
            1,
            "cannot read /nope: No such file or directory",
        ),
        (["run", "T", "[]", "-s", "-d", "true", "--env", "JOB_NUMBER=3"], 2, "JOB_NUMBER is set by the scheduler"),
        (["completion", "tcsh"], 2, "bash, zsh or fish"),
    ],
)
def test_bad_input_is_a_clear_error(pit: Pit, words: list[str], code: int, says: str) -> None:
    assert says in pit.fails(*words, code=code)


def test_help_is_everywhere(pit: Pit) -> None:
    assert pit.ok() == pit.ok("--help") == pit.ok("-h")
    names = [line.split()[0].split("|")[0] for line in pit.ok().partition("Commands:\n")[2].splitlines() if line]
    for name in names[:-1]:
        assert pit.ok(name, "-h").startswith(f"Usage: pit {name}")
    assert pit.ok("-V").strip() == pit.ok("--version").strip() == "0.1.0"


def test_debugging_says_what_is_sent_and_received(pit: Pit) -> None:
    done = pit.run("--debug", "show", "nodes")
    url = pit.serving.url
    assert done.stderr.splitlines() == [f"SENDING GET {url}/nodes", "RECEIVING CODE 200", '- BODY ["n0"]']
    assert done.stdout == "n0\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pit sta", ["status"]),
        ("pit run --gp", ["--gpus"]),
        ("pit run --until a", ["all", "any"]),
        ("pit show node", ["node:", "nodes"]),
        ("pit drain node:n", ["n0"]),
        ("pit completion z", ["zsh"]),
        ("pit nonsense x", []),
    ],
)
def test_bash_completes(pit: Pit, line: str, expected: list[str]) -> None:
    words = line.replace(":", " : ").split()
    script = f"""
        eval "$(pit completion bash)"
        COMP_LINE={line!r} COMP_POINT={len(line)} COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        compopt() {{ :; }}
        _pit_complete
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env=pit.environment(PATH=path), capture_output=True, text=True)
    assert sorted(done.stdout.split()) == expected, done.stderr


def test_zsh_passes_requests_as_they_are(pit: Pit) -> None:
    assert "alias pit='noglob pit'" in pit.ok("completion", "zsh")


def test_the_library_does_what_pit_does(pit: Pit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(pit.home))
    monkeypatch.chdir(pit.project)
    with Client.from_files() as client:
        number = client.submit("From Python", "[]", "echo $GREETING; exit 5", env={"GREETING": "hello"})
        assert b"[worker 0] hello\n" in b"".join(client.log(number))
        ended = client.wait(number)
        assert (ended["outcome"], ended["exitCode"]) == ("failed", 5)
        client.remove_job(number)
        with pytest.raises(NotFound):
            client.job(number)
