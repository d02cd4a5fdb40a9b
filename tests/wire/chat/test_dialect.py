"""Chunks and completions, and that openai-python accumulates one into the other."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from antiphon.protocol import parts
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import (
    Event,
    ItemEvent,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningSummaryTextDelta,
    RefusalDelta,
)
from antiphon.protocol.items import (
    ExtensionAnnotation,
    ExtensionItem,
    FunctionCall,
    FunctionCallOutput,
    LogProb,
    UrlCitation,
)
from antiphon.protocol.parts import Part
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionTool
from antiphon.wire.chat.dialect import ChatDialect
from antiphon.wire.chat.request import ChatRequest
from tests.protocol.builders import NOW, final_response, make_message, make_response, synthesize
from tests.protocol.strategies import part_lists

Json = dict[str, Any]

OFFERED = ChatRequest(Request(model="m", tools=[FunctionTool(name="f")]))
COUNTED = ChatRequest(Request(model="m", tools=[FunctionTool(name="f")]), include_usage=True)
NOTHING = ChatRequest(Request(model="m"))
MISHAP = ErrorPayload(message="It broke.", type="model_error", code="overloaded")
CHANCE = LogProb(token="Hi", logprob=-0.5, bytes=[72, 105], top_logprobs=[])


def chunks(*stream_parts: Part, chat_request: ChatRequest = OFFERED) -> list[Json]:
    """Return the chunks of some parts."""
    return decode_sse(synthesize(*stream_parts), chat_request)


def decode_sse(events: list[Event], chat_request: ChatRequest = OFFERED) -> list[Json]:
    """Return the chunks of an SSE stream."""
    dialect = ChatDialect(chat_request)
    frames = b"".join(map(dialect.encode_sse, events)).decode().split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: {") and "\n" not in frame for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def deltas(*stream_parts: Part, chat_request: ChatRequest = OFFERED) -> list[Json]:
    """Return the delta of each chunk."""
    encoded = chunks(*stream_parts, chat_request=chat_request)
    return [choice["delta"] for chunk in encoded for choice in chunk["choices"]]


def encode_whole(response: Response, chat_request: ChatRequest = OFFERED) -> Json:
    """Return a response as a completion."""
    return json.loads(ChatDialect(chat_request).encode_response(response))


def answer(*stream_parts: Part, chat_request: ChatRequest = OFFERED) -> Json:
    """Return the message of some parts."""
    return encode_whole(final_response(synthesize(*stream_parts)), chat_request)["choices"][0]["message"]


def call(index: int, id: str, name: str, arguments: str) -> Json:
    """Return a call's first fragment."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}


def more(index: int, arguments: str) -> Json:
    """Return a call's next fragment."""
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


ROLE = {"role": "assistant", "content": None}


def test_every_chunk_is_a_complete_object():
    same = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": NOW, "model": "m"}
    first = {"index": 0, "logprobs": None, "finish_reason": None}
    tokens = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    stream_parts = (parts.Text("Hi"), parts.Text(" there"), parts.Usage(5, 2, 3, 1))
    assert chunks(*stream_parts, chat_request=COUNTED) == [
        same | {"choices": [first | {"delta": {"role": "assistant", "content": ""}}], "usage": None},
        same | {"choices": [first | {"delta": {"content": "Hi"}}], "usage": None},
        same | {"choices": [first | {"delta": {"content": " there"}}], "usage": None},
        same | {"choices": [first | {"delta": {}, "finish_reason": "stop"}], "usage": None, "service_tier": "default"},
        same | {"choices": [], "usage": tokens},
    ]
    assert not any("usage" in chunk for chunk in chunks(*stream_parts))


def test_calls_are_indexed_from_zero_and_named_once():
    assert deltas(
        parts.Text("Wait."),
        parts.Call("a", "f", '{"x":', "call_a"),
        parts.Call("b", "f", "", "call_b"),
        parts.Call("a", arguments="1}"),
        parts.Call("b", arguments="{}"),
    ) == [
        {"role": "assistant", "content": ""},
        {"content": "Wait."},
        call(0, "call_a", "f", ""),
        more(0, '{"x":'),
        call(1, "call_b", "f", ""),
        more(0, "1}"),
        more(1, "{}"),
        {},
    ]


def test_an_agents_own_calls_are_not_sent():
    """A call without an output is sent, at the end."""
    own = FunctionCall(call_id="own", name="search", arguments="{}")
    stream_parts = (
        parts.Whole(own),
        parts.Whole(FunctionCallOutput(call_id="own", output="Found.")),
        parts.Call("x", "unknown", '{"a":1}', "call_x", complete=True),
        parts.Call("f", "f", "{}", "call_f", complete=True),
        parts.Text("Here."),
    )
    assert deltas(*stream_parts) == [
        ROLE,
        call(0, "call_f", "f", ""),
        more(0, "{}"),
        {"content": "Here."},
        call(1, "call_x", "unknown", '{"a":1}'),
        {},
    ]
    shown = [one["function"]["name"] for one in answer(*stream_parts)["tool_calls"]]
    assert shown == ["f", "unknown"]
    encoded = deltas(*stream_parts[:2], parts.Text("Here."), chat_request=NOTHING)
    assert encoded == [{"role": "assistant", "content": ""}, {"content": "Here."}, {}]


def test_custom_calls_are_sent_whole():
    fields: dict[str, object] = {"call_id": "c", "name": "sql", "input": "SELECT 1"}
    item = ExtensionItem(type="openai:custom_tool_call", extra=fields)
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    assert deltas(parts.Whole(item)) == [ROLE, {"tool_calls": [{"index": 0, **custom}]}, {}]
    assert answer(parts.Whole(item))["tool_calls"] == [custom]


def test_an_empty_delta_is_no_chunk():
    dialect = ChatDialect(OFFERED)
    for event in synthesize(parts.Reasoning("Hm."), parts.Text("Hi")):
        if isinstance(event, OutputTextDelta | ReasoningDelta):
            assert dialect.encode_sse(replace(event, delta="")) == b""
            assert dialect.encode_sse(event)


def test_reasoning_content_is_raw_or_else_the_summary():
    raw, summary = parts.Reasoning("Hm. "), parts.Reasoning(summary="Thought.")
    also = parts.Reasoning(summary="More.", part=1)
    thought = {"reasoning_content": "Hm. "}
    assert deltas(raw, summary, parts.Text("Hi")) == [ROLE, thought, {"content": "Hi"}, {}]
    assert answer(raw, summary, parts.Text("Hi"))["reasoning_content"] == "Hm. "
    assert deltas(summary, also) == [
        ROLE,
        {"reasoning_content": "Thought."},
        {"reasoning_content": "\n\nMore."},
        {"content": ""},
        {},
    ]
    assert answer(summary, also)["reasoning_content"] == "Thought.\n\nMore."


def test_messages_are_separated_by_a_blank_line_and_parts_are_not():
    stream_parts = (
        parts.Text("One", key=0),
        parts.Text(", two", key=0, part=1),
        parts.Text("Three", key=1),
        parts.Text(".", key=1),
    )
    texts = ["", "One", ", two", "\n\nThree", "."]
    assert [delta.get("content") for delta in deltas(*stream_parts)] == [*texts, None]
    assert answer(*stream_parts)["content"] == "One, two\n\nThree."


def test_the_content_of_a_refusal_is_null():
    stream_parts = (parts.Refusal("I will"), parts.Refusal(" not."))
    assert deltas(*stream_parts) == [ROLE, {"refusal": "I will"}, {"refusal": " not."}, {}]
    assert answer(*stream_parts) == {"role": "assistant", "content": None, "refusal": "I will not.", "annotations": []}


def test_a_response_without_text_has_empty_content():
    assert deltas() == [{"role": "assistant", "content": ""}, {"content": ""}, {}]
    assert answer()["content"] == ""


def test_citations_come_last_with_positions_in_the_joined_content():
    cited = UrlCitation(url="https://a.example", title="A", start_index=0, end_index=3)
    other = ExtensionAnnotation(type="openai:file_citation", extra={"file_id": "f"})
    stream_parts = (
        parts.Text("One", key=0),
        parts.Text("Two", key=1),
        parts.Annotation(cited, key=1),
        parts.Annotation(other, key=1),
    )
    place = {"start_index": 5, "end_index": 8, "title": "A", "url": "https://a.example"}
    notes = [{"type": "url_citation", "url_citation": place}]
    assert deltas(*stream_parts)[-2:] == [{"annotations": notes}, {}]
    assert answer(*stream_parts)["annotations"] == notes
    assert answer(*stream_parts)["content"][5:8] == "Two"


def test_logprobs_are_sent_with_their_text():
    encoded = chunks(parts.Text("Hi", logprobs=[CHANCE]), parts.Text("!"))
    counted = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    probable = {"content": [counted], "refusal": None}
    assert [chunk["choices"][0]["logprobs"] for chunk in encoded] == [None, probable, None, None]
    response = final_response(synthesize(parts.Text("Hi", logprobs=[CHANCE]), parts.Text("!")))
    assert encode_whole(response)["choices"][0]["logprobs"] == probable


def test_obfuscation_is_a_field_beside_choices():
    stream_parts = (parts.Reasoning("Hm."), parts.Text("Hi"), parts.Text("!"), parts.Call(0, "f", "{}"))
    events = synthesize(*stream_parts, obfuscate=lambda text: "x" * len(text))
    noise = [chunk.get("obfuscation") for chunk in decode_sse(events)]
    assert noise == [None, "xxx", "xx", "x", None, "xx", None]


def test_events_without_a_chat_equivalent_are_left_out():
    searched = ExtensionItem(type="openai:web_search_call", extra={"action": {}})
    encoded = deltas(parts.Extension("acme:tick", {}), parts.Whole(searched), parts.Text("Hi"))
    assert encoded == [{"role": "assistant", "content": ""}, {"content": "Hi"}, {}]


def finish(*stream_parts: Part) -> str:
    """Return the finish reason, which chunks and completion must agree on."""
    events = synthesize(*stream_parts)
    reason = encode_whole(final_response(events))["choices"][0]["finish_reason"]
    assert decode_sse(events)[-1]["choices"][0]["finish_reason"] == reason
    return reason


def test_finish_reasons():
    calling = parts.Call(0, "f", "{}", complete=True)
    assert finish(parts.Text("Hi")) == "stop"
    assert finish(parts.Text("Hi"), parts.Finish("stop")) == "stop"
    assert finish(calling) == "tool_calls"
    assert finish(parts.Text("Hi"), parts.Finish("length")) == "length"
    assert finish(calling, parts.Finish("length")) == "length"
    assert finish(parts.Finish("content_filter")) == "content_filter"
    assert finish(parts.Finish("cancelled")) == "stop"


def test_a_failed_stream_ends_with_an_error():
    *stream_parts, last = chunks(parts.Text("Hi"), parts.Failure(MISHAP))
    assert [chunk["choices"][0]["delta"].get("content") for chunk in stream_parts] == ["", "Hi"]
    error = {"message": "It broke.", "type": "server_error", "param": None, "code": "overloaded"}
    assert last == {"error": error}


def test_warnings_have_the_chats_parameter_names():
    warned = parts.Warn("unsupported_parameter", "Left out.", "text.verbosity")
    encoded = [{"code": "unsupported_parameter", "message": "Left out.", "param": "verbosity"}]
    response = final_response(synthesize(warned, parts.Warn("usage_estimated", "Guessed.")))
    estimated = {"code": "usage_estimated", "message": "Guessed."}
    assert encode_whole(response)["antiphon:warnings"] == [*encoded, estimated]
    assert chunks(warned)[-1]["antiphon:warnings"] == encoded


def test_a_completion_has_every_field():
    response = make_response(id="resp_00ff", output=[make_message("msg_0", "Hi")], service_tier="flex")
    assert encode_whole(response) == {
        "id": "chatcmpl-00ff",
        "object": "chat.completion",
        "created": NOW,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "service_tier": "flex",
    }


def test_errors_have_openais_names():
    dialect = ChatDialect()
    unknown = RequestError("No such model.", type="not_found", param="model", code="x")
    assert dialect.error_status(unknown) == 404
    assert json.loads(dialect.encode_error(unknown.payload, "detail")) == {
        "error": {"message": "No such model.", "type": "invalid_request_error", "param": "model", "code": "x"}
    }


def test_encoded_events_and_sse_have_the_same_chunks():
    events = synthesize(parts.Text("Hi"), parts.Text("!"))
    dialect = ChatDialect(OFFERED)
    framed = [frame for event in events for frame in dialect.encode_event(event)]
    assert [json.loads(data) for _, data in framed] == decode_sse(events)
    assert {name for name, _ in framed} == {"chat.completion.chunk"}
    broken = synthesize(parts.Failure(MISHAP))
    assert [name for name, _ in ChatDialect().encode_event(broken[-1])] == ["error"]


@settings(deadline=None, max_examples=150)
@given(part_lists(), st.sampled_from([COUNTED, ChatRequest(Request(), include_usage=True)]))
def test_openais_accumulator_builds_the_same_completion(stream_parts: list[Part], chat_request: ChatRequest):
    events = synthesize(*stream_parts)
    encoded = decode_sse(events, chat_request)
    response = final_response(events)
    if response.status == "failed":
        assert encoded[-1].keys() == {"error"}
        return
    state = ChatCompletionStreamState()
    for chunk in encoded:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    heard = state.current_completion_snapshot.to_dict()
    expected = ChatCompletion.model_validate(encode_whole(response, chat_request)).to_dict()
    assert comparable(heard, events) == comparable(expected, events)


def comparable(completion: Any, events: list[Event]) -> Json:
    """Return the fields that both completions must agree on."""
    (choice,) = completion["choices"]
    stream_parts = choice["message"]
    made = [(one["id"], one["function"]) for one in stream_parts.get("tool_calls") or []]
    calls = [(id, function["name"], function["arguments"]) for id, function in made]
    texts = {
        "content": is_in_order(events, OutputTextDelta),
        "refusal": is_in_order(events, RefusalDelta),
        "reasoning_content": is_in_order(events, ReasoningSummaryTextDelta, ReasoningDelta),
    }
    return {
        **{name: stream_parts.get(name) for name, comparable in texts.items() if comparable},
        "id": completion["id"],
        "created": completion["created"],
        "model": completion["model"],
        "tool_calls": calls,
        "annotations": stream_parts.get("annotations") or [],
        "logprobs": (choice.get("logprobs") or {}).get("content"),
        "finish_reason": choice["finish_reason"],
        "usage": completion.get("usage"),
    }


def is_in_order(events: list[Event], *kinds: type[Event]) -> bool:
    """Tell whether texts came in the order of the output, as they do but for two rarities.

    Half an emoji that nothing follows is told when its item is closed, perhaps after others began;
    and an item may tell raw thinking after its summary.
    """
    last, summarised = 0, -1
    for event in events:
        if isinstance(event, kinds) and isinstance(event, ItemEvent):
            index = event.output_index
            if index < last or (isinstance(event, ReasoningDelta) and index == summarised):
                return False
            last = index
            summarised = index if isinstance(event, ReasoningSummaryTextDelta) else summarised
    return True
