"""Who may do what."""

from __future__ import annotations

import pytest

from snakepit.core import access
from snakepit.core.access import JobRights, Person
from snakepit.errors import Forbidden

ANNA = Person("anna")
ANN = Person("ann")
ROOT = Person("root", admin=True)
MATE = Person("mate", groups=frozenset({"students"}))
JOB = JobRights("anna", ("students",))


def test_an_id_is_never_matched_by_its_beginning() -> None:
    with pytest.raises(Forbidden):
        access.read_job(ANN, JOB)
    with pytest.raises(Forbidden):
        access.see_user(ANN, "anna")
    with pytest.raises(Forbidden):
        access.use_group_data(MATE, "student")


def test_sharers_read_and_stop_but_do_not_change() -> None:
    access.read_job(MATE, JOB)
    access.stop_job(MATE, JOB)
    with pytest.raises(Forbidden, match="Only its owner"):
        access.change_job(MATE, JOB)


def test_owner_and_administrators_may_all() -> None:
    for person in (ANNA, ROOT):
        access.read_job(person, JOB)
        access.stop_job(person, JOB)
        access.change_job(person, JOB)


def test_sharers_go_inside_only_where_they_were_let_in() -> None:
    for person in (ANNA, ROOT):
        access.enter_job(person, JOB)
    with pytest.raises(Forbidden, match="those he lets in"):
        access.enter_job(MATE, JOB)
    access.enter_job(MATE, JobRights(JOB.owner, JOB.groups, exec_groups=MATE.groups))


def test_nobody_makes_himself_an_administrator() -> None:
    access.change_user(ANNA, "anna")
    with pytest.raises(Forbidden):
        access.change_user(ANNA, "anna", makes_admin=True)
    access.change_user(ROOT, "anna", makes_admin=True)
    with pytest.raises(Forbidden):
        access.administer(ANNA)


def test_restricted_cards_are_for_members_administrators_not_exempt() -> None:
    assert access.use_resource((), ())
    assert access.use_resource(("students",), ("students", "staff"))
    assert not access.use_resource((), ("staff",))
