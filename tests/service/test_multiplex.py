"""The original's multiplexer: frames cut anywhere come out whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snakepit.errors import BadRequest
from snakepit.service.inside.multiplex import Decoder, Frame, Kind, encode

FRAMES = st.lists(st.builds(Frame, st.integers(0, 2**40), st.sampled_from(Kind), st.binary(max_size=300)), max_size=10)


@settings(deadline=None)
@given(FRAMES, st.integers(1, 50))
def test_frames_come_out_as_they_went_in_wherever_they_are_cut(frames: list[Frame], size: int) -> None:
    wire, decoder = b"".join(map(encode, frames)), Decoder()
    found = [frame for at in range(0, len(wire), size) for frame in decoder.feed(wire[at : at + size])]
    assert found == frames


def test_it_looks_as_the_original_writes_it() -> None:
    assert encode(Frame(0, Kind.OPEN, b"0-80")) == b"\x00\x040-80"
    assert encode(Frame(40, Kind.DATA, b"x")) == b"\xc2\x02\x01x"


@pytest.mark.parametrize("noise", [b"\x07\x00", b"\xff" * 10, b"\x02\xff\xff\xff\x7f"])
def test_noise_is_refused_not_kept(noise: bytes) -> None:
    with pytest.raises(BadRequest, match="Not a frame"):
        list(Decoder().feed(noise))
