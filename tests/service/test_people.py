"""Accounts, signing in, tokens, groups."""

import asyncio
from datetime import timedelta
from pathlib import Path

import bcrypt
import httpx
import pytest

from snakepit.service.auth import Limiter
from snakepit.store import users
from tests.service.house import PASSWORD, House, done, open_house, submit
from tests.waiting import wait_until


def message(answer: httpx.Response) -> str:
    text: str = answer.json()["message"]
    return text


def test_hello_says_here_i_am(house: House) -> None:
    answer = house.client.get("/hello")
    assert (answer.status_code, answer.text) == (200, "Here I am")


def test_the_first_user_becomes_admin_and_the_second_does_not(admin: httpx.Client, anna: httpx.Client) -> None:
    assert admin.get("/users/~").json()["admin"] is True
    assert anna.get("/users/~").json() == {
        "id": "anna",
        "fullname": "Anna",
        "email": "anna@example.org",
        "admin": False,
    }


def test_two_that_register_one_name_at_once_do_not_both_win(house: House) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def register(number: int) -> int:
        body = {"fullname": str(number), "email": "x@y", "password": PASSWORD}
        return httpx.put(f"{house.url}/users/twin", json=body, timeout=30).status_code

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(register, range(6))) == [200, 403, 403, 403, 403, 403]


@pytest.mark.parametrize("name", ["Anna", "1anna", "an-na", "a" * 33, "an%20na"])
def test_a_malformed_user_id_is_refused(house: House, name: str) -> None:
    answer = house.client.put(f"/users/{name}", json={"password": PASSWORD})
    assert answer.status_code == 400
    assert "Wrong user id format" in message(answer)


def test_an_existing_user_is_not_registered_again(house: House, anna: httpx.Client) -> None:
    assert house.client.get("/users/anna/exists").status_code == 200
    answer = house.client.put("/users/anna", json={"password": PASSWORD})
    assert (answer.status_code, message(answer)) == (403, "User already existing")


def test_a_user_needs_a_password_of_at_most_72_bytes(house: House) -> None:
    assert house.client.put("/users/carl", json={"fullname": "C"}).status_code == 400
    answer = house.client.put("/users/carl", json={"password": "ä" * 40})
    assert (answer.status_code, message(answer)) == (400, "The password is too long (72 bytes max)")
    assert house.client.get("/users/carl/exists").status_code == 404


def test_a_new_password_has_8_characters_or_more(house: House, admin: httpx.Client, anna: httpx.Client) -> None:
    short, enough = "ä" * 7, "ä" * 8
    refusals = [
        house.client.put("/users/carl", json={"password": short}),
        house.client.put("/users/carl", json={"password": ""}),
        admin.put("/users/carl", json={"password": short}),
        admin.post("/users/anna", json={"verification": PASSWORD, "password": short}),
        anna.post("/users/~", json={"verification": PASSWORD, "password": short}),
    ]
    words = "The password is too short (8 characters at least)"
    assert [(each.status_code, message(each)) for each in refusals] == [(400, words)] * 5
    assert house.client.get("/users/carl/exists").status_code == 404
    assert anna.get("/users/~").status_code == 200
    assert admin.put("/users/carl", json={"password": enough}).status_code == 200


def test_a_shorter_password_from_before_still_signs_in(house: House) -> None:
    hashed = bcrypt.hashpw(b"short", bcrypt.gensalt(4))
    inserted = house.service.store.write(users.insert, "olduser", "", "", hashed, False)
    asyncio.run_coroutine_threadsafe(inserted, house.events).result(10)
    assert house.client.post("/users/olduser/authenticate", json={"password": "short"}).status_code == 200


def test_nobody_makes_himself_admin(house: House, anna: httpx.Client, admin: httpx.Client) -> None:
    assert house.client.put("/users/carl", json={"password": PASSWORD, "admin": True}).status_code == 403
    assert anna.post("/users/~", json={"verification": PASSWORD, "admin": True}).status_code == 403
    assert admin.put("/users/second", json={"password": PASSWORD, "admin": True}).status_code == 200
    assert admin.get("/users/second").json()["admin"] is True


def test_the_last_admin_stays_one(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False) as house:
        only = house.user("root")
        demoted = only.post("/users/~", json={"verification": PASSWORD, "admin": False})
        assert (demoted.status_code, only.delete("/users/~").status_code) == (412, 412)
        assert "last admin" in message(demoted)


def test_closed_registration_leaves_adding_to_admins(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False, openRegistration=False) as house:
        admin = house.user("root")
        refused = house.client.put("/users/anna", json={"password": PASSWORD})
        assert (refused.status_code, "Registration is closed" in message(refused)) == (403, True)
        assert admin.put("/users/anna", json={"password": PASSWORD}).status_code == 200


def test_signing_in_needs_the_right_password_of_a_known_user(house: House, anna: httpx.Client) -> None:
    assert house.client.post("/users/anna/authenticate", json={"password": "wrong"}).status_code == 400
    assert house.client.post("/users/nobody/authenticate", json={"password": "x"}).status_code == 404
    assert house.client.post("/users/anna/authenticate", json={}).status_code == 400
    assert house.client.post("/users/anna/authenticate", json={"password": "x" * 100}).status_code == 400


@pytest.mark.parametrize(
    "header", [{}, {"X-Auth-Token": "unknown"}, {"X-Auth-Token": ""}, {"Authorization": "Bearer x"}]
)
@pytest.mark.parametrize(
    "path", ["/jobs", "/users", "/users/~", "/nodes", "/groups", "/aliases", "/shared/simplefs/stats/"]
)
def test_without_a_good_token_everything_is_401_with_words(house: House, header: dict[str, str], path: str) -> None:
    answer = house.client.get(path, headers=header)
    assert answer.status_code == 401
    assert message(answer) in ("No token", "Invalid token")


def test_a_bearer_token_works_too(house: House, anna: httpx.Client) -> None:
    token = anna.headers["X-Auth-Token"]
    assert house.client.get("/users/~", headers={"Authorization": f"Bearer {token}"}).json()["id"] == "anna"


def test_users_see_and_change_only_themselves(anna: httpx.Client, bob: httpx.Client, admin: httpx.Client) -> None:
    assert anna.get("/users").status_code == 403
    assert anna.get("/users/bob").status_code == 403
    assert anna.post("/users/bob", json={"verification": PASSWORD, "email": "x"}).status_code == 403
    assert anna.delete("/users/bob").status_code == 403
    assert {"anna", "bob", "root"} <= set(admin.get("/users").json())
    assert admin.get("/users/nobody").status_code == 404


def test_a_change_needs_the_password_of_whoever_asks(anna: httpx.Client) -> None:
    missing = anna.post("/users/~", json={"fullname": "A"})
    assert (missing.status_code, message(missing)) == (403, "Only verified access")
    wrong = anna.post("/users/~", json={"verification": "wrong", "fullname": "A"})
    assert (wrong.status_code, message(wrong)) == (403, "Verification failed")
    assert anna.post("/users/~", json={"verification": PASSWORD, "fullname": "Anna A."}).status_code == 200
    assert anna.get("/users/~").json()["fullname"] == "Anna A."


def test_a_password_change_ends_every_token_of_the_user(house: House) -> None:
    dora = house.user("dora")
    named = dora.post("/users/~/tokens", json={"name": "script"}).json()["token"]
    assert dora.post("/users/~", json={"verification": PASSWORD, "password": "another-horse-1"}).status_code == 200
    assert dora.get("/users/~").status_code == 401
    assert house.with_token(named).get("/users/~").status_code == 401
    assert house.user("dora", "another-horse-1").get("/users/~").status_code == 200


def test_a_token_lives_while_it_is_used_up_to_a_maximum_age(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False, tokenTTL="1h", tokenMaxAge="3h") as house:
        used, unused = house.user("root"), house.user("root")
        for minutes in (50, 100, 150, 175):
            house.later = timedelta(minutes=minutes)
            assert used.get("/users/~").status_code == 200
        expired = unused.get("/users/~")
        assert (expired.status_code, message(expired)) == (401, "Token expired")
        house.later = timedelta(minutes=181)
        assert used.get("/users/~").status_code == 401


def test_named_tokens_are_listed_without_their_text_and_can_be_ended(house: House, anna: httpx.Client) -> None:
    made = anna.post("/users/~/tokens", json={"name": "nightly", "ttl": "2d"}).json()
    script = house.with_token(made["token"])
    assert script.get("/users/~").json()["id"] == "anna"
    listed = [token for token in anna.get("/users/~/tokens").json() if token["name"] == "nightly"]
    assert [set(token) for token in listed] == [{"id", "name", "created", "used", "expires"}]
    assert anna.delete(f"/users/~/tokens/{made['id']}").status_code == 200
    assert script.get("/users/~").status_code == 401
    assert anna.delete(f"/users/~/tokens/{made['id']}").status_code == 404
    assert anna.post("/users/~/tokens", json={"name": "x", "ttl": "soon"}).status_code == 400


def test_logging_out_ends_this_token_and_no_other(house: House, anna: httpx.Client) -> None:
    second = house.user("anna")
    assert second.post("/users/~/logout").status_code == 200
    assert second.get("/users/~").status_code == 401
    assert anna.get("/users/~").status_code == 200


def test_failed_logins_are_limited_per_user_and_it_says_for_how_long(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False) as house:
        house.user("root")
        codes = [
            house.client.post("/users/root/authenticate", json={"password": "wrong"}).status_code
            for _ in range(Limiter.per_user_and_address)
        ]
        assert set(codes) == {400}
        limited = house.client.post("/users/root/authenticate", json={"password": PASSWORD})
        assert limited.status_code == 429
        assert 1 <= int(limited.headers["retry-after"]) <= 60
        house.later = timedelta(seconds=61)
        assert house.client.post("/users/root/authenticate", json={"password": PASSWORD}).status_code == 200


def test_failed_logins_are_limited_per_address_too() -> None:
    now = [0.0]
    limiter = Limiter(lambda: now[0])
    for number in range(Limiter.per_address):
        limiter.attempt(f"user{number}", "192.0.2.1")
    with pytest.raises(Exception, match="Too many failed login attempts"):
        limiter.attempt("another", "192.0.2.1")
    limiter.attempt("another", "192.0.2.2")
    now[0] = 61
    limiter.attempt("another", "192.0.2.1")


def test_whole_networks_of_ipv6_count_as_one_address() -> None:
    limiter = Limiter(lambda: 0.0)
    for number in range(Limiter.per_address):
        limiter.attempt(f"user{number}", f"2001:db8::{number + 1:x}")
    with pytest.raises(Exception, match="Too many failed login attempts"):
        limiter.attempt("another", "2001:db8::ffff:1")
    limiter.attempt("another", "2001:db8:0:1::1")


def forged_logins(house: House) -> set[int]:
    return {
        house.client.post(
            "/users/root/authenticate", json={"password": "wrong"}, headers={"X-Forwarded-For": f"192.0.2.{number}"}
        ).status_code
        for number in range(Limiter.per_user_and_address + 1)
    }


def test_an_address_is_believed_from_a_trusted_proxy_only(tmp_path: Path) -> None:
    with open_house(tmp_path / "direct", node=False) as house:
        house.user("root")
        assert forged_logins(house) == {400, 429}
    with open_house(tmp_path / "behind", node=False, trustedProxies="10.0.0.0/8, 127.0.0.1") as house:
        house.user("root")
        assert forged_logins(house) == {400}


def test_registrations_of_strangers_are_limited_per_address(tmp_path: Path) -> None:
    with open_house(tmp_path, node=False) as house:
        root = house.user("root")
        house.service.registrations.per_address = 3
        codes = [house.client.put(f"/users/u{number}", json={"password": PASSWORD}).status_code for number in range(4)]
        assert codes == [200, 200, 429, 429]
        limited = house.client.put("/users/late", json={"password": PASSWORD})
        assert "Too many registrations from this address, try again in" in limited.json()["message"]
        assert 1 <= int(limited.headers["retry-after"]) <= 600
        assert root.put("/users/hired", json={"password": PASSWORD}).status_code == 200
        house.later = timedelta(seconds=601)
        assert house.client.put("/users/late", json={"password": PASSWORD}).status_code == 200


def test_nobody_locks_a_colleague_out_by_typing_his_name() -> None:
    limiter = Limiter(lambda: 0.0)
    for _ in range(Limiter.per_user_and_address):
        limiter.attempt("anna", "192.0.2.1")
    with pytest.raises(Exception, match="Too many failed login attempts"):
        limiter.attempt("anna", "192.0.2.1")
    limiter.attempt("anna", "192.0.2.2")
    limiter.succeeded("anna", "192.0.2.2")
    for number in range(Limiter.per_user - Limiter.per_user_and_address):
        limiter.attempt("anna", f"198.51.100.{number}")
    with pytest.raises(Exception, match="Too many failed login attempts"):
        limiter.attempt("anna", "192.0.2.3")


def test_groups_are_made_by_admins_and_seen_by_all(admin: httpx.Client, anna: httpx.Client, house: House) -> None:
    assert anna.put("/groups/vision", json={"title": "Vision"}).status_code == 403
    assert admin.put("/groups/vision", json={"title": "Vision"}).status_code == 200
    again = admin.put("/groups/vision", json={"title": "Vision"})
    assert (again.status_code, message(again)) == (403, "Group already existing")
    assert admin.put("/groups/nlp", json={}).status_code == 400
    assert anna.get("/groups").json() == ["vision"]
    assert anna.get("/groups/vision").json() == {"id": "vision", "title": "Vision"}
    bad = anna.get("/groups/Vi0n")
    assert (bad.status_code, "Wrong group id format" in message(bad)) == (400, True)
    assert anna.get("/groups/unknown").status_code == 404
    assert admin.post("/groups/vision", json={"title": "Computer vision"}).status_code == 200
    assert admin.post("/groups/unknown", json={"title": "x"}).status_code == 404
    assert (house.root / "groups" / "vision").is_dir()
    assert admin.delete("/groups/vision").status_code == 200
    assert admin.delete("/groups/vision").status_code == 404
    assert not (house.root / "groups" / "vision").exists()


def test_memberships_count_from_the_next_request_on(admin: httpx.Client, anna: httpx.Client) -> None:
    admin.put("/groups/speech", json={"title": "Speech"})
    assert anna.get("/groups/speech/simplefs/content/").status_code == 403
    assert admin.put("/users/anna/groups/speech").status_code == 200
    assert admin.put("/users/anna/groups/speech").status_code == 200
    assert anna.get("/users/~").json()["groups"] == ["speech"]
    assert anna.get("/groups/speech/simplefs/content/").status_code == 200
    assert admin.delete("/users/anna/groups/speech").status_code == 200
    assert anna.get("/groups/speech/simplefs/content/").status_code == 403
    assert admin.put("/users/anna/groups/unknown").status_code == 404
    assert anna.put("/users/anna/groups/speech").status_code == 403


def test_one_can_remove_oneself(house: House) -> None:
    frida = house.user("frida")
    job, home = submit(frida), house.root / "home" / "frida"
    done(frida, job)
    assert frida.delete("/users/frida").status_code == 200
    assert (frida.get("/users/~").status_code, home.exists()) == (401, False)
    assert house.client.get("/users/frida/exists").status_code == 404
    assert house.user("root").get(f"/jobs/{job}").json()["user"] == "frida"


def test_a_removed_user_leaves_no_running_job_no_home_and_no_token(house: House, admin: httpx.Client) -> None:
    emil = house.user("emil")
    job, home = submit(emil, "sleep 100"), house.root / "home" / "emil"
    wait_until(lambda: admin.get(f"/jobs/{job}").json()["state"] == 4)
    assert home.is_dir()
    assert admin.delete("/users/emil").status_code == 200
    assert not home.exists()
    assert emil.get("/users/~").status_code == 401
    assert done(admin, job)["outcome"] == "stopped"
    recreated = house.client.put("/users/emil", json={"password": PASSWORD})
    assert (recreated.status_code, "Only admins can re-create" in message(recreated)) == (403, True)
    assert admin.put("/users/emil", json={"password": PASSWORD}).status_code == 200
