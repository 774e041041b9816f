"""The pure parts: texts in, values out."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snakepit.engines.agent
from snakepit.core.confine import Bind, World, bubblewrap, showing
from snakepit.engines.agent import ends, frames, gpus, holder, limits, procs, sandbox
from snakepit.engines.package import agent_package

SMI = """0, GPU-11111111-aaaa-bbbb-cccc-000000000000, NVIDIA H200, 143771, 00000000:65:00.0
1, GPU-22222222-aaaa-bbbb-cccc-000000000000, NVIDIA GeForce GTX 1070, [N/A], 00000001:B3:00.0
garbage
"""
INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 126
GPU UUID: \t GPU-11111111-aaaa-bbbb-cccc-000000000000
Bus Location: \t 0000:65:00.0
Device Minor: \t 3
"""


def test_nvidia_smi_is_read() -> None:
    cards = gpus.read_smi(SMI)
    assert [(card["name"], card["uuid"][:12], card["memory_bytes"], card["bus"]) for card in cards] == [
        ("NVIDIA H200", "GPU-11111111", 143771 << 20, "0000:65:00.0"),
        ("NVIDIA GeForce GTX 1070", "GPU-22222222", 0, "0001:b3:00.0"),
    ]


def test_the_drivers_own_file_is_read() -> None:
    facts = gpus.read_information(INFORMATION)
    assert (facts["Model"], facts["Device Minor"], facts["GPU UUID"][:8]) == ("NVIDIA H200", "3", "GPU-1111")


def test_utilisation_is_read() -> None:
    assert gpus.read_utilisation("GPU-1, 50, 100, 400\nGPU-2, [N/A], 0, 0\n") == {
        "GPU-1": [0.5, 0.25],
        "GPU-2": [0.0, 0.0],
    }


@pytest.mark.parametrize(
    ("text", "names", "memory"),
    [
        ("", [], 0),
        ("2:GeForce GTX 1070", ["GeForce GTX 1070"] * 2, 0),
        ("GeForce GTX 1070/8G", ["GeForce GTX 1070"], 8 * 10**9),
        ("1:a/500M, 2:b/500MB", ["a", "b", "b"], 500 * 10**6),
    ],
)
def test_declared_resources_are_read(text: str, names: list[str], memory: int) -> None:
    cards = gpus.declared(text)
    assert [card["name"] for card in cards] == names
    assert [card["index"] for card in cards] == list(range(len(names)))
    assert all(card["memory_bytes"] == memory for card in cards)


@pytest.mark.parametrize("text", ["0:x", "2:", "x/12Q", "-1:x", "1:2:x", "x/", "99999:x"])
def test_declared_resources_that_make_no_sense_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read the resource"):
        gpus.declared(text)


def test_real_cards_are_visible_by_uuid_and_need_their_devices() -> None:
    cards = gpus.read_smi(SMI)
    cards[0]["devices"] = ["/dev/nvidia3"]
    assert gpus.visible(cards[:1])["CUDA_VISIBLE_DEVICES"] == cards[0]["uuid"]
    assert gpus.devices(cards[:1])[0] == "/dev/nvidia3"
    assert gpus.visible([]) == {"CUDA_VISIBLE_DEVICES": ""}
    grant = {"uuid": cards[1]["uuid"], "index": 7}
    assert sandbox.find_card(grant, cards) is cards[1]


@pytest.mark.parametrize(
    ("status", "stop", "memory", "expected"),
    [
        ({"code": 0}, None, False, ("exit", 0, "")),
        ({"code": 3}, None, False, ("exit", 3, "")),
        ({"code": 255}, None, False, ("exit", 255, "")),
        ({"code": 137}, None, False, ("signal", 137, "killed by signal 9 (KILL)")),
        ({"code": 137}, None, True, ("out of memory", 137, "out of memory (limit 2 GiB)")),
        ({"code": 0}, None, True, ("exit", 0, "")),
        ({"exit-code": 4}, None, False, ("exit", 4, "")),
        ({"code": 3}, {"cause": "stopped", "note": "by anna"}, False, ("stopped", 3, "by anna")),
        ({"code": 143}, {"cause": "time limit", "note": ""}, False, ("time limit", 143, "killed by signal 15 (TERM)")),
        ({}, {"cause": "stopped", "note": "by anna"}, False, ("stopped", None, "by anna")),
    ],
)
def test_how_it_ended(
    status: dict[str, int], stop: dict[str, str] | None, memory: bool, expected: tuple[str, int | None, str]
) -> None:
    ended = ends.judge(status, stop, memory, 2 << 30, "")
    assert (ended["cause"], ended["code"], ended["note"]) == expected


def test_an_end_that_nobody_saw_is_lost() -> None:
    assert ends.judge({"child-pid": 4}, None, False, 0, "")["cause"] == "lost"


def test_a_status_file_is_read_past_what_is_torn() -> None:
    text = '{ "child-pid": 8017, "pid-namespace": 4 }\n{ "exit-c\n\n{"code": 5, "at": 1.5}\n'
    assert holder.read_status(text) == {"child-pid": 8017, "pid-namespace": 4, "code": 5, "at": 1.5}


def test_where_controllers_are_mounted_is_read() -> None:
    old = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\ncgroup /m cgroup rw,memory 0 0\n"
    assert limits.mounted(old) == {"cpu": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/m"}
    assert limits.mounted("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n") == {"cgroup2": "/sys/fs/cgroup"}


def test_a_process_with_brackets_in_its_name_is_read() -> None:
    seen = procs.Stat("42 (a) b (c)) S 7 42 42 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 12345 1000 25 0")
    assert (seen.pid, seen.state, seen.parent, seen.started) == (42, "S", 7, 12345)
    assert seen.cpu_s == 200 / procs.TICKS


@settings(deadline=None)
@given(st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.binary(max_size=500)), max_size=5), st.data())
def test_frames_survive_any_cut(sent: list[tuple[dict[str, int], bytes]], data: st.DataObject) -> None:
    sent = [({key: value for key, value in header.items() if key != "size"}, payload) for header, payload in sent]
    stream = b"".join(frames.encode(header, payload) for header, payload in sent)
    decoder, got = frames.Decoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += decoder.feed(stream[:cut])
        stream = stream[cut:]
    assert [({key: header[key] for key in header if key != "size"}, payload) for header, payload in got] == sent


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\n", b"[]\n", b'{"size": -1}\n', b"\xff\xfe\n"])
def test_noise_is_no_frame(noise: bytes) -> None:
    with pytest.raises(frames.Garbled):
        frames.Decoder().feed(noise)


def test_bubblewrap_gives_no_powers_and_only_what_is_named() -> None:
    world = World(
        binds=(Bind("/a", "/data", True), Bind("/b", "/data/b"), Bind("/dev/x", "/dev/x", device=True, optional=True)),
        hidden=("/opt/root", "/srv/root"),
        cwd="/data",
        hostname="here",
    )
    argv = bubblewrap(world, ["prog", "--flag"])
    text = " ".join(argv)
    assert argv[-3:] == ["--", "prog", "--flag"]
    for flags in ("--unshare-user", "--unshare-pid", "--unshare-net", "--cap-drop ALL", "--hostname here"):
        assert flags in text
    assert "--bind /a /data --ro-bind /b /data/b --dev-bind-try /dev/x /dev/x" in text
    assert "--tmpfs /opt/root" in text
    assert "/srv/root" not in text
    assert "--die-with-parent" not in argv
    assert "--unshare-net" not in bubblewrap(World(network=True), ["x"])
    assert not showing("/optional")


def test_the_agent_is_written_in_the_python_of_old_nodes() -> None:
    """Python 3.6: no walrus, no `X | Y`, no dataclasses, no future annotations."""
    files = [*Path(snakepit.engines.agent.__path__[0]).glob("*.py"), Path(bubblewrap.__code__.co_filename)]
    assert len(files) > 15
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 6))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("__future__", "dataclasses"), path
            annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
            for annotation in filter(None, annotations):
                for part in ast.walk(annotation):
                    assert not isinstance(part, ast.BinOp), f"{path}: {ast.unparse(annotation)}"
                    plain = isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)
                    if plain and isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                        assert part.value.id not in ("list", "dict", "set", "tuple", "type"), path


def test_the_same_sources_make_the_same_package() -> None:
    assert agent_package.__wrapped__() == agent_package.__wrapped__()
