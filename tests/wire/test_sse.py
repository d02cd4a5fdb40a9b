"""Server-Sent Events: every form of the standard, in any chunking, within limits."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.sse import DONE, DONE_FRAME, Decoder, SseEvent, StreamError, encode, encode_comment

STREAM = (
    "\ufeffevent: response.created\ndata: {}\n\n"
    ": a comment\n\n"
    "data: one\ndata:two\ndata:  three\ndata\n\n"
    "id: 7\nevent: é😀\nretry: 10\ndata: ü\n\n"
    "event: response.created\ndata: {}\n\n"
    "event: dropped\n\n\n"
    "data: [DONE]\n\n"
    "data: cut"
).encode()
EVENTS = [
    SseEvent("response.created", b"{}"),
    SseEvent("message", b"one\ntwo\n three\n"),
    SseEvent("é😀", "ü".encode(), "7"),
    SseEvent("response.created", b"{}", "7"),
    SseEvent("message", b"[DONE]", "7"),
    SseEvent("message", b"cut", "7"),
]

pieces = st.sampled_from([b"data", b"event", b"id", b"retry", b":", b": ", b"x", b"\0", "é".encode(), b"\xef\xbb\xbf"])
breaks = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b": x\n\n", b"event: x\n"])
streams = st.lists(pieces | breaks | st.binary(max_size=3), max_size=40).map(b"".join)


def read(chunks: Iterable[bytes], max_event: int = 1000) -> list[SseEvent] | str:
    """Return the events of some chunks, or the error message."""
    decoder = Decoder(max_event)
    try:
        events = [event for chunk in chunks for event in decoder.feed(chunk)]
        return events + decoder.close()
    except StreamError as error:
        return str(error)


def cut(stream: bytes, positions: Iterable[int]) -> Iterator[bytes]:
    edges = [0, *sorted(positions), len(stream)]
    return (stream[start:end] for start, end in pairwise(edges))


def reference(stream: bytes) -> list[SseEvent]:
    """The algorithm of the standard, written for clarity."""
    events: list[SseEvent] = []
    event, data, id = b"", [], None
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            event = value
        elif field == b"id" and b"\0" not in value:
            id = value.decode(errors="replace")
        elif line == b"":
            if data:
                name = event.decode(errors="replace") or "message"
                events.append(SseEvent(name, b"\n".join(data), id))
            event, data = b"", []
    return events


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_every_split_in_two_gives_the_same_events(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    for position in range(len(stream) + 1):
        assert read(cut(stream, [position])) == EVENTS


@pytest.mark.parametrize("ending", [b"\n", b"\r", b"\r\n"])
def test_byte_by_byte_gives_the_same_events(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    assert read(cut(stream, range(1, len(stream)))) == EVENTS


@given(streams, st.data())
def test_any_bytes_in_any_chunking_are_decoded_as_by_the_standard(stream: bytes, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(stream))))
    assert read(cut(stream, positions)) == reference(stream)


@given(streams, st.integers(1, 30), st.data())
def test_the_limit_does_not_depend_on_the_chunking(stream: bytes, max_event: int, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(stream))))
    whole = read([stream], max_event)
    parts = read(cut(stream, positions), max_event)
    assert isinstance(whole, str) == isinstance(parts, str)
    assert isinstance(whole, str) or whole == parts


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: x\n\n", [SseEvent("message", b"x")]),
        (b"data:x\n\n", [SseEvent("message", b"x")]),
        (b"data:  x\n\n", [SseEvent("message", b" x")]),
        (b"data: a\ndata: b\n\n", [SseEvent("message", b"a\nb")]),
        (b"data\n\n", [SseEvent("message", b"")]),
        (b"data:\n\n", [SseEvent("message", b"")]),
        (b"data: \n\n", [SseEvent("message", b"")]),
        (b"data\ndata\n\n", [SseEvent("message", b"\n")]),
        (b"event: e\ndata: x\n\n", [SseEvent("e", b"x")]),
        (b"event: e\ndata: x\n\n" * 2, [SseEvent("e", b"x")] * 2),
        (b"event:\ndata: x\n\n" * 2, [SseEvent("message", b"x")] * 2),
        (b"data: x\nevent: e\n\n", [SseEvent("e", b"x")]),
        (b"event: e\n\ndata: x\n\n", [SseEvent("message", b"x")]),
        (b"event: \xff\ndata: \xff\n\n", [SseEvent("\ufffd", b"\xff")]),
        (b"event: e\ndata: x\n\nevent: edata: y\n\n", [SseEvent("e", b"x")]),
        (b"event: data: e\ndata: x\n\n", [SseEvent("data: e", b"x")]),
        (b"id: 1\ndata: x\n\ndata: y\n\n", [SseEvent("message", b"x", "1"), SseEvent("message", b"y", "1")]),
        (b"id: 1\n\ndata: x\n\n", [SseEvent("message", b"x", "1")]),
        (b"id: 1\nid\ndata: x\n\n", [SseEvent("message", b"x", "")]),
        (b"id: 1\0\ndata: x\n\n", [SseEvent("message", b"x")]),
        (b"retry: 5\nother: 6\n: 7\n::\nData: 8\n data: 9\n\n", []),
        (b"\xef\xbb\xbfdata: x\n\n", [SseEvent("message", b"x")]),
        (b"\n\xef\xbb\xbfdata: x\n\n", []),
        (b"data: x\n\n\xef\xbb\xbfdata: y\n\n", [SseEvent("message", b"x")]),
        (b"\n\n\n\n", []),
        (b"", []),
        (b"data: x\n", [SseEvent("message", b"x")]),
        (b"data: x", [SseEvent("message", b"x")]),
        (b"data: x\r", [SseEvent("message", b"x")]),
        (b"event: e\n", []),
    ],
)
def test_each_form_is_decoded_as_by_the_standard(stream: bytes, events: list[SseEvent]) -> None:
    assert reference(stream) == events
    for position in range(len(stream) + 1):
        assert read(cut(stream, [position])) == events


def test_an_event_is_returned_with_its_blank_line() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: x\r") == []
    assert decoder.feed(b"\r") == [SseEvent("message", b"x")]
    assert decoder.feed(b"\ndata: y\n") == []
    assert decoder.feed(b"\n") == [SseEvent("message", b"y")]
    assert decoder.close() == []


def test_an_event_larger_than_the_limit_is_rejected() -> None:
    too_long = "A line has more than 20 bytes. Raise the limit if it should pass."
    too_large = "An event has more than 20 bytes. Raise the limit if it should pass."
    fits = b"data: " + b"x" * 14
    assert read([fits + b"\n\n"], 20) == [SseEvent("message", b"x" * 14)]
    assert read([fits + b"\n\n"] * 5, 20) == [SseEvent("message", b"x" * 14)] * 5
    assert read([b"data: 1234\ndata: 1234\n\n"], 20) == [SseEvent("message", b"1234\n1234")]
    assert read([fits + b"x\n\n"], 20) == too_long
    assert read([b"data: x\n\n", fits + b"x\n\n"], 20) == too_long
    assert read([b"data: x\n\n", fits + b"x"], 20) == too_long
    assert read([b"data: 1234\ndata: 12345\n\n"], 20) == too_large
    assert read([b"data\n"] * 6, 20) == too_large


def test_an_endless_line_is_rejected_at_the_limit() -> None:
    refused = "A line has more than 10000 bytes. Raise the limit if it should pass."
    assert read(repeat(b"data: x"), 10_000) == refused
    assert read(repeat(b":"), 10_000) == refused


def test_comments_and_event_types_use_bounded_memory() -> None:
    decoder = Decoder(max_event=1000)
    for number in range(2000):
        assert decoder.feed(b": still here\n") == []
        assert decoder.feed(b"event: %0900d\n" % number) == []
        assert decoder.feed(b"event: %d\n" % number) == []
    assert decoder.feed(b"data: x\n\n") == [SseEvent("1999", b"x")]
    assert sum(map(len, decoder._prefixes)) < 100 * 100


def test_a_line_in_single_bytes_takes_linear_time() -> None:
    data = b"x" * 1_000_000
    stream = b"data: " + data + b"\n\n"
    assert read(cut(stream, range(1, len(stream))), 2_000_000) == [SseEvent("message", data)]


@pytest.mark.parametrize(("last", "max_event"), [(b"data: x\r\n\r\n", 1_000_000), (b"", 1000)])
def test_any_number_of_events_can_arrive_at_once_in_the_middle_of_one(last: bytes, max_event: int) -> None:
    decoder = Decoder(max_event)
    decoder.feed(b"data: ")
    assert {event.data for event in decoder.feed(b"x\n\n" + b"data: x\n\n" * 5000 + last)} == {b"x"}


def test_done_is_an_event() -> None:
    assert read([DONE_FRAME]) == [SseEvent("message", DONE)]


def test_events_and_comments_are_encoded() -> None:
    assert encode("error", b"{}") == b"event: error\ndata: {}\n\n"
    assert encode("error", b"a\rb") == b"event: error\ndata: a\ndata: b\n\n"
    assert encode("error", b"a\nb\r\nc\r") == b"event: error\ndata: a\ndata: b\ndata: c\ndata: \n\n"
    assert encode_comment() == b": \n\n"
    assert encode_comment("still\nhere") == b": still\n: here\n\n"


@pytest.mark.parametrize("break_", ["\n", "\r", "\r\n"])
def test_an_event_type_with_a_line_break_is_rejected(break_: str) -> None:
    with pytest.raises(StreamError, match="holds a line break"):
        encode(f"error{break_}data: x", b"{}")


names = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(names, st.text("ab\n é") | names)), st.data())
def test_encoded_events_are_decoded(sent: list[tuple[str, str]], data: st.DataObject) -> None:
    frames = [encode_comment(name) + encode(name, text.encode()) for name, text in sent]
    stream = b"".join(frames)
    positions = data.draw(st.lists(st.integers(0, len(stream))))
    expected = [SseEvent(name, text.encode()) for name, text in sent]
    assert read(cut(stream, positions)) == expected
