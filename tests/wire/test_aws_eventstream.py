"""AWS's event stream: any chunking gives the same messages, and botocore agrees."""

from collections.abc import Iterable
from itertools import pairwise
from struct import pack
from zlib import crc32

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.aws_eventstream import Decoder, EventStreamError, EventStreamMessage, HeaderValue
from tests.wire.eventstream_encoder import encode

HEADERS: dict[str, HeaderValue] = {
    ":message-type": "event",
    ":event-type": "contentBlockDelta",
    ":content-type": "application/json",
}
STREAM = (
    encode(HEADERS, '{"text":"é😀"}'.encode())
    + encode({}, b"")
    + encode({"a": True, "b": False, "c": -7, "d": b"\0\xff", "ü": "😀"}, b"\0" * 20)
    + encode(HEADERS, b"again")
)
MESSAGES = [
    EventStreamMessage(HEADERS, '{"text":"é😀"}'.encode()),
    EventStreamMessage({}, b""),
    EventStreamMessage({"a": True, "b": False, "c": -7, "d": b"\0\xff", "ü": "😀"}, b"\0" * 20),
    EventStreamMessage(HEADERS, b"again"),
]

values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40), st.text(max_size=40))
headers = st.dictionaries(st.text(max_size=20), values, max_size=5)
messages = st.builds(EventStreamMessage, headers, st.binary(max_size=80))


def read(chunks: Iterable[bytes], max_message: int = 1_000_000) -> list[EventStreamMessage]:
    decoder = Decoder(max_message)
    return [message for chunk in chunks for message in decoder.feed(chunk)]


def cut(stream: bytes, positions: Iterable[int]) -> Iterable[bytes]:
    edges = [0, *sorted(positions), len(stream)]
    return (stream[start:end] for start, end in pairwise(edges))


def reference(stream: bytes) -> list[EventStreamMessage]:
    """Return the messages as botocore decodes them."""
    buffer = EventStreamBuffer()
    buffer.add_data(stream)
    return [EventStreamMessage(event.headers, event.payload) for event in buffer]


def raw(head: bytes, payload: bytes = b"", length: int = 0) -> bytes:
    """Return a message with headers that `encode` does not produce."""
    lengths = pack(">II", length or len(head) + len(payload) + 16, len(head))
    message = lengths + pack(">I", crc32(lengths)) + head + payload
    return message + pack(">I", crc32(message))


def test_every_split_in_two_gives_the_same_messages() -> None:
    for position in range(len(STREAM) + 1):
        assert read([STREAM[:position], STREAM[position:]]) == MESSAGES


def test_byte_by_byte_gives_the_same_messages() -> None:
    assert read(STREAM[n : n + 1] for n in range(len(STREAM))) == MESSAGES


def test_a_message_is_returned_with_its_last_byte() -> None:
    decoder = Decoder()
    assert decoder.feed(STREAM[:100]) == []
    assert decoder.feed(STREAM[100:200]) == MESSAGES[:2]
    assert decoder.feed(STREAM[200:]) == MESSAGES[2:]


@given(st.lists(messages, max_size=6), st.data())
def test_encoded_messages_are_decoded_by_us_and_by_botocore(
    sent: list[EventStreamMessage], data: st.DataObject
) -> None:
    stream = b"".join(encode(message.headers, message.payload) for message in sent)
    positions = data.draw(st.lists(st.integers(0, len(stream))))
    assert read(cut(stream, positions)) == sent
    assert reference(stream) == sent


def test_headers_of_every_type_are_decoded_as_by_botocore() -> None:
    head = (
        b"\x01a\x00\x01b\x01\x01c\x02\xfe\x01d\x03\xff\x00\x01e\x04\xff\x00\x00\x00"
        b"\x01f\x05\xff\x00\x00\x00\x00\x00\x00\x00\x01g\x06\x00\x02\x00\x01\x01h\x07\x00\x02hi"
        b"\x01i\x08\x00\x00\x01\x8b\xcf\xe5\x68\x00\x01j\x09" + bytes(range(16))
    )
    expected: dict[str, HeaderValue] = {
        "a": True,
        "b": False,
        "c": -2,
        "d": -256,
        "e": -(2**24),
        "f": -(2**56),
        "g": b"\0\1",
        "h": "hi",
        "i": 1_700_000_000_000,
        "j": bytes(range(16)),
    }
    assert read([raw(head)]) == reference(raw(head)) == [EventStreamMessage(expected, b"")]


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_one_damaged_byte_is_always_detected(position: int, change: int) -> None:
    damaged = bytearray(STREAM)
    damaged[position] ^= change
    whole = read([STREAM[:position]])
    with pytest.raises(EventStreamError):
        read([bytes(damaged), bytes(len(STREAM) * 2)])
    with pytest.raises(ParserError):
        reference(bytes(damaged) + bytes(len(STREAM) * 2))
    assert whole == MESSAGES[: len(whole)]


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (b"<html>Bad gateway</html>", "The bytes are not an event stream, or were damaged in transit."),
        (raw(b"")[:-1] + b"\0", "A message was damaged in transit: its checksum is wrong."),
        (raw(b"", length=15), "A message is shorter than its headers."),
        (raw(b"\x01a\x0a"), "A header has the unknown type 10."),
        (raw(b"\x01a\x00\x01a\x00"), "The header 'a' comes twice."),
        (raw(b"\x01a\x07\x00\x09short"), "The headers of a message cannot be read."),
        (raw(b"\x09a"), "The headers of a message cannot be read."),
        (raw(b"\x01a"), "The headers of a message cannot be read."),
        (raw(b"\x01a\x05\x00"), "The headers of a message cannot be read."),
        (raw(b"\x01a\x09\x00"), "The headers of a message cannot be read."),
        (raw(b"\x01a\x07\x00\x01\xff"), "The headers of a message cannot be read."),
    ],
)
def test_an_invalid_message_is_rejected(stream: bytes, words: str) -> None:
    with pytest.raises(EventStreamError) as caught:
        read([stream])
    assert str(caught.value) == words
    assert isinstance(caught.value, ValueError)


def test_a_message_longer_than_the_limit_is_rejected() -> None:
    stream = encode({}, bytes(84))
    assert len(stream) == 100
    assert read([stream], 100) == [EventStreamMessage({}, bytes(84))]
    decoder = Decoder(99)
    assert decoder.feed(stream[:11]) == []
    with pytest.raises(EventStreamError) as caught:
        decoder.feed(stream[11:12])  # its length is known before any of it is held
    words = "A message has 100 bytes, more than 99. Raise the limit if it should pass."
    assert str(caught.value) == words


def test_the_header_cache_is_bounded() -> None:
    stream = b"".join(encode({"n": n}, b"") for n in range(1000))
    decoder = Decoder()
    assert [message.headers["n"] for message in decoder.feed(stream)] == list(range(1000))
    assert len(decoder._cached_headers) <= 100
