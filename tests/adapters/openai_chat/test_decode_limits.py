"""Answers that would fill the memory: many calls, and large chunks of many small values."""

import pytest

from antiphon.adapters.openai_chat.decode import MAX_CALLS, ChatDecoder
from antiphon.protocol import parts
from tests.adapters.openai_chat.test_fast_text import CHAT
from tests.adapters.scenes.openai import chunk, frame


def nameless_calls(count: int) -> bytes:
    """Return a chunk with calls that wait for their names."""
    fragments = [{"index": index, "function": {"arguments": "{"}} for index in range(count)]
    return frame(chunk({"tool_calls": fragments}))


def test_too_many_calls_are_a_failure() -> None:
    decoder = ChatDecoder(CHAT)
    assert decoder.feed(nameless_calls(MAX_CALLS)) == []
    (failure,) = decoder.feed(nameless_calls(MAX_CALLS + 1))
    assert isinstance(failure, parts.Failure)
    assert failure.error.code == "upstream_invalid"
    assert f"more than {MAX_CALLS} calls" in failure.error.message


@pytest.mark.parametrize("field", [b"choices", b"unknown"])
def test_a_chunk_of_too_many_values_is_a_failure(field: bytes) -> None:
    data = b'data: {"%b":[%b{}]}\n\n' % (field, b"{}," * 1_000_000)
    (failure,) = ChatDecoder(CHAT).feed(data)
    assert isinstance(failure, parts.Failure)
    assert "more than 1000000 brackets and commas" in failure.error.message
