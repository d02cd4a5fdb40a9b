"""Newline-delimited JSON and the line splitter: any chunking, within the limit."""

import contextlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire import json
from antiphon.wire.sse import LineSplitter, NdjsonDecoder, StreamError

STREAM = '{"a":1}\n\n  \r\n{"b": "é😀"}\r\n\t[1,\r2] \n"last"'.encode()
TEXTS = [b'{"a":1}', '{"b": "é😀"}'.encode(), b"[1,\r2]", b'"last"']


def read(chunks: Iterable[bytes], max_line: int = 1_000_000) -> list[bytes]:
    decoder = NdjsonDecoder(max_line)
    texts = [text for chunk in chunks for text in decoder.feed(chunk)]
    return texts + decoder.close()


def test_every_split_in_two_gives_the_same_texts() -> None:
    for position in range(len(STREAM) + 1):
        assert read([STREAM[:position], STREAM[position:]]) == TEXTS


def test_byte_by_byte_gives_the_same_texts() -> None:
    assert read(STREAM[n : n + 1] for n in range(len(STREAM))) == TEXTS


def test_a_text_is_returned_with_its_newline() -> None:
    decoder = NdjsonDecoder()
    assert decoder.feed(b'{"a"') == []
    assert decoder.feed(b':1}\n{"b":2') == [b'{"a":1}']
    assert decoder.close() == [b'{"b":2']
    assert decoder.close() == []


def test_a_line_longer_than_the_limit_is_rejected() -> None:
    assert read([b"123456789\n" * 5, b"1234", b"56789"], 9) == [b"123456789"] * 6
    for chunks in ([b"1\n1234567890\n"], [b"12345", b"67890"], [b"1\n", b"1234567890"]):
        with pytest.raises(StreamError) as caught:
            read(chunks, 9)
        message = "A line has more than 9 bytes. Raise the limit if it should pass."
        assert str(caught.value) == message


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text())), st.data())
def test_any_texts_in_any_chunking_are_decoded(values: list[object], data: st.DataObject) -> None:
    stream = b"".join(json.encode(value) + b"\n" for value in values)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream))))), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert [json.decode(text) for text in read(chunks)] == values


@given(st.lists(st.text("ab\n").map(str.encode)))
def test_any_chunks_are_split_at_newlines(chunks: list[bytes]) -> None:
    lines = LineSplitter(1000)
    whole = b"".join(chunks).split(b"\n")
    assert [line for chunk in chunks for line in lines.feed(chunk)] == whole[:-1]
    assert bytes(lines.remainder) == whole[-1]
    assert lines.close() == [line for line in whole[-1:] if line]
    assert lines.close() == []


@given(st.lists(st.text("ab\n").map(str.encode)), st.integers(0, 8))
def test_a_line_is_rejected_exactly_above_the_limit(chunks: list[bytes], limit: int) -> None:
    longest = max(map(len, b"".join(chunks).split(b"\n")))
    lines = LineSplitter(limit)
    expected = (
        contextlib.nullcontext()
        if longest <= limit
        else pytest.raises(StreamError, match=f"^A line has more than {limit} bytes")
    )
    with expected:
        list(map(lines.feed, chunks))
