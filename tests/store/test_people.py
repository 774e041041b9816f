"""Users, groups, tokens, aliases."""

import pytest

from snakepit import errors
from snakepit.store import aliases, groups, jobs, meta, tokens, users
from snakepit.store.database import Store
from snakepit.store.rows import GroupRow, TokenRow, UserRow
from tests.store.building import NOW, after, new_job, submit, together


def test_a_user_is_found_as_it_was_made(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    made = store.write_now(users.insert, "anna", "Anna Ä. Ω", "a@b.c", b"\x00hash", True, ["vision"])
    assert made == UserRow("anna", "Anna Ä. Ω", "a@b.c", b"\x00hash", True, frozenset(), ("vision",))
    assert store.read_now(users.find, "anna") == made
    assert store.read_now(users.find, "ann") is None


def test_the_first_user_becomes_admin_and_the_second_does_not(store: Store) -> None:
    assert store.write_now(users.insert, "anna").admin
    assert not store.write_now(users.insert, "bert").admin


def test_of_two_first_users_at_once_exactly_one_becomes_admin(store: Store) -> None:
    made = together(store, lambda s: s.write(users.insert, "anna"), lambda s: s.write(users.insert, "bert"))
    assert sorted(user.admin for user in made) == [False, True]


def test_of_two_users_with_one_name_at_once_the_second_is_refused_alone(store: Store) -> None:
    first, second, third = together(
        store,
        lambda s: s.write(users.insert, "anna", "First"),
        lambda s: s.write(users.insert, "anna", "Second"),
        lambda s: s.write(users.insert, "bert"),
    )
    assert isinstance(second, errors.Conflict)
    assert store.read_now(users.all) == [first, third]


def test_a_user_with_an_unknown_share_is_not_made_at_all(store: Store) -> None:
    with pytest.raises(errors.NotFound, match="Group not found: vision"):
        store.write_now(users.insert, "anna", autoshare=["vision"])
    assert store.read_now(users.ids) == []


def test_fields_of_a_user_are_changed_one_by_one(store: Store) -> None:
    for name in ("audio", "vision"):
        store.write_now(groups.insert, name, name.title())
    store.write_now(users.insert, "anna", "Anna", "a@b.c", b"1", autoshare=["audio"])
    store.write_now(users.update, "anna", email="new@b.c", autoshare=["vision"])
    changed = store.read_now(users.get, "anna")
    assert (changed.fullname, changed.email, changed.autoshare) == ("Anna", "new@b.c", ("vision",))
    store.write_now(users.update, "anna", autoshare=[])
    assert store.read_now(users.get, "anna").autoshare == ()


def test_changing_what_no_user_has_is_refused_by_name(store: Store) -> None:
    store.write_now(users.insert, "anna")
    with pytest.raises(errors.BadRequest, match="shoe"):
        store.write_now(users.update, "anna", shoe=44)
    with pytest.raises(errors.NotFound):
        store.write_now(users.update, "bert", email="x")


def test_the_last_admin_neither_goes_nor_steps_down(store: Store) -> None:
    store.write_now(users.insert, "anna")
    store.write_now(users.insert, "bert")
    with pytest.raises(errors.WrongState, match="last admin"):
        store.write_now(users.update, "anna", admin=False)
    with pytest.raises(errors.WrongState, match="last admin"):
        store.write_now(users.delete, "anna")
    store.write_now(users.update, "bert", admin=True)
    store.write_now(users.update, "anna", admin=False)
    assert store.read_now(users.admins) == 1
    store.write_now(users.delete, "anna")
    assert store.read_now(users.ids) == ["bert"]


def test_two_admins_who_leave_at_once_leave_one_behind(store: Store) -> None:
    store.write_now(users.insert, "anna", admin=True)
    store.write_now(users.insert, "bert", admin=True)
    told = together(store, lambda s: s.write(users.delete, "anna"), lambda s: s.write(users.delete, "bert"))
    assert told[0] is None
    assert isinstance(told[1], errors.WrongState)


def test_membership_can_be_said_twice(store: Store) -> None:
    store.write_now(users.insert, "anna")
    store.write_now(groups.insert, "vision", "Vision")
    for _ in range(2):
        store.write_now(users.set_member, "anna", "vision", True)
    assert store.read_now(users.get, "anna").groups == {"vision"}
    assert store.read_now(groups.members, "vision") == ["anna"]
    for _ in range(2):
        store.write_now(users.set_member, "anna", "vision", False)
    assert store.read_now(groups.members, "vision") == []
    with pytest.raises(errors.NotFound):
        store.write_now(users.set_member, "anna", "audio", True)
    with pytest.raises(errors.NotFound):
        store.write_now(users.set_member, "bert", "vision", True)


def test_jobs_survive_their_user(store: Store) -> None:
    store.write_now(users.insert, "boss")
    store.write_now(users.insert, "anna")
    job = submit(store, "anna")
    store.write_now(users.delete, "anna")
    assert store.read_now(users.has_jobs, "anna")
    assert not store.read_now(users.has_jobs, "ann")
    assert store.read_now(jobs.get, job).user == "anna"
    assert [row.id for row in store.read_now(jobs.of_user, "anna")] == [job]


def test_a_group_takes_its_memberships_and_shares_with_it(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    store.write_now(users.insert, "anna", autoshare=["vision"])
    store.write_now(users.set_member, "anna", "vision", True)
    job = store.write_now(jobs.insert, new_job(groups=("vision",)), NOW)[0]
    store.write_now(groups.delete, "vision")
    anna = store.read_now(users.get, "anna")
    assert (anna.groups, anna.autoshare, store.read_now(jobs.get, job).groups) == (frozenset(), (), ())
    with pytest.raises(errors.NotFound):
        store.write_now(groups.delete, "vision")


def test_groups_are_made_once_and_renamed(store: Store) -> None:
    store.write_now(groups.insert, "vision", "Vision")
    with pytest.raises(errors.Conflict):
        store.write_now(groups.insert, "vision", "Other")
    store.write_now(groups.update, "vision", "Seeing")
    assert store.read_now(groups.find, "vision") == GroupRow("vision", "Seeing")
    assert store.read_now(groups.ids) == ["vision"]
    with pytest.raises(errors.NotFound):
        store.write_now(groups.update, "audio", "Hearing")


def test_a_token_lives_on_while_used_but_never_beyond_its_death(store: Store) -> None:
    store.write_now(users.insert, "anna")
    id = store.write_now(tokens.insert, b"hash", "anna", "laptop", NOW, after(10), after(100))
    store.write_now(tokens.renew, id, after(5), after(50))
    found = store.read_now(tokens.find_by_hash, b"hash")
    assert found == TokenRow(id, "anna", "laptop", NOW, after(5), after(50), after(100))
    store.write_now(tokens.renew, id, after(60), after(1000))
    assert store.read_now(tokens.list_of_user, "anna")[0].expires_at == after(100)
    assert store.read_now(tokens.find_by_hash, b"has") is None


def test_tokens_go_by_id_by_user_by_age_and_with_their_user(store: Store) -> None:
    store.write_now(users.insert, "boss")
    store.write_now(users.insert, "anna")
    first, second, third = (
        store.write_now(tokens.insert, bytes([n]), "anna", "", NOW, after(n), after(n)) for n in (1, 2, 3)
    )
    with pytest.raises(errors.NotFound):
        store.write_now(tokens.delete, first, "boss")
    store.write_now(tokens.delete, first, "anna")
    assert store.write_now(tokens.delete_of_user, "anna", third) == 1
    assert [token.id for token in store.read_now(tokens.list_of_user, "anna")] == [third]
    assert store.write_now(tokens.purge_expired, after(2)) == 0
    assert store.write_now(tokens.purge_expired, after(3)) == 1
    store.write_now(tokens.insert, b"x", "anna", "", NOW, after(9), after(9))
    store.write_now(users.delete, "anna")
    assert store.read_now(tokens.find_by_hash, b"x") is None
    assert second != third


def test_a_token_for_nobody_is_refused(store: Store) -> None:
    with pytest.raises(errors.Conflict):
        store.write_now(tokens.insert, b"x", "ghost", "", NOW, after(9), after(9))


def test_aliases_are_made_changed_and_removed(store: Store) -> None:
    store.write_now(aliases.insert, "gtx1070", "GeForce GTX 1070")
    with pytest.raises(errors.Conflict):
        store.write_now(aliases.insert, "gtx1070", "Other")
    store.write_now(aliases.update, "gtx1070", "NVIDIA GeForce GTX 1070")
    assert store.read_now(aliases.all) == {"gtx1070": "NVIDIA GeForce GTX 1070"}
    assert store.read_now(aliases.find, "gtx") is None
    store.write_now(aliases.delete, "gtx1070")
    with pytest.raises(errors.NotFound):
        store.write_now(aliases.delete, "gtx1070")
    with pytest.raises(errors.NotFound):
        store.write_now(aliases.update, "x", "y")


def test_the_cluster_id_is_made_once_and_every_start_counts(store: Store, url: str) -> None:
    made = store.write_now(meta.cluster_id)
    assert len(made) == 16
    assert store.write_now(meta.next_epoch) == 1
    again = Store.open(url)
    try:
        assert again.write_now(meta.cluster_id) == made
        assert again.write_now(meta.next_epoch) == 2
    finally:
        again.close()


def test_small_values_are_kept_by_name(store: Store) -> None:
    assert store.read_now(meta.get, "colour") is None
    store.write_now(meta.put, "colour", "red")
    store.write_now(meta.put, "colour", "blue")
    assert store.read_now(meta.get, "colour") == "blue"
