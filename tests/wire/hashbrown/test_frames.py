"""The frame decoder: any chunking gives the same frames, within the limit."""

import struct
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.hashbrown.frames import Decoder, Frame, FrameError, add_length, encode_frame

FRAMES: list[Frame] = [
    {"type": "a"},
    {"type": "response.output_text.delta", "delta": "é😀\n", "outputIndex": 0},
    {"type": "thread-load-success", "thread": [{"role": "user", "content": "x" * 300}]},
]
STREAM = b"".join(map(encode_frame, FRAMES))


def read(chunks: Iterable[bytes], max_frame: int = 1_000_000) -> list[Frame]:
    decoder = Decoder(max_frame)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    decoder.close()
    return frames


def test_a_frame_is_its_length_in_four_bytes_and_its_json() -> None:
    body = '{"type":"a","text":"é"}'.encode()
    assert encode_frame({"type": "a", "text": "é"}) == struct.pack(">I", len(body)) + body
    assert add_length(body) == struct.pack(">I", len(body)) + body


def test_every_split_in_two_gives_the_same_frames() -> None:
    for position in range(len(STREAM) + 1):
        assert read([STREAM[:position], STREAM[position:]]) == FRAMES


def test_byte_by_byte_gives_the_same_frames() -> None:
    assert read(STREAM[n : n + 1] for n in range(len(STREAM))) == FRAMES


def test_a_frame_is_returned_as_soon_as_it_is_complete() -> None:
    decoder = Decoder()
    first, second = encode_frame({"type": "a"}), encode_frame({"type": "b"})
    assert decoder.feed(first[:2]) == []
    assert decoder.feed(first[2:] + second[:6]) == [{"type": "a"}]
    assert decoder.feed(second[6:]) == [{"type": "b"}]
    decoder.close()


def test_a_frame_longer_than_the_limit_is_rejected() -> None:
    frame = encode_frame({"type": "a"})
    assert read([frame], len(frame) - 4) == [{"type": "a"}]
    with pytest.raises(FrameError, match="A frame has 12 bytes, more than 11"):
        read([frame[:4]], len(frame) - 5)


def test_a_stream_that_ends_inside_a_frame_is_an_error() -> None:
    for end in range(1, len(encode_frame({"type": "a"}))):
        with pytest.raises(FrameError, match=f"The stream ended with {end} bytes of a frame"):
            read([encode_frame({"type": "a"})[:end]])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", r"^A frame is not valid JSON: it is empty\.$"),
        (b"{", r"^A frame is not valid JSON: it ends too early, [^.]+\.$"),
        (b"[]", "not an object with a 'type'"),
        (b"{}", "not an object with a 'type'"),
        (b'{"type":1}', "not an object with a 'type'"),
    ],
)
def test_an_invalid_frame_is_rejected(body: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        read([add_length(body)])


@given(st.lists(st.dictionaries(st.text(), st.integers(-(2**53), 2**53) | st.text())), st.data())
def test_encoded_frames_are_decoded(values: list[Frame], data: st.DataObject) -> None:
    frames = [value | {"type": "any"} for value in values]
    stream = b"".join(map(encode_frame, frames))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream))))), len(stream)]
    assert read(stream[start:end] for start, end in pairwise(edges)) == frames
