"""What is sent back with the reasoning of a chat, received in any order."""

import json
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.adapters.conversation import make_legal_id
from antiphon.adapters.open_responses.adapter import encode_items
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.openai_chat.decode import ChatDecoder
from antiphon.adapters.openai_chat.encode import LEGAL_CALL_ID
from antiphon.protocol.parts import Reasoning
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.chat_summary import HELLO
from tests.adapters.run_adapter import decode_response, encode_request, make_adapter
from tests.adapters.scenes import TOOL
from tests.adapters.scenes.openai import (
    BERLIN,
    PARIS,
    call,
    call_arguments,
    call_start,
    calls,
    chunk,
    frame,
    stream,
    whole,
)

CHAT = make_adapter(OpenAI, base_url="http://localhost:8000/v1")
EXTRA = {"extra_content": {"google": {"thought_signature": "SIG=="}}}
OTHER = {"extra_content": {"vertex": {"thought_signature": "TWO=="}}}
BITS = [{"type": "reasoning.text", "text": text, "index": 0} for text in ("Let me", " look.")]
DETAIL = {"type": "reasoning.text", "text": "Let me look.", "index": 0}


def decode_deltas(*deltas: dict, pieces: int = 0) -> Response:
    """Hear a stream."""
    body = stream(*deltas, finish="tool_calls" if "tool_calls" in deltas[-1] else "stop")
    return decode_response(encode_request(CHAT, stream=True, tools=[TOOL]), body, pieces=pieces)


def reasoning_with_detail(text: str, bit: dict) -> dict[str, Any]:
    """Make a delta of thinking."""
    return {"content": "", "reasoning": text, "reasoning_details": [bit]}


def sealed_values(response: Response) -> list[tuple[str, Any]]:
    """Return the types of the items, each with what is in its seal."""
    raw: list[Any] = [to_builtins(item) for item in response.output]
    return [(item["type"], json.loads(item.get("encrypted_content", "null"))) for item in raw]


def encode_replay(response: Response) -> dict[str, Any]:
    """Return the assistant's message, as it goes back once every call is answered."""
    said: list[Any] = [to_builtins(item) for item in response.output]
    ids = [item["call_id"] for item in said if item["type"] == "function_call"]
    given = [{"type": "function_call_output", "call_id": id, "output": "21"} for id in ids]
    return encode_request(CHAT, input=[HELLO, *said, *given]).body["messages"][1]


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_details_are_sealed_with_the_reasoning_before_the_text(pieces: int):
    words = [{"content": word} for word in ("Fine", ", ", "and ", "you?")]
    bits = [reasoning_with_detail(bit["text"], bit) for bit in BITS]
    response = decode_deltas(*bits, *words, pieces=pieces)
    assert sealed_values(response) == [("reasoning", {"field": "reasoning", "details": [DETAIL]}), ("message", None)]
    assert response.output_text == "Fine, and you?"


LATER = DETAIL | {"index": 1}
WORDS = [{"content": word} for word in ("One", "Two", "Three")]


@pytest.mark.parametrize("pieces", [0, 1, 7])
@pytest.mark.parametrize(
    "amid",
    [
        [{"reasoning_details": [DETAIL]}],
        [{"reasoning_details": [DETAIL], "content": "Two"}],
        [{"reasoning_details": [DETAIL], "content": ""}],
        [{"content": ""}, {"reasoning_details": [DETAIL]}],
    ],
    ids=["alone", "with words", "with none", "after none"],
)
def test_details_inside_a_text_do_not_split_the_message(amid: list[dict], pieces: int):
    response = decode_deltas(*WORDS, *amid, *WORDS, {"reasoning_details": [LATER]}, pieces=pieces)
    sealed = ("reasoning", {"field": "", "details": [DETAIL, LATER]})
    assert sealed_values(response) == [("message", None), sealed]
    two = "Two" if amid[0].get("content") else ""
    assert response.output_text == f"OneTwoThree{two}OneTwoThree"
    assert encode_replay(response)["reasoning_details"] == [DETAIL, LATER]


def test_details_inside_a_text_are_emitted_before_a_call():
    response = decode_deltas(
        WORDS[0], {"reasoning_details": [DETAIL]}, WORDS[1], calls(call_start(0, "a", "weather", BERLIN))
    )
    sealed = ("reasoning", {"field": "", "details": [DETAIL]})
    assert sealed_values(response) == [("message", None), sealed, ("function_call", None)]


def test_details_inside_a_text_are_emitted_with_the_next_reasoning():
    response = decode_deltas(
        WORDS[0], {"reasoning_details": [DETAIL]}, WORDS[1], reasoning_with_detail("Hm.", LATER), WORDS[2]
    )
    sealed = ("reasoning", {"field": "reasoning", "details": [DETAIL, LATER]})
    assert sealed_values(response) == [("message", None), sealed, ("message", None)]


@pytest.mark.parametrize("first", [{}, {"role": "assistant", "content": ""}])
def test_details_before_the_text_are_emitted_before_it(first: dict):
    response = decode_deltas(first, {"reasoning_details": [DETAIL]}, *WORDS)
    sealed = ("reasoning", {"field": "", "details": [DETAIL]})
    assert sealed_values(response) == [sealed, ("message", None)]


def test_no_chat_seal_is_sent_to_the_responses_api_later():
    beside = calls(call_start(0, "a", "weather", "{}") | EXTRA)
    response = decode_deltas({"reasoning": "Hm."}, {"reasoning_details": [DETAIL]}, beside)
    assert [kind for kind, _ in sealed_values(response)] == ["reasoning", "reasoning", "function_call"]
    told = encode_items(response.output, reasoning=True, is_openai=True)
    assert [item["type"] for item in told] == ["function_call"]


SEALED = {"type": "reasoning.encrypted", "data": "x", "index": 0}


@pytest.mark.parametrize(
    "details",
    [
        [SEALED, SEALED],
        [DETAIL, SEALED],
        [DETAIL, DETAIL | {"index": 1}],
        [DETAIL | {"signature": "S"}, DETAIL | {"signature": "T"}],
        [DETAIL | {"index": None}, DETAIL | {"index": None}],
        [{"type": "unheard_of"}, {"type": "unheard_of"}],
    ],
)
def test_details_that_are_whole_stay_apart(details: list[dict]):
    message = {"reasoning_details": details} | calls(call("a", "weather", BERLIN))
    for response in (
        decode_response(encode_request(CHAT), whole(message, "tool_calls"), stream=False),
        decode_deltas(*[{"reasoning_details": [one]} for one in details], calls(call_start(0, "a", "weather"))),
    ):
        assert encode_replay(response)["reasoning_details"] == details


def test_a_detail_in_very_many_bits_is_put_together_as_they_come():
    bit = frame(chunk({"reasoning_details": [BITS[0] | {"format": "x"}]}))
    decoder = ChatDecoder(CHAT)
    decoder.feed(bit * 100)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            decoder.feed(bit * 100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 10_000 * 4 * len("Let me")
    [seal, _] = decoder.feed(frame(chunk({"content": "Hi"})))
    whole = BITS[0] | {"format": "x", "text": "Let me" * 10_100}
    assert isinstance(seal, Reasoning)
    assert json.loads(seal.encrypted_content or "") == {"field": "", "details": [whole]}


def test_an_emoji_in_halves_is_whole_in_its_detail():
    bits = [DETAIL | {"text": half} for half in ("Sun \ud83c", "\udf1e")]
    response = decode_deltas(*[{"reasoning_details": [bit]} for bit in bits], WORDS[0])
    details = [DETAIL | {"text": "Sun \U0001f31e"}]
    assert sealed_values(response)[0] == ("reasoning", {"field": "", "details": details})


@pytest.mark.parametrize("odd", ["details", {"type": "x"}, [], [None, "x", {}], 7])
def test_details_of_another_shape_are_nothing(odd: object):
    response = decode_deltas({"content": "Hi", "reasoning_details": odd}, {"reasoning_details": odd})
    assert sealed_values(response) == [("message", None)]


@pytest.mark.parametrize(
    "bits",
    [
        [call_start(0, "a", "weather") | EXTRA, call_arguments(0, BERLIN)],
        [call_start(0, "a", "weather"), call_arguments(0, BERLIN) | EXTRA],
        [call_start(0, "a", "weather") | EXTRA, call_arguments(0, BERLIN) | EXTRA],
        [call_start(0, "", "weather") | EXTRA, {"index": 0, "id": "a"}, call_arguments(0, BERLIN)],
        [call_start(0, "a", "weather", BERLIN), {"index": 0} | EXTRA],
    ],
    ids=["first", "later", "in every bit", "before the id", "alone, at the end"],
)
@pytest.mark.parametrize("pieces", [0, 7])
def test_a_signature_in_any_fragment_of_a_call_is_sent_back_with_it(bits: list[dict], pieces: int):
    others = calls(call_start(1, "b", "weather", PARIS))
    response = decode_deltas(*map(calls, bits), others, pieces=pieces)
    assert encode_replay(response)["tool_calls"] == [call("a", "weather", BERLIN) | EXTRA, call("b", "weather", PARIS)]


def test_signed_calls_that_interleave_keep_their_own_signatures():
    response = decode_deltas(
        calls(call_start(0, "a", "weather", BERLIN[:5]) | EXTRA),
        calls(call_start(1, "b", "weather", PARIS[:5]) | OTHER),
        calls(call_arguments(0, BERLIN[5:])),
        calls(call_arguments(1, PARIS[5:])),
    )
    assert encode_replay(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | OTHER,
    ]


@pytest.mark.parametrize("odd", ["SIG==", ["SIG=="], {}, 7])
def test_extra_content_of_another_shape_is_ignored(odd: object):
    response = decode_deltas(calls(call_start(0, "a", "weather", BERLIN) | {"extra_content": odd}))
    assert sealed_values(response) == [("function_call", None)]


def test_thinking_after_a_signed_call_is_marked_again():
    response = decode_deltas(
        calls(call_start(0, "a", "weather", BERLIN)),
        calls({"index": 0} | EXTRA),
        {"reasoning": "And now?"},
        calls(call_start(1, "b", "weather", PARIS)),
    )
    assert sealed_values(response)[2] == ("reasoning", {"field": "reasoning"})
    assert encode_replay(response)["reasoning"] == "And now?"


@pytest.mark.parametrize("second", [{}, OTHER], ids=["one is signed", "both are"])
def test_a_late_signature_is_sent_back_with_its_own_call_although_another_has_begun(second: dict):
    response = decode_deltas(
        calls(call_start(0, "a", "weather", BERLIN)),
        calls(call_start(1, "b", "weather", PARIS) | second),
        calls({"index": 0} | EXTRA),
    )
    assert encode_replay(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | second,
    ]


def test_a_late_signature_is_not_replaced_by_the_next_calls():
    response = decode_deltas(
        calls(call_start(0, "a", "weather", BERLIN)),
        calls({"index": 0} | EXTRA, call_start(1, "b", "weather", PARIS) | OTHER),
    )
    assert encode_replay(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | OTHER,
    ]


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("second", [{}, OTHER], ids=["one is signed", "both are"])
def test_the_signature_of_a_call_that_is_gone_is_left_out(gone: int, second: dict):
    made = [call("a", "weather", BERLIN) | EXTRA, call("b", "weather", PARIS) | second]
    response = decode_response(encode_request(CHAT), whole(calls(*made), "tool_calls"), stream=False)
    left = [item for item in response.output if getattr(item, "call_id", "") != "ab"[gone]]
    assert encode_replay(replace(response, output=left))["tool_calls"] == [made[1 - gone]]


def test_a_signature_and_its_call_may_stand_anywhere_in_their_turn():
    signed, other = decode_deltas(calls(call_start(0, "a", "weather", BERLIN) | EXTRA)).output
    words = {"role": "assistant", "content": "Hi."}
    output = {"type": "function_call_output", "call_id": "a", "output": "21"}
    for said in ([to_builtins(signed), words, to_builtins(other)], [to_builtins(other), words, to_builtins(signed)]):
        sent = encode_request(CHAT, input=[HELLO, *said, output]).body["messages"][1]
        assert sent["tool_calls"] == [call("a", "weather", BERLIN) | EXTRA]


@pytest.mark.parametrize("id", ["", "same", "x" * 65], ids=["none", "the same", "too long"])
def test_calls_whose_ids_tell_nothing_keep_their_signatures_by_their_places(id: str):
    made = [call(id, "weather", BERLIN) | EXTRA, call(id, "weather", PARIS) | OTHER]
    response = decode_response(encode_request(CHAT), whole(calls(*made), "tool_calls"), stream=False)
    sent = encode_replay(response)["tool_calls"]
    assert [one["extra_content"] for one in sent] == [one["extra_content"] for one in (EXTRA, OTHER)]


def test_a_late_signature_of_a_call_without_an_id_is_no_other_calls():
    response = decode_deltas(
        calls(call_start(0, "", "weather", BERLIN)),
        calls({"index": 0} | EXTRA),
        calls(call_start(1, "b", "weather", PARIS)),
    )
    assert [kind for kind, _ in sealed_values(response)] == ["function_call", "function_call"]


def test_a_signature_finds_its_call_though_the_id_is_rewritten_on_its_way_out():
    id = "x" * 50
    response = decode_deltas(calls(call_start(0, id, "weather", BERLIN)), calls({"index": 0} | EXTRA))
    [sent] = encode_replay(response)["tool_calls"]
    assert sent == call(make_legal_id(id, LEGAL_CALL_ID), "weather", BERLIN) | EXTRA
    assert sent["id"] != id


def test_a_signed_call_with_half_an_emoji_as_its_id_keeps_its_signature():
    response = decode_deltas(calls(call_start(0, "a\ud83d", "weather", BERLIN) | EXTRA))
    assert encode_replay(response)["tool_calls"] == [call("a\ufffd", "weather", BERLIN) | EXTRA]


def test_a_seal_of_another_dialect_is_ignored():
    item = {"type": "reasoning", "summary": [], "encrypted_content": '{"on":"call","signature":"S"}'}
    said = [HELLO, item, {"role": "assistant", "content": "Hi."}]
    assert encode_request(CHAT, input=said).body["messages"][1:] == [{"role": "assistant", "content": "Hi."}]
