"""Who runs when and where: first come first served on what is contended, each card for one at a time, and words for
every wait and every refusal."""

from collections.abc import Iterator

import pytest

from snakepit.errors import CannotFulfill, RequestSyntax, SnakepitError, WrongState
from tests.cluster import DONE, GPUS, RUNNING, WAITING, Cluster, User
from tests.waiting import wait_until

UNTIL_TOLD = "echo up; until [ -e $SHARED_DIR/{flag} ]; do sleep 0.05; done"
# Fails where another holds one of its cards: the directory of a card can be made by one only.
EXCLUSIVE = """
taken=; trap 'for card in $taken; do rmdir $card; done' EXIT
for index in ${CUDA_VISIBLE_DEVICES//,/ }; do
  mkdir "$LAB_GROUP_DIR/card-$index" || { echo "card $index is taken"; exit 9; }
  taken="$taken $LAB_GROUP_DIR/card-$index"
done
sleep 0.0$((RANDOM % 9))
"""


@pytest.fixture
def me(cluster: Cluster) -> User:
    return cluster.user("tilman", "lab")


@pytest.fixture
def flag(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Jobs that wait for it end, at the latest with the test."""
    name = f"flag-{request.node.name}"
    yield name
    (cluster.root / "shared" / name).touch()


def raise_flag(cluster: Cluster, flag: str) -> None:
    (cluster.root / "shared" / flag).touch()


def test_a_card_is_never_given_to_two_jobs_at_once(me: User) -> None:
    requests = ["[gtx1070]", "[2:gtx1070]", "2:[gtx1070]", "[3:gtx1070]", "[4:gtx1070]"]
    numbers = [me.submit(EXCLUSIVE, requests[index % len(requests)]) for index in range(40)]
    for number in numbers:
        job = me.done(number, 120)
        assert job["outcome"] == "succeeded", me.log(number)


def test_jobs_that_want_the_same_start_in_their_order(cluster: Cluster, me: User, flag: str) -> None:
    first = me.submit(UNTIL_TOLD.format(flag=flag), "[4:gtx1070]")
    me.says(first, "up")
    script = "echo $JOB_NUMBER >> $LAB_GROUP_DIR/order"
    numbers = [me.submit(script, "[4:gtx1070]") for _ in range(4)]
    small = me.submit(script, "[gtx1070]")
    for number in (*numbers, small):
        me.reaches(number, WAITING)
    wait_until(lambda: [me.job(number)["schedulePosition"] for number in (*numbers, small)] == [1, 2, 3, 4, 5])
    passing = me.run("true", "[]")
    assert passing["outcome"] == "succeeded"
    assert me.state(numbers[0]) == WAITING
    raise_flag(cluster, flag)
    for number in (first, *numbers, small):
        me.done(number)
    order = (cluster.root / "groups" / "lab" / "order").read_text().split()
    assert [int(number) for number in order] == [*numbers, small]


def test_who_has_priority_goes_first(cluster: Cluster, me: User, flag: str) -> None:
    first = me.submit(UNTIL_TOLD.format(flag=flag), "[4:gtx1070]")
    me.says(first, "up")
    script = "echo $JOB_NUMBER >> $LAB_GROUP_DIR/by-priority"
    low, normal, high = (me.submit(script, "[4:gtx1070]", priority=priority) for priority in (-5, 0, 5))
    for number in (low, normal, high):
        me.reaches(number, WAITING)
    raise_flag(cluster, flag)
    for number in (first, low, normal, high):
        me.done(number)
    order = (cluster.root / "groups" / "lab" / "by-priority").read_text().split()
    assert [int(number) for number in order] == [high, normal, low]


def test_a_wait_is_explained(cluster: Cluster, me: User, flag: str) -> None:
    holder = me.submit(UNTIL_TOLD.format(flag=flag), "[3:gtx1070]")
    me.reaches(holder, RUNNING)
    assert me.client.why(holder) == ["runs on n0"]
    waiting = me.submit("true", "[2:gtx1070]")
    behind = me.submit("true", "[2:gtx1070]")
    me.reaches(waiting, WAITING)
    me.reaches(behind, WAITING)
    explained(me, waiting, "n0", "1 of 4")
    explained(me, behind, "before it")
    raise_flag(cluster, flag)
    me.done(behind)


def explained(me: User, number: int, *words: str) -> None:
    """Once the loop has taken it in."""
    wait_until(
        lambda: any(all(word in reason for word in words) for reason in me.client.why(number)),
        message=f"job {number} is said to wait for: {words}",
    )


def test_nothing_starts_on_a_drained_node_and_what_runs_runs_on(cluster: Cluster, me: User, flag: str) -> None:
    running = me.submit(UNTIL_TOLD.format(flag=flag), "[gtx1070]")
    me.says(running, "up")
    me.call("POST", "/nodes/n0/drain", {"reason": "new power supply"})
    try:
        held, small = me.submit("true", "[gtx1070]"), me.submit("true", "[]")
        for number in (held, small):
            me.reaches(number, WAITING)
            explained(me, number, "drained")
        assert cluster.node()["drainReason"] == "new power supply"
        me.reaches(running, RUNNING)
        raise_flag(cluster, flag)
        assert me.done(running)["outcome"] == "succeeded"
        assert (me.state(held), me.state(small)) == (WAITING, WAITING)
    finally:
        me.call("POST", "/nodes/n0/resume", {})
    assert me.done(held)["outcome"] == "succeeded"
    assert me.done(small)["outcome"] == "succeeded"


@pytest.mark.parametrize(
    "request_", ["[5:gtx1070]", "[a100]", "2:[3:gtx1070]", "[gtx1070/24G]", "[10000:cpu]", "[]@n7"]
)
def test_what_can_never_fit_is_refused_with_the_reason(me: User, request_: str) -> None:
    with pytest.raises(CannotFulfill, match=r"Cluster cannot fulfill resource request:\n  .*") as refusal:
        me.submit("true", request_)
    assert refusal.value.status == 406


@pytest.mark.parametrize("request_", ["", "[", "0:[]", "2[gpu]", "[0:gpu]", "[;rm -rf]", "[99999999999999999999:gpu]"])
def test_a_malformed_request_is_refused_where_it_is_wrong(me: User, request_: str) -> None:
    with pytest.raises(SnakepitError) as refusal:
        me.submit("true", request_)
    assert refusal.value.status == RequestSyntax.status == 400


def test_jobs_are_stopped_when_their_card_goes_to_a_group_of_others(cluster: Cluster, me: User, flag: str) -> None:
    other = cluster.user("outsider")
    cluster.user("insider", "owners")
    holder = me.submit(UNTIL_TOLD.format(flag=flag), "[4:gtx1070]")
    me.says(holder, "up")
    waiting = other.submit("true", "[2:gtx1070]")
    other.reaches(waiting, WAITING)
    me.call("PUT", "/nodes/n0/resources/0/groups/owners")
    assert other.state(waiting) == WAITING
    for index in (1, 2):
        me.call("PUT", f"/nodes/n0/resources/{index}/groups/owners")
    job = other.done(waiting)
    assert (job["outcome"], job["reason"]) == ("stopped", "Cluster cannot fulfill resource request anymore")
    with pytest.raises(CannotFulfill):
        other.submit("true", "[2:gtx1070]")
    me.reaches(holder, RUNNING)
    raise_flag(cluster, flag)
    assert cluster.users["insider"].run("true", "[3:gtx1070]")["outcome"] == "succeeded"
    for index in (0, 1, 2):
        me.call("DELETE", f"/nodes/n0/resources/{index}/groups/owners")


def test_a_busy_node_is_neither_removed_nor_changed(me: User, flag: str, cluster: Cluster) -> None:
    number = me.submit(UNTIL_TOLD.format(flag=flag))
    me.says(number, "up")
    for method, body in (("DELETE", None), ("POST", {"resources": "1:GeForce GTX 1070"})):
        with pytest.raises(WrongState, match=f"job {number} runs on n0"):
            me.call(method, "/nodes/n0", body)
    raise_flag(cluster, flag)
    me.done(number)


def test_jobs_are_stopped_when_the_node_they_need_goes(cluster: Cluster, me: User) -> None:
    me.call("POST", "/nodes/n0/drain", {})
    waiting = me.submit("true", "[gtx1070]")
    me.reaches(waiting, WAITING)
    me.call("DELETE", "/nodes/n0")
    try:
        job = me.done(waiting)
        assert (job["outcome"], job["reason"]) == ("stopped", "Cluster cannot fulfill resource request anymore")
        with pytest.raises(CannotFulfill):
            me.submit("true")
    finally:
        me.call("PUT", "/nodes/n0", {"endpoint": "local:", "resources": GPUS})
    assert me.run("true", "[4:gtx1070]")["outcome"] == "succeeded"


def test_fewer_declared_cards_stop_what_needs_more(cluster: Cluster, me: User) -> None:
    me.call("POST", "/nodes/n0/drain", {})
    waiting = me.submit("true", "[3:gtx1070]")
    me.reaches(waiting, WAITING)
    me.call("POST", "/nodes/n0", {"resources": "2:GeForce GTX 1070"})
    try:
        job = me.done(waiting)
        assert (job["outcome"], job["reason"]) == ("stopped", "Cluster cannot fulfill resource request anymore")
    finally:
        me.call("POST", "/nodes/n0", {"resources": GPUS})
        me.call("POST", "/nodes/n0/resume", {})
    assert me.run("true", "[3:gtx1070]")["state"] == DONE


def test_shares_of_one_card_run_together_and_whole_cards_do_not(cluster: Cluster, me: User, flag: str) -> None:
    halves = [me.submit(UNTIL_TOLD.format(flag=flag), "[0.5:gtx1070]") for _ in range(2)]
    for number in halves:
        me.says(number, "up")
    rest = me.submit(UNTIL_TOLD.format(flag=flag), "[3:gtx1070]")
    me.says(rest, "up")
    whole = me.submit("true", "[gtx1070]")
    me.reaches(whole, WAITING)
    raise_flag(cluster, flag)
    wait_until(lambda: me.state(whole) == DONE)
