"""Tables and labelled lines, column by column as the seeds have them."""

from typing import Any

import pytest

from snakepit.core.job import Outcome, State
from snakepit.pit import tables
from snakepit.pit.render import cell, clean, size, width

EXAMPLE = {
    "id": 190,
    "description": "First light",
    "user": "tilman",
    "resources": "n0[cuda 0-1]",
    "state": 4,
    "date": "2026-01-02T03:04:05.678Z",
    "since": {"days": 1, "hours": 2, "minutes": 3, "seconds": 4},
    "utilComp": 0.555,
    "utilMem": 1,
}


def job(**changes: Any) -> dict[str, Any]:
    return {**EXAMPLE, **changes}


def test_the_status_table_has_the_seeds_columns() -> None:
    assert tables.header(None) == f"   JOB   S SINCE        UC% UM% USER       {'TITLE':<40} RESOURCE"
    assert tables.row(job(), None) == f"   190 RUN 01d 02:03:04  56 100 tilman     {'First light':<40} n0[cuda 0-1]"


def test_old_jobs_have_a_date() -> None:
    assert tables.header(None, dated=True).startswith("   JOB   S DATE                     UC% UM% USER")
    assert tables.row(job(), None, dated=True).startswith("   190 RUN 2026-01-02T03:04:05.678Z  56 100 tilman")


def test_cells_are_cut_to_their_columns() -> None:
    row = tables.row(job(user="a" * 30, description="b" * 60, resources="c" * 60), None)
    assert row == f"   190 RUN 01d 02:03:04  56 100 {'a' * 10} {'b' * 40} {'c' * 30}"


@pytest.mark.parametrize("columns", [60, 80, 84, 100, 114, 200])
def test_rows_fit_the_terminal(columns: int) -> None:
    full = job(user="u" * 30, description="t" * 60, resources="r" * 300)
    assert width(tables.row(full, columns)) == columns
    assert len(tables.header(columns)) <= columns


def test_where_there_is_room_the_title_has_forty_columns() -> None:
    assert "t" * 40 + " r" in tables.row(job(description="t" * 60, resources="r" * 300), 100)


def test_groups_have_captions_only_when_they_have_jobs() -> None:
    text = tables.status({"running": [job()], "waiting": [], "done": [job(state=7)]}, None)
    assert [line[:8] for line in text.splitlines()] == ["   JOB  ", "Running:", "   190 R", "Done:", "   190 F"]
    assert tables.status({"running": [], "waiting": [], "done": []}, None) == tables.header(None) + "\n"


@pytest.mark.parametrize(
    ("days", "shown"), [(0, "00d 02:03:04"), (99, "99d 02:03:04"), (100, "100d"), (12345, "12345d")]
)
def test_since_counts_days(days: int, shown: str) -> None:
    assert tables.since({"days": days, "hours": 2, "minutes": 3, "seconds": 4}) == shown


def test_state_letters_are_those_of_the_core() -> None:
    assert tuple(state.letters for state in State) == tables.LETTERS[:8]


def test_an_ended_job_says_what_became_of_it() -> None:
    shown = {str(outcome): tables.row(job(state=7, outcome=outcome.value), None)[7:10] for outcome in Outcome}
    assert shown == {"succeeded": "FIN", "failed": "ERR", "stopped": "CAN", "timed out": "TIM", "lost": "LOS"}
    assert tables.row(job(state=7), None, dated=True)[7:10] == "FIN"  # of a service that does not say it
    assert tables.row(job(state=6, outcome="failed"), None)[7:10] == "CLN"


def test_a_title_cannot_move_the_cursor() -> None:
    row = tables.row(job(description="\x1b[2Jgone\r\n\x9b\u202eevil"), None)
    assert row.isprintable()
    assert "\\x1b[2Jgone\\r\\n\\x9b\\u202eevil" in row


def test_wide_characters_take_two_columns() -> None:
    assert width("日本") == 4
    assert cell("日本語", 5) == "日本 "
    assert cell("日本語", 5, right=True) == " 日本"
    assert width(tables.row(job(description="日本語" * 20, resources="r" * 99), 120)) == 120
    assert cell("e\u0301x", 2) == "e\u0301x"


def test_broken_bytes_are_shown_as_such() -> None:
    assert clean("a\udcffb").encode() == "a\ufffdb".encode()


def test_sizes_are_for_people() -> None:
    assert [size(n) for n in (0, 999, 1234, 56_789, 1_234_567, 5e12)] == [
        "0 B",
        "999 B",
        "1.2 kB",
        "57 kB",
        "1.2 MB",
        "5.0 TB",
    ]


def test_a_node_looks_as_in_the_seed() -> None:
    cards = [{"type": "cuda", "name": "GeForce GTX 1070", "index": i, "alias": "gtx1070"} for i in range(2)]
    body = {"id": "n0", "endpoint": "local:", "online": True, "resources": cards}
    assert tables.node(body) == (
        "Node name: n0\n"
        "State:     ONLINE\n"
        "Resources: \n"
        '  0: "GeForce GTX 1070" aka "gtx1070" (cuda 0)\n'
        '  1: "GeForce GTX 1070" aka "gtx1070" (cuda 1)\n'
    )


def test_a_node_says_what_it_has_and_which_limits_hold() -> None:
    body = {"id": "n0", "online": True, "cpus": 16, "memory": 64_000_000_000, "slots": 128, "isolation": "sandbox"}
    assert tables.node({**body, "limits": ["cpu", "mem"], "mounts": "/scratch:rw"}) == (
        "Node name: n0\n"
        "State:     ONLINE\n"
        "Cores:     16\n"
        "Memory:    64 GB\n"
        "Slots:     128\n"
        "Mounts:    /scratch:rw\n"
        "Limits:    cores, memory\n"
        "Isolation: sandbox\n"
    )
    assert "Limits:    none is enforced\n" in tables.node({**body, "limits": []})


def test_a_node_says_what_is_not_as_usual() -> None:
    card = {"type": "cuda", "name": "A", "index": 0, "declared": True, "groups": ["a", "b"]}
    body = {
        "id": "n0",
        "online": False,
        "drained": True,
        "drainReason": "new disk",
        "isolation": "none",
        "isolationProblem": "no bubblewrap",
        "resources": [card],
    }
    shown = tables.node(body)
    assert "State:     OFFLINE (drained: new disk)\n" in shown
    assert "Isolation: none (no bubblewrap)\n" in shown
    assert '  0: "A" (cuda 0) - declared - Groups: a b\n' in shown


def test_a_user_looks_as_in_the_seed() -> None:
    body = {"id": "tilman", "fullname": "Tilman Kamp", "email": "t@example.org", "admin": True}
    assert tables.user(body) == (
        "Username:         tilman\n"
        "Full name:        Tilman Kamp\n"
        "E-Mail address:   t@example.org\n"
        "Is administrator: yes\n"
    )


def test_a_job_shows_its_processes_and_its_history() -> None:
    shown = tables.job(
        job(
            state=7,
            outcome="failed",
            reason="Worker 1 ended with exit code 3",
            groups=["students"],
            provisioning="Script",
            processes=[
                {"groupIndex": 0, "processIndex": 0, "status": 0, "result": "loss 0.1"},
                {"groupIndex": 0, "processIndex": 1, "status": "?", "result": ""},
            ],
            stateChanges=[{"state": 7, "since": "2026-01-02T03:04:05.678Z", "reason": "over"}],
        )
    )
    assert "State:         FIN\n" in shown
    assert "Outcome:       failed - Worker 1 ended with exit code 3\n" in shown
    assert "Processes:     \n  [0, 0]: Status code: 0 - loss 0.1\n  [0, 1]: Status code: ?\n" in shown
    assert shown.endswith("State changes: \n  FIN: 2026-01-02T03:04:05.678Z - over\n")


def test_a_waiting_job_says_its_position() -> None:
    assert "State:        WAI (position 3)\n" in tables.job(job(state=2, schedulePosition=3))
