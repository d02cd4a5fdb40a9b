"""What a chat's thinking has to go back with, heard in any order."""

import json
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.adapters.chat.answer import ChatDecoder
from antiphon.adapters.chat.conversation import CALL_ID
from antiphon.adapters.openai import OpenAI
from antiphon.adapters.responses import written
from antiphon.adapters.story import legal_id
from antiphon.core.parts import Reasoning
from antiphon.core.response import Response
from antiphon.core.value import plain
from tests.adapters.chatting import HELLO
from tests.adapters.hearing import answered, asked, made
from tests.adapters.scripts import TOOL
from tests.adapters.scripts.openai import (
    BERLIN,
    PARIS,
    begin,
    call,
    calls,
    chunk,
    frame,
    more,
    stream,
    whole,
)

CHAT = made(OpenAI, base_url="http://localhost:8000/v1")
EXTRA = {"extra_content": {"google": {"thought_signature": "SIG=="}}}
OTHER = {"extra_content": {"vertex": {"thought_signature": "TWO=="}}}
BITS = [{"type": "reasoning.text", "text": text, "index": 0} for text in ("Let me", " look.")]
DETAIL = {"type": "reasoning.text", "text": "Let me look.", "index": 0}


def streamed(*deltas: dict, pieces: int = 0) -> Response:
    """Hear a stream."""
    body = stream(*deltas, finish="tool_calls" if "tool_calls" in deltas[-1] else "stop")
    return answered(asked(CHAT, stream=True, tools=[TOOL]), body, pieces=pieces)


def thought(text: str, bit: dict) -> dict[str, Any]:
    """Make a delta of thinking."""
    return {"content": "", "reasoning": text, "reasoning_details": [bit]}


def seals(response: Response) -> list[tuple[str, Any]]:
    """Return the types of the items, each with what is in its seal."""
    raw: list[Any] = [plain(item) for item in response.output]
    return [(item["type"], json.loads(item.get("encrypted_content", "null"))) for item in raw]


def back(response: Response) -> dict[str, Any]:
    """Return the assistant's message, as it goes back once every call is answered."""
    said: list[Any] = [plain(item) for item in response.output]
    ids = [item["call_id"] for item in said if item["type"] == "function_call"]
    given = [{"type": "function_call_output", "call_id": id, "output": "21"} for id in ids]
    return asked(CHAT, input=[HELLO, *said, *given]).body["messages"][1]


@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_details_are_sealed_with_the_thinking_before_the_words(pieces: int):
    words = [{"content": word} for word in ("Fine", ", ", "and ", "you?")]
    bits = [thought(bit["text"], bit) for bit in BITS]
    response = streamed(*bits, *words, pieces=pieces)
    assert seals(response) == [
        ("reasoning", {"field": "reasoning", "details": [DETAIL]}),
        ("message", None),
    ]
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
def test_details_amid_the_words_leave_them_one_message(amid: list[dict], pieces: int):
    response = streamed(*WORDS, *amid, *WORDS, {"reasoning_details": [LATER]}, pieces=pieces)
    sealed = ("reasoning", {"field": "", "details": [DETAIL, LATER]})
    assert seals(response) == [("message", None), sealed]
    two = "Two" if amid[0].get("content") else ""
    assert response.output_text == f"OneTwoThree{two}OneTwoThree"
    assert back(response)["reasoning_details"] == [DETAIL, LATER]


def test_details_amid_the_words_are_told_before_a_call():
    response = streamed(
        WORDS[0], {"reasoning_details": [DETAIL]}, WORDS[1], calls(begin(0, "a", "weather", BERLIN))
    )
    sealed = ("reasoning", {"field": "", "details": [DETAIL]})
    assert seals(response) == [("message", None), sealed, ("function_call", None)]


def test_details_amid_the_words_are_told_with_the_next_thinking():
    response = streamed(
        WORDS[0], {"reasoning_details": [DETAIL]}, WORDS[1], thought("Hm.", LATER), WORDS[2]
    )
    sealed = ("reasoning", {"field": "reasoning", "details": [DETAIL, LATER]})
    assert seals(response) == [("message", None), sealed, ("message", None)]


@pytest.mark.parametrize("first", [{}, {"role": "assistant", "content": ""}])
def test_details_before_any_words_are_told_before_them(first: dict):
    response = streamed(first, {"reasoning_details": [DETAIL]}, *WORDS)
    sealed = ("reasoning", {"field": "", "details": [DETAIL]})
    assert seals(response) == [sealed, ("message", None)]


def test_no_seal_of_a_chat_goes_to_a_model_that_is_asked_in_responses_later():
    beside = calls(begin(0, "a", "weather", "{}") | EXTRA)
    response = streamed({"reasoning": "Hm."}, {"reasoning_details": [DETAIL]}, beside)
    assert [kind for kind, _ in seals(response)] == ["reasoning", "reasoning", "function_call"]
    told = written(response.output, thinks=True, own=True)
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
        answered(asked(CHAT), whole(message, "tool_calls"), stream=False),
        streamed(
            *[{"reasoning_details": [one]} for one in details], calls(begin(0, "a", "weather"))
        ),
    ):
        assert back(response)["reasoning_details"] == details


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
    response = streamed(*[{"reasoning_details": [bit]} for bit in bits], WORDS[0])
    details = [DETAIL | {"text": "Sun \U0001f31e"}]
    assert seals(response)[0] == ("reasoning", {"field": "", "details": details})


@pytest.mark.parametrize("odd", ["details", {"type": "x"}, [], [None, "x", {}], 7])
def test_details_of_another_shape_are_nothing(odd: object):
    response = streamed({"content": "Hi", "reasoning_details": odd}, {"reasoning_details": odd})
    assert seals(response) == [("message", None)]


@pytest.mark.parametrize(
    "bits",
    [
        [begin(0, "a", "weather") | EXTRA, more(0, BERLIN)],
        [begin(0, "a", "weather"), more(0, BERLIN) | EXTRA],
        [begin(0, "a", "weather") | EXTRA, more(0, BERLIN) | EXTRA],
        [begin(0, "", "weather") | EXTRA, {"index": 0, "id": "a"}, more(0, BERLIN)],
        [begin(0, "a", "weather", BERLIN), {"index": 0} | EXTRA],
    ],
    ids=["first", "later", "in every bit", "before the id", "alone, at the end"],
)
@pytest.mark.parametrize("pieces", [0, 7])
def test_a_signature_in_any_bit_of_a_call_goes_back_on_it(bits: list[dict], pieces: int):
    others = calls(begin(1, "b", "weather", PARIS))
    response = streamed(*map(calls, bits), others, pieces=pieces)
    assert back(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS),
    ]


def test_signed_calls_that_interleave_keep_their_own_signatures():
    response = streamed(
        calls(begin(0, "a", "weather", BERLIN[:5]) | EXTRA),
        calls(begin(1, "b", "weather", PARIS[:5]) | OTHER),
        calls(more(0, BERLIN[5:])),
        calls(more(1, PARIS[5:])),
    )
    assert back(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | OTHER,
    ]


@pytest.mark.parametrize("odd", ["SIG==", ["SIG=="], {}, 7])
def test_what_stands_beside_a_call_in_another_shape_is_nothing(odd: object):
    response = streamed(calls(begin(0, "a", "weather", BERLIN) | {"extra_content": odd}))
    assert seals(response) == [("function_call", None)]


def test_thinking_after_a_signed_call_is_marked_again():
    response = streamed(
        calls(begin(0, "a", "weather", BERLIN)),
        calls({"index": 0} | EXTRA),
        {"reasoning": "And now?"},
        calls(begin(1, "b", "weather", PARIS)),
    )
    assert seals(response)[2] == ("reasoning", {"field": "reasoning"})
    assert back(response)["reasoning"] == "And now?"


@pytest.mark.parametrize("second", [{}, OTHER], ids=["one is signed", "both are"])
def test_a_late_signature_goes_back_on_its_own_call_though_another_has_begun(second: dict):
    response = streamed(
        calls(begin(0, "a", "weather", BERLIN)),
        calls(begin(1, "b", "weather", PARIS) | second),
        calls({"index": 0} | EXTRA),
    )
    assert back(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | second,
    ]


def test_a_late_signature_is_not_replaced_by_the_next_calls():
    response = streamed(
        calls(begin(0, "a", "weather", BERLIN)),
        calls({"index": 0} | EXTRA, begin(1, "b", "weather", PARIS) | OTHER),
    )
    assert back(response)["tool_calls"] == [
        call("a", "weather", BERLIN) | EXTRA,
        call("b", "weather", PARIS) | OTHER,
    ]


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("second", [{}, OTHER], ids=["one is signed", "both are"])
def test_the_signature_of_a_call_that_is_gone_is_left_out(gone: int, second: dict):
    made = [call("a", "weather", BERLIN) | EXTRA, call("b", "weather", PARIS) | second]
    response = answered(asked(CHAT), whole(calls(*made), "tool_calls"), stream=False)
    left = [item for item in response.output if getattr(item, "call_id", "") != "ab"[gone]]
    assert back(replace(response, output=left))["tool_calls"] == [made[1 - gone]]


def test_a_signature_and_its_call_may_stand_anywhere_in_their_turn():
    signed, other = streamed(calls(begin(0, "a", "weather", BERLIN) | EXTRA)).output
    words = {"role": "assistant", "content": "Hi."}
    output = {"type": "function_call_output", "call_id": "a", "output": "21"}
    for said in ([plain(signed), words, plain(other)], [plain(other), words, plain(signed)]):
        sent = asked(CHAT, input=[HELLO, *said, output]).body["messages"][1]
        assert sent["tool_calls"] == [call("a", "weather", BERLIN) | EXTRA]


@pytest.mark.parametrize("id", ["", "same", "x" * 65], ids=["none", "the same", "too long"])
def test_calls_whose_ids_tell_nothing_keep_their_signatures_by_their_places(id: str):
    made = [call(id, "weather", BERLIN) | EXTRA, call(id, "weather", PARIS) | OTHER]
    response = answered(asked(CHAT), whole(calls(*made), "tool_calls"), stream=False)
    sent = back(response)["tool_calls"]
    assert [one["extra_content"] for one in sent] == [
        one["extra_content"] for one in (EXTRA, OTHER)
    ]


def test_a_late_signature_of_a_call_without_an_id_is_no_other_calls():
    response = streamed(
        calls(begin(0, "", "weather", BERLIN)),
        calls({"index": 0} | EXTRA),
        calls(begin(1, "b", "weather", PARIS)),
    )
    assert [kind for kind, _ in seals(response)] == ["function_call", "function_call"]


def test_a_signature_finds_its_call_though_the_id_is_rewritten_on_its_way_out():
    id = "x" * 50
    response = streamed(calls(begin(0, id, "weather", BERLIN)), calls({"index": 0} | EXTRA))
    [sent] = back(response)["tool_calls"]
    assert sent == call(legal_id(id, CALL_ID), "weather", BERLIN) | EXTRA
    assert sent["id"] != id


def test_a_signed_call_whose_id_is_half_an_emoji_is_told_and_signed():
    response = streamed(calls(begin(0, "a\ud83d", "weather", BERLIN) | EXTRA))
    assert back(response)["tool_calls"] == [call("a\ufffd", "weather", BERLIN) | EXTRA]


def test_a_seal_of_another_dialect_says_nothing_here():
    item = {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": '{"on":"call","signature":"S"}',
    }
    said = [HELLO, item, {"role": "assistant", "content": "Hi."}]
    assert asked(CHAT, input=said).body["messages"][1:] == [{"role": "assistant", "content": "Hi."}]
