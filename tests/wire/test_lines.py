"""Lines: what goes in chunk by chunk comes out line by line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.ndjson import LineSplitter


class FramingError(ValueError):
    """What a framing calls its own errors."""


@given(st.lists(st.text("ab\n").map(str.encode)))
def test_chunks_are_joined_and_cut_at_newlines_only(chunks: list[bytes]) -> None:
    lines = LineSplitter(1000, ValueError)
    whole = b"".join(chunks).split(b"\n")
    assert [line for chunk in chunks for line in lines.feed(chunk)] == whole[:-1]
    assert bytes(lines.remainder) == whole[-1]
    assert lines.close() == [line for line in whole[-1:] if line]
    assert lines.close() == []


@given(st.lists(st.text("ab\n").map(str.encode)), st.integers(0, 8))
def test_a_line_beyond_the_limit_is_refused(chunks: list[bytes], limit: int) -> None:
    longest = max(map(len, b"".join(chunks).split(b"\n")))
    lines = LineSplitter(limit, FramingError)
    expected = (
        contextlib.nullcontext()
        if longest <= limit
        else pytest.raises(FramingError, match=f"^A line has more than {limit} bytes")
    )
    with expected:
        list(map(lines.feed, chunks))
