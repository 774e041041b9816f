"""Any sequence of calls of simplefs does what a plain model says, and whatever is swapped meanwhile, nothing outside of
the room is read or changed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.house import House

pytestmark = pytest.mark.system  # they search for long

NAMES = [b"a", b"b", b"\xff\xfe", "ä".encode(), b"with space", b"%2e%2e", b"new\nline", b"q?x=1#y", b"back\\slash"]
DOTS = [b"..", b".", b"", b"\x00", b"n" * 300]
parts = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
odd_parts = st.lists(st.sampled_from(NAMES[:3] + DOTS), min_size=1, max_size=5)
Model = dict[tuple[bytes, ...], bytes | None]  # None: a directory


def signed_in(house: House, name: str, known: dict[str, httpx.Client] = {}) -> httpx.Client:  # noqa: B006
    """Once, not for every example."""
    if name not in known:
        known[name] = house.user(name)
    return known[name]


def address(aspect: str, path: list[bytes]) -> str:
    """Dots are encoded too, or the client library would resolve them before the service sees them."""
    names = [quote_from_bytes(name, safe="").replace(".", "%2E") for name in path]
    return f"/users/~/simplefs/{aspect}/" + "/".join(names)


def mkdir(model: Model, path: tuple[bytes, ...]) -> int:
    for depth in range(1, len(path) + 1):
        if model.get(path[:depth], None) is not None:
            return 400
    fresh = path not in model
    for depth in range(1, len(path) + 1):
        model.setdefault(path[:depth], None)
    return 200 if fresh else 400


def parent_problem(model: Model, path: tuple[bytes, ...]) -> int | None:
    """What a path leads to before its last name: 404 where there is nothing, 400 where a file stands in the way."""
    for depth in range(1, len(path)):
        if path[:depth] not in model:
            return 404
        if model[path[:depth]] is not None:
            return 400
    return None


def touch(model: Model, path: tuple[bytes, ...]) -> int:
    if (problem := parent_problem(model, path)) is not None:
        return problem
    if path in model and model[path] is None:
        return 400
    model[path] = b""
    return 200


def write(model: Model, path: tuple[bytes, ...], offset: int, data: bytes) -> int:
    if parent_problem(model, path) is not None or path not in model:
        return 400
    old = model[path]
    if old is None or offset > len(old):
        return 400
    model[path] = old[:offset] + data
    return 200


def remove(model: Model, path: tuple[bytes, ...]) -> int:
    if (problem := parent_problem(model, path)) is not None:
        return problem
    if path not in model:
        return 404
    for other in [each for each in model if each[: len(path)] == path]:
        del model[other]
    return 200


def move(model: Model, old: tuple[bytes, ...], new: tuple[bytes, ...]) -> int:
    for path in (old, new):
        if (problem := parent_problem(model, path)) is not None:
            return problem
    if old not in model:
        return 404
    if model[old] is None or (new in model and model[new] is None):
        return 400
    model[new] = model.pop(old)
    return 200


calls = st.one_of(
    st.tuples(st.just("mkdir"), parts),
    st.tuples(st.just("touch"), parts),
    st.tuples(st.just("write"), parts, st.integers(0, 6), st.binary(max_size=5)),
    st.tuples(st.just("remove"), parts),
    st.tuples(st.just("move"), parts, parts),
)


def perform(client: httpx.Client, model: Model, call: tuple[object, ...]) -> tuple[int, int]:
    """What the service says, what the model says."""
    match call:
        case ("mkdir", list(path)):
            answer = client.put(address("stats", path), json={"type": "directory"})
            return answer.status_code, mkdir(model, tuple(path))
        case ("touch", list(path)):
            return client.put(address("stats", path), json={"type": "file"}).status_code, touch(model, tuple(path))
        case ("write", list(path), int(offset), bytes(data)):
            headers = {"Content-Offset": str(offset)}
            answer = client.put(address("content", path), content=data, headers=headers)
            return answer.status_code, write(model, tuple(path), offset, data)
        case ("remove", list(path)):
            return client.delete(address("stats", path)).status_code, remove(model, tuple(path))
        case ("move", list(old), list(new)):
            source = b"/".join(old).decode("utf-8", "surrogateescape")
            answer = client.post(address("stats", new), content=json.dumps({"from": source}).encode())
            return answer.status_code, move(model, tuple(old), tuple(new))
    raise AssertionError(call)


def on_disk(top: Path) -> Model:
    found: Model = {}
    for folder, directories, files in os.walk(os.fsencode(top)):
        inside = tuple(name for name in os.path.relpath(folder, os.fsencode(top)).split(b"/") if name != b".")
        found.update({(*inside, name): None for name in directories})
        found.update({(*inside, name): Path(os.fsdecode(folder), os.fsdecode(name)).read_bytes() for name in files})
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(calls, max_size=12))
def test_any_sequence_of_calls_does_what_a_plain_model_says(house: House, steps: list[tuple[object, ...]]) -> None:
    client = signed_in(house, "fuzz")
    home = house.root / "home" / "fuzz"
    shutil.rmtree(home, ignore_errors=True)
    client.get("/users/~/simplefs/content/")
    model: Model = {}
    for step in steps:
        said, expected = perform(client, model, step)
        assert said == expected, step
    assert on_disk(home) == model
    for path, data in model.items():
        answer = client.get(address("content", list(path)))
        if data is not None:
            assert answer.content == data
        else:
            below = {each[-1] for each in model if each[:-1] == path}
            listed = answer.json()
            assert {os.fsencode(name) for name in listed["dirs"] + listed["files"]} == below


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=odd_parts,
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    aspect=st.sampled_from(["stats", "content"]),
)
def test_no_path_leads_out_or_breaks_the_service(house: House, path: list[bytes], method: str, aspect: str) -> None:
    client = signed_in(house, "explorer")
    outside = house.root / "home" / "explorer-neighbour"
    outside.mkdir(exist_ok=True)
    (outside / "a").write_bytes(b"secret")
    inside = house.root / "home" / "explorer"
    inside.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (inside / "a").symlink_to(outside)
    with contextlib.suppress(FileExistsError):
        (inside / "b").symlink_to(outside / "a")
    before = sorted(house.root.glob("home/*"))
    answer = client.request(method, address(aspect, path), content=b'{"type": "file"}')
    assert answer.status_code < 500
    assert b"secret" not in answer.content
    assert (outside / "a").read_bytes() == b"secret"
    assert [each.name for each in outside.iterdir()] == ["a"]
    assert sorted(house.root.glob("home/*")) == before


SWAP = """
import os
while True:
    for name in ("real", "link"):
        os.rename(name, "door")
        os.rename("door", name)
"""


def test_a_link_swapped_in_while_in_use_leads_nowhere(house: House) -> None:
    """A job of the same user swaps a directory and a link to somewhere else, as fast as it can."""
    client = house.user("swapper")
    home, outside = house.root / "home" / "swapper", house.root / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    client.put("/users/~/simplefs/stats/real", json={"type": "directory"})
    (home / "real" / "file").write_bytes(b"harmless")
    (home / "link").symlink_to(outside)
    swapping = subprocess.Popen([sys.executable, "-c", SWAP], cwd=home)
    try:
        seen = set()
        for number in range(100):
            answer = client.get("/users/~/simplefs/content/door/file")
            seen.add(answer.status_code)
            assert b"secret" not in answer.content
            client.put(f"/users/~/simplefs/stats/door/new{number}", json={"type": "file"})
            client.put("/users/~/simplefs/content/door/file", content=b"harmless")
            client.get("/users/~/simplefs/content/door", params={"archive": "tar"})
            client.delete(f"/users/~/simplefs/stats/door/new{number}")
    finally:
        swapping.kill()
        swapping.wait()
    assert seen <= {200, 400, 403, 404}
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"secret"
