"""The text fast path decodes the same parts as the slow path."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.openai import OpenAI
from antiphon.adapters.openai_chat.decode import ChatDecoder, text_in_chunk
from antiphon.adapters.openai_chat.fast_text import MAX_CHUNK_BYTES, ChatTextFastPath
from antiphon.protocol.parts import Part, Reasoning, Text
from tests.adapters.run_adapter import make_adapter
from tests.adapters.scenes.openai import chunk, frame, stream

CHAT = make_adapter(OpenAI, base_url="http://localhost:8000/v1", name="local")

# Words as they come, words that look like something else, and things that are no words at all.
WORDS = st.text() | st.sampled_from(
    [" word", "hi", '"', "\\", "\n", "\x00", "\x7f", "\u2028", "👩‍👧", "é", "data: {}", "[DONE]", '"}']
)
DELTAS = st.one_of(
    WORDS.map(lambda words: {"content": words}),
    WORDS.map(lambda words: {"reasoning_content": words}),
    st.sampled_from([{}, {"content": None}, {"content": "x", "refusal": "y"}, {"role": "assistant"}]),
)
EXTRAS = st.fixed_dictionaries(
    {}, optional={"model": st.sampled_from(["hi", " word"]), "obfuscation": st.text(max_size=3)}
)
CHUNKS = st.builds(
    lambda delta, finish, more, escaped: (
        b"data: " + json.dumps(chunk(delta, finish, **more), ensure_ascii=escaped).encode(errors="replace") + b"\n\n"
    ),
    DELTAS,
    st.sampled_from([None, None, None, "stop"]),
    EXTRAS,
    st.booleans(),
)
NOISE = st.sampled_from([b": a comment\n\n", b"event: error\n", b"data: {\n", b"\n", b"\r\n", b"data: {\n\n", b"\xff"])
STREAMS = st.lists(CHUNKS | CHUNKS | CHUNKS | NOISE, max_size=12)


def decode_all(decoder: ChatDecoder, pieces: list[bytes]) -> list[Part]:
    """Return the parts of a stream, by the fast path where it applies."""
    told: list[Part] = []
    for piece in pieces:
        words = decoder.text_fast_path if told and isinstance(told[-1], Text) else None
        said = words(piece) if words else None
        told += map(Text, said) if said else decoder.feed(piece)
    return told + decoder.close()


def slow_decoder() -> ChatDecoder:
    """Make a decoder that reads everything in full."""
    decoder = ChatDecoder(CHAT)
    decoder._fast_text.attempts_left = 0  # pyright: ignore[reportPrivateUsage]
    return decoder


@given(STREAMS, st.lists(st.integers(0, 4000)))
def test_the_fast_path_decodes_the_same_parts_as_the_slow_path(chunks: list[bytes], cuts: list[int]):
    whole = b"".join(chunks)
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(places)]
    for some in (chunks, pieces, [whole]):
        assert decode_all(ChatDecoder(CHAT), some) == decode_all(slow_decoder(), some)


def chunk_json(words: str, **more: str) -> bytes:
    """Write a chunk as JSON."""
    return json.dumps(chunk({"content": words}) | more, ensure_ascii=False).encode()


def event(words: str, **more: str) -> bytes:
    """Write a chunk as an event."""
    return b"data: " + chunk_json(words, **more) + b"\n\n"


def learned_path(words: str = "Hello", **more: str) -> ChatTextFastPath:
    """Make a refrain that has learnt from one chunk."""
    refrain = ChatTextFastPath()
    refrain.learn(chunk_json(words, **more), words, text_in_chunk)
    return refrain


def test_texts_are_extracted_one_by_one_and_several_at_once():
    refrain = learned_path()
    assert refrain.extract_texts(event(" dear")) == [" dear"]
    assert refrain.extract_texts(event(" wörld") + event("!")) == [" wörld", "!"]


@pytest.mark.parametrize(
    "data",
    [
        event("Hello")[:-1],
        event("Hello") + event("Hello")[:9],
        event('Say "hi"'),
        event("a\nb"),
        event(""),
        event("Hello", model="another"),
        event("Hello") + event("Hello", model="another"),
        frame(chunk({"content": "Hello"}, "stop")),
        event("Hello").replace(b"Hello", b'Hello","refusal":"no'),
        event("Hello").replace(b"Hello", b"\xff"),
        event("Hello").replace(b"Hello", b"a\x00b"),
        event("Hello").replace(b"\n\n", b"\r\n\r\n"),
        b"data: [DONE]\n\n",
    ],
)
def test_chunks_that_differ_take_the_slow_path(data: bytes):
    assert learned_path().extract_texts(data) is None


def test_the_fast_path_is_off_before_a_chunk_was_learned():
    assert ChatTextFastPath().extract_texts(event("Hello")) is None


def test_a_word_that_stands_elsewhere_too_is_not_taken_for_the_place():
    assert learned_path("gpt", model="gpt").extract_texts(event("gpt", model="another")) is None


@pytest.mark.parametrize("words", [",", ":", "}", "content", "delta", "choices", "id"])
def test_text_that_looks_like_json_does_no_harm(words: str):
    decoder = ChatDecoder(CHAT)
    compact = json.dumps(chunk({"content": words}), separators=(",", ":")).encode()
    for _ in range(5):
        assert decoder.feed(b"data: " + compact + b"\n\n") == [Text(words)]


def test_a_very_long_chunk_is_not_learned():
    assert learned_path(model="m" * MAX_CHUNK_BYTES).extract_texts(event("Hello", model="m" * MAX_CHUNK_BYTES)) is None


def test_a_stream_whose_chunks_differ_is_learned_only_a_few_times():
    decoder = ChatDecoder(CHAT)
    for number in range(9):
        assert decoder.feed(event("a", obfuscation=str(number))) == [Text("a")]
    assert decoder._fast_text.attempts_left == 0  # pyright: ignore[reportPrivateUsage]


def test_reasoning_after_text_is_a_new_item():
    thought = frame(chunk({"reasoning_content": "Hm."}))
    decoder = ChatDecoder(CHAT)
    parts = decode_all(decoder, [event("a"), event("b"), thought, event("c"), thought])
    marks = [part.encrypted_content for part in parts if isinstance(part, Reasoning)]
    assert marks == ['{"field":"reasoning_content"}'] * 2


def test_an_event_that_goes_on_is_read_in_full():
    pieces = [event("a"), event("b"), b"event: error\n", event("c")]
    assert decode_all(ChatDecoder(CHAT), pieces) == decode_all(slow_decoder(), pieces)


def test_everything_after_the_end_is_ignored():
    decoder = ChatDecoder(CHAT)
    decoder.feed(stream({"content": "a"}, {"content": "b"}))
    assert decoder.done
    assert decoder.feed(event("c")) == []
