from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snakepit.core.request import Group, Request, Shape, Term, from_flags, mangled, parse, parse_size, render
from snakepit.errors import BadRequest, RequestSyntax

NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
CARD_NAME = NAME.filter(lambda name: name.lower() not in ("cpu", "mem", "node", "gpu")) | st.just("gpu")
SIZE = st.integers(1, 10**13) | st.integers(1, 900).map(lambda giga: giga * 10**9)
AMOUNT = st.integers(1, 40) | st.integers(1, 9999).map(lambda share: Fraction(share, 10_000))
TERM = st.builds(Term, AMOUNT, st.lists(CARD_NAME, min_size=1, max_size=3, unique=True).map(tuple), st.none() | SIZE)
SHAPE = st.builds(Shape, st.lists(TERM, max_size=3).map(tuple), st.integers(0, 128), st.just(0) | SIZE, st.booleans())
GROUP = st.builds(Group, st.integers(1, 500), SHAPE, st.lists(NAME, max_size=3, unique=True).map(tuple))
REQUEST = st.builds(Request, st.lists(GROUP, min_size=1, max_size=4).map(tuple))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("[]", Group(1, Shape())),
        ("2:[8:gtx1070]", Group(2, Shape((Term(8, ("gtx1070",)),)))),
        ("[gpu]", Group(1, Shape((Term(1, ("gpu",)),)))),
        ("[2:gpu/24G]", Group(1, Shape((Term(2, ("gpu",), 24 * 10**9),)))),
        ("[0.5:gpu/10G]", Group(1, Shape((Term(Fraction(1, 2), ("gpu",), 10 * 10**9),)))),
        ("[a100|h100,8:cpu,64G:mem]", Group(1, Shape((Term(1, ("a100", "h100")),), 8, 64 * 10**9))),
        ("[a100+h100]", Group(1, Shape((Term(1, ("a100", "h100")),)))),
        ("[node]", Group(1, Shape(whole_node=True))),
        ("[gtx1070]@n0+n1", Group(1, Shape((Term(1, ("gtx1070",)),)), ("n0", "n1"))),
        ("[a,a]", Group(1, Shape((Term(1, ("a",)), Term(1, ("a",)))))),
        ("[3090]", Group(1, Shape((Term(1, ("3090",)),)))),
        ("[2:3090]", Group(1, Shape((Term(2, ("3090",)),)))),
        ("[GPU]", Group(1, Shape((Term(1, ("gpu",)),)))),
        ("[2:cpu,cpu]", Group(1, Shape(cpus=3))),
        ("[16GiB:mem]", Group(1, Shape(mem_bytes=16 * 2**30))),
        (" 2 : [ 3 : gtx-1070 / 8G ] @ n0 ", Group(2, Shape((Term(3, ("gtx-1070",), 8 * 10**9),)), ("n0",))),
        ("007:[]", Group(7, Shape())),
    ],
)  # fmt: skip
def test_a_request_means_what_the_design_says(text: str, meaning: Group) -> None:
    assert parse(text) == Request((meaning,))


def test_several_groups_are_separated_by_commas() -> None:
    request = parse("2:[],4:[gtx1070,2:gtx1060]")
    assert [group.count for group in request.groups] == [2, 4]
    assert request.process_count == 6
    assert request.groups[1].shape.terms == (Term(1, ("gtx1070",)), Term(2, ("gtx1060",)))


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "empty"),
        ("2", 1, "':' after the count"),
        ("2[gpu]", 1, "':' after the count"),
        ("gtx1070", 0, "in brackets: [gtx1070]"),
        ("[],", 3, "'['"),
        ("2:2:[]", 2, "'['"),
        ("[a,]", 3, "name of a resource"),
        ("[,a]", 1, "name of a resource"),
        ("[a b]", 3, "',' or ']'"),
        ("[gpu", 4, "',' or ']'"),
        ("[gpu]]", 5, "the end"),
        ("[]@", 3, "name of a node"),
        ("0:[]", 0, "starts at 1"),
        ("[0:x]", 1, "starts at 1"),
        ("[00:x]", 1, "starts at 1"),
        ("[0.0:gpu]", 1, "more than zero"),
        ("[1.5:gpu]", 1, "below one"),
        ("[0.12345:gpu]", 1, "decimals"),
        ("99999999999999999999:[]", 0, "at most"),
        (f"{'9' * 4000}:[]", 0, "at most"),
        ("4000:[],97:[]", 8, "processes in all"),
        ("[99999:gpu]", 1, "at most"),
        ("[x:gpu]", 1, "whole number"),
        ("[64:mem]", 1, "unit"),
        ("[mem]", 1, "how much"),
        ("[0G:mem]", 1, "more than zero"),
        ("[9999P:mem]", 1, "at most"),
        ("[0.5:cpu]", 1, "whole"),
        ("[2:node]", 1, "2:[node]"),
        ("[cpu|gpu]", 1, "no alternatives"),
        ("[cpu/3G]", 4, "no size"),
        ("[gpu/]", 5, "a size like"),
        ("[gpu/3X]", 5, "no unit"),
        ("[%]", 1, "no place"),
        ("[\x00]", 1, "no place"),
        ("[größe]", 3, "no place"),
        ("[-a]", 1, "starts with"),
    ],
)
def test_a_mistake_is_pointed_at(text: str, position: int, problem: str) -> None:
    with pytest.raises(RequestSyntax) as caught:
        parse(text)
    assert (caught.value.position, len(caught.value.text)) == (position, len(text))
    assert problem in caught.value.problem
    assert len(caught.value.message.splitlines()) == 3


def test_an_endless_text_is_refused_briefly() -> None:
    with pytest.raises(RequestSyntax) as caught:
        parse("[]," * 100_000)
    assert len(caught.value.message) < 300


@settings(deadline=None)
@given(st.text() | st.text(alphabet="[]:,|+/@0129.agpumG \t\n"))
@example("[gpu\n%]")
@example("\ud800")
def test_any_text_parses_or_is_refused_with_a_place_in_it(text: str) -> None:
    try:
        request = parse(text)
    except RequestSyntax as problem:
        refused = problem
    else:
        assert parse(render(request)) == request
        return
    assert 0 <= refused.position <= len(text)
    assert len(refused.message.splitlines()) == 3


@settings(deadline=None)
@given(REQUEST)
def test_what_is_rendered_parses_to_the_same(request_: Request) -> None:
    assert parse(render(request_)) == request_


@settings(deadline=None)
@given(REQUEST)
def test_blanks_between_words_change_nothing(request_: Request) -> None:
    spaced = "".join(f" {character} " if character in "[]:,|+/@" else character for character in render(request_))
    assert parse(spaced) == request_


ORIGINAL_NAME = st.from_regex(r"[a-zA-Z]+[a-zA-Z0-9]*", fullmatch=True).filter(
    lambda name: name.lower() not in ("gpu", "cpu", "mem", "node")
)
COUNT = st.integers(1, 50) | st.none()
ORIGINAL = st.lists(st.tuples(COUNT, st.lists(st.tuples(COUNT, ORIGINAL_NAME), max_size=4)), min_size=1, max_size=4)


@settings(deadline=None)
@given(ORIGINAL)
def test_what_the_original_grammar_allowed_means_the_same(
    cluster: list[tuple[int | None, list[tuple[int | None, str]]]],
) -> None:
    def counted(count: int | None, what: str) -> str:
        return what if count is None else f"{count}:{what}"

    text = ",".join(
        counted(count, f"[{','.join(counted(amount, name) for amount, name in process)}]") for count, process in cluster
    )
    assert parse(text) == Request(
        tuple(
            Group(count or 1, Shape(tuple(Term(amount or 1, (name,)) for amount, name in process)))
            for count, process in cluster
        )
    )


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64G", 64 * 10**9),
        ("64GB", 64 * 10**9),
        ("1.5T", 15 * 10**11),
        ("512MiB", 512 * 2**20),
        ("7B", 7),
        (" 2 k ", 2000),
    ],
)
def test_sizes_are_decimal_and_ib_is_exact(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "G", "64", "-1G", "1e9B", "0.5B", "9" * 50 + "G", "5 apples", "٣G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_size(text)


def test_flags_mean_the_same_as_text() -> None:
    assert from_flags() == parse("[]")
    assert from_flags(gpus=2) == parse("[2:gpu]")
    assert from_flags(gpus="0.5", vram="10G") == parse("[0.5:gpu/10G]")
    assert from_flags(gpus=0, cpus=4) == parse("[4:cpu]")
    assert from_flags(vram="24G") == parse("[gpu/24G]")
    assert from_flags(model="a100,h100") == parse("[a100|h100]")
    assert (
        from_flags(nodes="n0,n1", whole_node=True)
        == from_flags(nodes=["n0", "n1"], whole_node=True)
        == parse("[node]@n0+n1")
    )
    everything = from_flags(gpus="2", vram="24G", model="a100,h100", cpus="8", mem="64G", procs="2")
    assert everything == parse("2:[2:a100|h100/24G,8:cpu,64G:mem]")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"gpus": "0", "vram": "24G"}, "--vram says which GPU, but --gpus 0 asks for none"),
        ({"gpus": 0, "model": "a100"}, "--model says which GPU, but --gpus 0 asks for none"),
        ({"gpus": "many"}, "--gpus: expected a whole number as amount"),
        ({"gpus": "2:gpu],[3"}, "--gpus: expected a single value"),
        ({"mem": "64"}, "--mem: a size needs a unit: 64G, 64M"),
        ({"cpus": "0"}, "--cpus: the number of cores starts at 1"),
        ({"cpus": "1:cpu,2"}, "--cpus: expected a single value"),
        ({"procs": 0}, "--procs: the count starts at 1"),
        ({"procs": "-1"}, "--procs: expected a whole number"),
        ({"model": "a100,,h100"}, "--model: expected the name of a resource"),
        ({"model": "cpu"}, "--model names GPUs; cores, memory and nodes have flags of their own"),
        ({"nodes": "n0]"}, "--nodes: expected names separated by ','"),
    ],
)  # fmt: skip
def test_flags_that_make_no_sense_are_refused_in_one_line(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(BadRequest) as caught:
        from_flags(**flags)  # type: ignore[arg-type]
    assert caught.value.message == problem


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["[2:gtx1070,", "gpu]"], "'[2:gtx1070,gpu]'"),  # blanks
        (["2:gtx1070"], "'[2:gtx1070]'"),  # no brackets
        (["2:8:gtx1070"], "'2:[8:gtx1070]'"),
        (["gpu"], "'[gpu]'"),
        (["a100@n0"], "'[a100]@n0'"),
        (["{gpu}"], "'[gpu]'"),
        (["[a100"], "'[a100|…]'"),  # the shell made a pipe of the rest
        (["2:[8:a100"], "'2:[8:a100|…]'"),
        (["g"], "'[…]'"),  # a file of that name stood in the way of [gpu]
        (["g", "p"], "'[…]'"),
        (["2:g"], "'[…]'"),
    ],
)
def test_what_a_shell_left_of_a_request_is_recognised(words: list[str], typed: str) -> None:
    assert mangled(words) == typed


@pytest.mark.parametrize("words", [[], ["[gpu]"], ["2:[8:gtx1070]"], ["what is this?"], ["train.py;"]])
def test_what_is_no_mangled_request_is_left_alone(words: list[str]) -> None:
    assert mangled(words) is None
