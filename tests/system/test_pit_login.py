"""Getting in: the talk of the seeds on a terminal, and the same answers from flags and the environment."""

import stat
from pathlib import Path

import pytest

from tests.conftest import pick_free_port
from tests.pitting import Pit
from tests.serving import PASSWORD, Serving

NEW = "a-new-password-1"


@pytest.fixture
def machine(serving: Serving, tmp_path: Path) -> Pit:
    return Pit.of(serving, tmp_path)


def test_a_first_login_is_the_talk_of_the_seed(machine: Pit) -> None:
    with machine.terminal("status") as terminal:
        terminal.expect("No user info found. Seems like a new user or first time login from this machine.\n")
        terminal.expect("Please enter an existing or new username: ")
        terminal.type("talker\n")
        terminal.expect("Found no user of that name.\n")
        terminal.expect("Do you want to register this usename (yes|no)? ")
        terminal.type("yes\n")
        terminal.expect("Full name: ")
        terminal.type("Tilman Kamp\n")
        terminal.expect("E-Mail address: ")
        terminal.type("nonsense\n")
        terminal.expect("Input valid e-mail address, please.\n")
        terminal.type("t@example.org\n")
        terminal.expect("New password: ")
        terminal.type(PASSWORD[:-1] + "x\x7f9\n")
        assert terminal.expect("Reinput a same one to confirm it: ").count("*") == len(PASSWORD) + 1
        terminal.type(PASSWORD + "\n")
        terminal.expect("   JOB   S SINCE        UC% UM% USER       TITLE")
        assert terminal.end() == 0
        assert PASSWORD not in terminal.shown
    user_file = machine.home / ".pituser.txt"
    assert user_file.read_text().splitlines()[0] == "talker"
    assert stat.S_IMODE(user_file.stat().st_mode) == 0o600
    assert machine.ok("show", "me").startswith(
        "Username:         talker\nFull name:        Tilman Kamp\nE-Mail address:   t@example.org\n"
    )


def test_who_declines_to_register_goes_unharmed(machine: Pit) -> None:
    with machine.terminal("status") as terminal:
        terminal.expect("username: ")
        terminal.type("nobodyhere\n")
        terminal.expect("(yes|no)? ")
        terminal.type("no\n")
        assert terminal.end() == 0
    assert not (machine.home / ".pituser.txt").exists()


def test_two_passwords_have_to_agree(machine: Pit) -> None:
    with machine.terminal("login", "--register", "twice", "--fullname", "T", "--email", "t@example.org") as terminal:
        for first, second, answer in (
            (PASSWORD, NEW, "The two differ"),
            ("short", "", "At least 8 characters"),
            (NEW, NEW, ""),
        ):
            terminal.expect("New password: ")
            terminal.type(first + "\n")
            if second:
                terminal.expect("confirm it: ")
                terminal.type(second + "\n")
            terminal.expect(answer)
        terminal.expect("Logged in as twice.")
        assert terminal.end() == 0


def test_a_known_user_gives_the_password_on_another_machine(serving: Serving, tmp_path: Path) -> None:
    Pit.of(serving, tmp_path / "one").registered("roamer")
    other = Pit.of(serving, tmp_path / "two")
    with other.terminal("show", "me") as terminal:
        terminal.expect("username: ")
        terminal.type("roamer\n")
        terminal.expect("Please enter password: ")
        terminal.type(PASSWORD + "\n")
        terminal.expect("Username:         roamer")
        assert terminal.end() == 0


def test_a_wrong_password_is_said_to_be_wrong(machine: Pit) -> None:
    machine.registered("wrongly")
    (machine.home / ".pituser.txt").unlink()
    said = machine.fails("status", PIT_USER="wrongly", PIT_PASSWORD="not this one")
    wrong = 'Command failed: Unable to authenticate: wrong user name or password (user "wrongly").\n'
    assert said == wrong
    assert machine.fails("login", "wrongly", PIT_PASSWORD="not this one") == wrong
    (machine.home / ".pituser.txt").write_text("wrongly\nno-such-token\n")
    assert machine.fails("status", PIT_PASSWORD="not this one") == wrong


def test_a_remembered_user_who_is_no_more_is_told_what_to_remove(machine: Pit) -> None:
    (machine.home / ".pituser.txt").write_text("neverwas\nno-such-token\n")
    said = machine.fails("status", PIT_PASSWORD=PASSWORD)
    assert said.startswith('Command failed: Unable to authenticate. If user "neverwas" is not valid anymore, remove')


def test_without_a_terminal_nothing_is_asked(machine: Pit) -> None:
    assert "answer it with PIT_USER" in machine.fails("status")
    assert "pit login --register" in machine.fails("status", PIT_USER="unknownone", PIT_PASSWORD=PASSWORD)
    assert "PIT_FULLNAME" in machine.fails("login", "--register", PIT_USER="unknownone", PIT_PASSWORD=PASSWORD)
    (machine.home / ".pitconnect.txt").unlink()
    assert "pit connect <URL>" in machine.fails("status")


def test_a_password_can_stand_in_a_file(machine: Pit, tmp_path: Path) -> None:
    machine.registered("filer")
    (machine.home / ".pituser.txt").unlink()
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    machine.ok("login", "filer", "--password-file", str(secret))
    assert machine.ok("get", "me", "id") == "filer\n"
    assert "cannot read the password file" in machine.fails("login", "filer", "--password-file", "nowhere")


def test_an_ended_token_is_renewed_where_it_was_found(machine: Pit) -> None:
    machine.registered("renewer")
    here = machine.project / ".pituser.txt"
    (machine.home / ".pituser.txt").unlink()
    here.write_text("renewer\nno-such-token\n")
    assert "Log in again: pit login" in machine.fails("status")
    machine.ok("status", PIT_PASSWORD=PASSWORD)
    assert here.read_text().splitlines()[1] != "no-such-token"
    assert not (machine.home / ".pituser.txt").exists()
    here.write_text("renewer\nno-such-token\n")
    with machine.terminal("get", "me", "id") as terminal:
        terminal.expect("Please enter password: ")
        terminal.type(PASSWORD + "\n")
        terminal.expect("renewer")
        assert terminal.end() == 0


@pytest.mark.parametrize("line", [("passwd",), ("set", "me", "fullname=R"), ("status",)])
def test_an_ended_token_is_the_same_for_every_command(machine: Pit, line: tuple[str, ...]) -> None:
    user = f"ended{line[0]}"
    machine.registered(user)
    account = machine.home / ".pituser.txt"
    account.write_text(f"{user}\nno-such-token\n")
    said = machine.fails(*line, PIT_NEW_PASSWORD=NEW)
    assert said.startswith("Command failed: The login on this machine has ended. Log in again: pit login")
    machine.ok(*line, PIT_PASSWORD=PASSWORD, PIT_NEW_PASSWORD=NEW)
    assert machine.ok("get", "me", "id") == f"{user}\n"


def test_a_token_in_the_environment_needs_no_file(machine: Pit) -> None:
    machine.registered("tokener")
    token = (machine.home / ".pituser.txt").read_text().splitlines()[1]
    (machine.home / ".pituser.txt").unlink()
    assert machine.ok("get", "me", "id", PIT_TOKEN=token) == "tokener\n"
    assert not (machine.home / ".pituser.txt").exists()


def test_the_environment_can_be_somebody_else_for_once(machine: Pit) -> None:
    machine.registered("firstone")
    kept = (machine.home / ".pituser.txt").read_text()
    machine.ok(
        "login", "--register", PIT_USER="secondone", PIT_PASSWORD=PASSWORD, PIT_FULLNAME="S", PIT_EMAIL="s@example.org"
    )
    (machine.home / ".pituser.txt").write_text(kept)
    assert machine.ok("get", "me", "id", PIT_USER="secondone", PIT_PASSWORD=PASSWORD) == "secondone\n"
    assert (machine.home / ".pituser.txt").read_text() == kept


def test_logging_out_ends_the_token(machine: Pit) -> None:
    machine.registered("leaver")
    token = (machine.home / ".pituser.txt").read_text().splitlines()[1]
    machine.ok("logout")
    assert not (machine.home / ".pituser.txt").exists()
    machine.fails("status", PIT_TOKEN=token)
    machine.ok("logout")


def test_a_new_password_takes_the_place_of_the_old(machine: Pit) -> None:
    machine.registered("changer")
    assert "PIT_NEW_PASSWORD" in machine.fails("passwd", PIT_PASSWORD=PASSWORD)
    machine.fails("passwd", PIT_PASSWORD="not this one", PIT_NEW_PASSWORD=NEW)
    machine.ok("passwd", PIT_PASSWORD=PASSWORD, PIT_NEW_PASSWORD=NEW)
    machine.ok("status")
    (machine.home / ".pituser.txt").unlink()
    machine.fails("login", "changer", PIT_PASSWORD=PASSWORD)
    secret = machine.home / "secret"
    secret.write_text(NEW)
    machine.ok("login", "changer", PIT_PASSWORD=NEW)
    machine.ok("passwd", "--password-file", str(secret), "--new-password-file", str(secret))


def test_connecting_writes_the_file_after_a_look(machine: Pit) -> None:
    path = machine.home / ".pitconnect.txt"
    path.unlink()
    machine.ok("connect", machine.serving.url + "/")
    assert path.read_text() == machine.serving.url + "\n"
    machine.ok("connect", "--here", machine.serving.url)
    assert (machine.project / ".pitconnect.txt").read_text() == machine.serving.url + "\n"
    assert "Unable to reach pit: ECONNREFUSED" in machine.fails("connect", f"http://127.0.0.1:{pick_free_port()}")
    assert "not an address" in machine.fails("connect", "ftp://x")
