"""Frames of STOMP 1.2: what is written is read, in pieces of any size, and nothing else breaks the reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues.activemq.stomp import Frame, FrameParser, encoded
from penstock.queues.errors import MalformedFrame

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
HEADERS = st.dictionaries(NAMES.filter(lambda name: name != "content-length"), VALUES, max_size=5)
FRAMES = st.tuples(st.sampled_from(["MESSAGE", "RECEIPT", "ERROR"]), HEADERS, st.binary(max_size=200))
# Bytes that often look like the beginning of a frame.
NOISE = st.lists(
    st.sampled_from([b"MESSAGE", b"\n", b"\r\n", b"\0", b"a:b", b":", b"\\c", b"\\x", b"content-length:3", b"\xff"])
    | st.binary(max_size=5)
).map(b"".join)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(*pieces: bytes, max_head_bytes: int = 1000, max_body_bytes: int = 1000) -> list[Frame]:
    parser = FrameParser(max_head_bytes, max_body_bytes)
    return [frame for piece in pieces for frame in parser.feed(piece)]


@given(frames=st.lists(FRAMES, max_size=4), size=st.integers(1, 50), beats=st.integers(0, 3))
def test_what_is_written_is_read_however_it_is_cut(
    frames: list[tuple[str, dict[str, str], bytes]], size: int, beats: int
) -> None:
    wire = b"".join(encoded(*frame) + b"\n" * beats for frame in frames)

    came = read(*in_pieces(wire, size), max_head_bytes=10_000)

    assert [(frame.command, frame.body) for frame in came] == [(command, body) for command, _, body in frames]
    for frame, (_, headers, body) in zip(came, frames, strict=True):
        assert frame.headers == headers | {"content-length": str(len(body))}


@given(noise=NOISE, size=st.integers(1, 20))
def test_noise_is_refused_or_read_the_same_however_it_is_cut(noise: bytes, size: int) -> None:
    outcomes = []
    for pieces in ([noise], in_pieces(noise, size)):
        try:
            outcomes.append(read(*pieces))
        except MalformedFrame:
            outcomes.append([])
    frames, frames_of_pieces = outcomes
    # A whole piece is refused together with the good frames before the bad one.
    assert frames in (frames_of_pieces, [])


def test_a_body_may_hold_nuls_when_its_length_is_told() -> None:
    (frame,) = read(b"MESSAGE\ncontent-length:5\n\na\0b\0c\0")

    assert frame.body == b"a\0b\0c"


def test_a_body_of_no_told_length_ends_at_the_first_nul() -> None:
    assert [frame.body for frame in read(b"MESSAGE\na:1\n\nabc\0MESSAGE\na:2\n\n\0")] == [b"abc", b""]


def test_lines_may_end_with_a_carriage_return() -> None:
    (frame,) = read(b"\r\nCONNECTED\r\nversion:1.2\r\nserver:x\r\n\r\n\0")

    assert frame == Frame("CONNECTED", {"version": "1.2", "server": "x"})


def test_of_a_header_written_twice_the_first_counts() -> None:
    (frame,) = read(b"MESSAGE\na:first\na:second\n\n\0")

    assert frame.headers["a"] == "first"


def test_escapes_are_not_used_when_connecting() -> None:
    assert encoded("CONNECT", {"passcode": "a:b\\c"}) == b"CONNECT\npasscode:a:b\\c\n\n\0"
    (frame,) = read(b"CONNECTED\nserver:a:b\\c\n\n\0")
    assert frame.headers["server"] == "a:b\\c"


def test_a_line_end_cannot_be_smuggled_into_a_connect_frame() -> None:
    with pytest.raises(ValueError, match="single line"):
        encoded("CONNECT", {"login": "me\npasscode:x"})


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        (b"MESSAGE\nno colon\n\n\0", "no colon"),
        (b"MESSAGE\na:\\t\n\n\0", "unknown escape"),
        (b"MESSAGE\na:b\\\n\n\0", "unknown escape"),
        (b"MESSAGE\n\xff:b\n\n\0", "not UTF-8"),
        (b"MESSAGE\ncontent-length:-1\n\n\0", "not a number"),
        (b"MESSAGE\ncontent-length:99999999999999999999999\n\n", "longer than"),
        (b"MESSAGE\ncontent-length:1001\n\n", "longer than 1000 bytes"),
        (b"MESSAGE\ncontent-length:1\n\nab\0", "no NUL"),
        (b"M" * 1001, "head is longer than 1000 bytes"),
        (b"MESSAGE\n\n" + b"x" * 1001, "body is longer than 1000 bytes"),
    ],
)
def test_what_is_not_stomp_is_refused(wire: bytes, complaint: str) -> None:
    with pytest.raises(MalformedFrame, match=complaint):
        read(wire)
