"""Hashbrown's frames: the shape of each, and the frames of whole streams."""

import json
from collections.abc import Iterable
from typing import Any, get_args

import pytest
from hypothesis import given, settings

from antiphon.protocol import events as ev
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, LogProb, Message, OutputText, UrlCitation
from antiphon.protocol.parts import Call, Extension, Failure, Finish, Part, Progress, Reasoning, Refusal, Text, Whole
from antiphon.protocol.response import ResponseWarning
from antiphon.protocol.struct import type_names
from antiphon.wire.hashbrown.frames import FRAMED_EVENTS, Decoder, HashbrownDialect, error_frame_json, frame_json
from tests.protocol.builders import final_response, make_response, synthesize, to_json
from tests.protocol.strategies import part_lists

Json = dict[str, Any]

PLACE: Json = {"item_id": "i", "output_index": 1}
IN_TEXT = PLACE | {"content_index": 0}
IN_SUMMARY = PLACE | {"summary_index": 0}
PLACED = {"itemId": "i", "outputIndex": 1}
PLACED_TEXT = PLACED | {"contentIndex": 0}
PLACED_SUMMARY = PLACED | {"summaryIndex": 0}
RESPONSE, ITEM, PART = make_response(), Message(role="assistant", content=[]), OutputText(text="a")
NOTE = UrlCitation(url="https://a.example", title="A", start_index=0, end_index=1)
LOGPROB = LogProb(token="a", logprob=-1.0, bytes=[97], top_logprobs=[])
ERROR = ErrorPayload(type="t", message="m", code="c", param="p")

SHAPES: dict[str, tuple[Json, Json]] = {
    **{
        f"response.{name}": ({"response": RESPONSE}, {"response": to_json(RESPONSE)})
        for name in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    **{
        f"response.output_item.{name}": ({"output_index": 1, "item": ITEM}, {"outputIndex": 1, "item": to_json(ITEM)})
        for name in ("added", "done")
    },
    **{
        f"response.content_part.{name}": (IN_TEXT | {"part": PART}, PLACED_TEXT | {"part": to_json(PART)})
        for name in ("added", "done")
    },
    "response.output_text.delta": (
        IN_TEXT | {"delta": "a", "logprobs": [LOGPROB], "obfuscation": "x"},
        PLACED_TEXT | {"delta": "a", "logprobs": [to_json(LOGPROB)], "obfuscation": "x"},
    ),
    "response.output_text.done": (
        IN_TEXT | {"text": "a", "logprobs": [LOGPROB]},
        PLACED_TEXT | {"text": "a", "logprobs": [to_json(LOGPROB)]},
    ),
    "response.output_text.annotation.added": (
        IN_TEXT | {"annotation_index": 2, "annotation": NOTE},
        PLACED_TEXT | {"annotationIndex": 2, "annotation": to_json(NOTE)},
    ),
    "response.refusal.delta": (IN_TEXT | {"delta": "a"}, PLACED_TEXT | {"delta": "a"}),
    "response.refusal.done": (IN_TEXT | {"refusal": "a"}, PLACED_TEXT | {"refusal": "a"}),
    "response.reasoning.delta": (
        IN_TEXT | {"delta": "a", "obfuscation": "x"},
        PLACED_TEXT | {"delta": "a", "obfuscation": "x"},
    ),
    "response.reasoning.done": (IN_TEXT | {"text": "a"}, PLACED_TEXT | {"text": "a"}),
    "response.reasoning_summary_text.delta": (
        IN_SUMMARY | {"delta": "a", "obfuscation": "x"},
        PLACED_SUMMARY | {"delta": "a", "obfuscation": "x"},
    ),
    "response.reasoning_summary_text.done": (IN_SUMMARY | {"text": "a"}, PLACED_SUMMARY | {"text": "a"}),
    "response.function_call_arguments.delta": (
        PLACE | {"delta": "a", "obfuscation": "x"},
        PLACED | {"delta": "a", "obfuscation": "x"},
    ),
    "response.function_call_arguments.done": (PLACE | {"arguments": "{}"}, PLACED | {"arguments": "{}"}),
    "error": ({"error": ERROR}, {"error": {"type": "t", "message": "m", "code": "c", "param": "p"}}),
}
"""The fields of each event, and their names in its frame."""


def events_by_type() -> dict[str, type[Event]]:
    """Return the events with a frame, by type."""
    return {type_names(kind)[0]: kind for kind in FRAMED_EVENTS}


def test_22_events_have_a_frame() -> None:
    assert events_by_type().keys() == SHAPES.keys()
    assert len(SHAPES) == 22
    without = {kind.__name__ for kind in get_args(ev.Event)} - {kind.__name__ for kind in FRAMED_EVENTS}
    assert without == {"ReasoningSummaryPartAdded", "ReasoningSummaryPartDone", "ExtensionEvent"}


@pytest.mark.parametrize("name", SHAPES)
def test_a_frame_has_the_fields_of_its_event_in_camel_case(name: str) -> None:
    given_fields, wanted = SHAPES[name]
    event: Any = events_by_type()[name](sequence_number=7, **given_fields)
    assert json.loads(frame_json(event)) == {"type": name, "sequenceNumber": 7} | wanted


@pytest.mark.parametrize("name", SHAPES)
def test_the_dialect_encodes_every_event_with_a_frame(name: str) -> None:
    event: Any = events_by_type()[name](sequence_number=7, **SHAPES[name][0])
    ((type, data),) = HashbrownDialect().encode_event(event)
    assert (type, json.loads(data)) == (name, json.loads(frame_json(event)))


def test_unknown_fields_of_nested_objects_are_kept() -> None:
    item = Message(role="assistant", content=[], extra={"acme_field": 1})
    event = ev.OutputItemAdded(sequence_number=0, output_index=0, item=item)
    assert json.loads(frame_json(event))["item"]["acme_field"] == 1


def encode_parts(
    parts: Iterable[Part], *, offered: Iterable[str] = ("f", "g"), warnings: Iterable[ResponseWarning] = ()
) -> list[Json]:
    """Return the frames of some parts."""
    dialect = HashbrownDialect()
    dialect.client_functions, dialect.warnings = frozenset(offered), tuple(warnings)
    return frames(dialect, make_stream(*parts))


def make_stream(*parts: Part) -> list[Event]:
    """Return the events of some parts, as the Hashbrown endpoint makes them."""
    return synthesize(*parts, keep_empty=True, single_message=True, reuse_call_ids=True, source_progress=True)


def frames(dialect: HashbrownDialect, events: Iterable[Event]) -> list[Json]:
    """Return the frames of some events."""
    decoder = Decoder()
    read = [frame for event in events for frame in decoder.feed(dialect.encode_frames(event))]
    decoder.close()
    return read


def names(frames: list[Json]) -> list[str]:
    """Return the types of some frames, without what they all begin with."""
    return [frame["type"].removeprefix("response.") for frame in frames]


@pytest.mark.parametrize(
    ("reported", "sent"),
    [
        (["queued", "in_progress"], ["queued", "in_progress"]),
        (["in_progress"], ["in_progress"]),
        (["in_progress", "queued", "in_progress"], ["in_progress"]),
        (["queued", "queued"], ["queued"]),
    ],
)
def test_what_the_provider_reports_before_its_output_is_passed_on(reported: list[Any], sent: list[str]) -> None:
    frames = encode_parts([*map(Progress, reported), Text("Hi"), Progress("in_progress")])
    assert names(frames)[: 2 + len(sent)] == ["created", *sent, "output_item.added"]
    assert [frame["response"]["status"] for frame in frames[1 : 1 + len(sent)]] == sent
    assert names(frames).count("in_progress") == sent.count("in_progress")


def test_the_arguments_of_a_cut_call_have_no_end() -> None:
    sent = encode_parts([Text("Hm."), Call("a", "f", '{"a":', "c1"), Finish("length")])
    assert names(sent)[-6:] == [
        "function_call_arguments.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.done",
        "incomplete",
    ]
    assert sent[-2]["item"]["status"] == "incomplete"


def test_the_frames_of_a_text() -> None:
    sent = encode_parts([Text(""), Text("Hel"), Text("lo 🎵"), Text("")])
    assert names(sent) == [
        "created",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 4,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    deltas = [frame for frame in sent if frame["type"] == "response.output_text.delta"]
    assert [delta["delta"] for delta in deltas] == ["", "Hel", "lo 🎵", ""]
    assert {(d["itemId"], d["outputIndex"], d["contentIndex"]) for d in deltas} == {("msg_0", 0, 0)}
    assert [delta["sequenceNumber"] for delta in deltas] == [3, 4, 5, 6]


@settings(deadline=None, max_examples=200)
@given(part_lists())
def test_any_stream_has_the_frames_of_its_events(parts: list[Part]) -> None:
    """Frames have the content of their events; only events without a frame are left out."""
    events = make_stream(*parts)
    plain = {event.sequence_number: event for event in events if type(event) in FRAMED_EVENTS}
    sent = encode_parts(parts, offered=("f", "g", "tool"))
    failed = isinstance(events[-1], ev.ResponseFailed)
    for received in sent:
        event = plain[received["sequenceNumber"]]
        if received["type"] in ("error", "response.failed"):
            assert event is events[-1]
        elif received["type"] not in ("response.created", "response.completed", "response.incomplete"):
            assert received == json.loads(HashbrownDialect().encode_event(event)[0][1])
    ends = [frame["type"] for frame in sent if frame["type"] in ENDS]
    assert ends == [sent[-1]["type"]]
    assert (sent[-1]["type"] == "error") == failed
    assert sent[0]["type"] in ("response.created", "error")


ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}


def test_nothing_is_sent_before_the_first_content() -> None:
    dialect = HashbrownDialect()
    created, *rest = make_stream(Text("a"))
    assert dialect.encode_frames(created) == b""
    assert names(frames(dialect, rest))[:2] == ["created", "output_item.added"]


def test_a_failure_before_the_first_content_is_a_single_error() -> None:
    error = ErrorPayload(message="m", type="overloaded_error", code="busy")
    assert encode_parts([Failure(error)]) == [
        {"type": "error", "sequenceNumber": 1, "error": {"type": "overloaded_error", "message": "m", "code": "busy"}}
    ]


def test_a_later_failure_ends_with_an_error() -> None:
    sent = encode_parts([Text("a"), Failure(ErrorPayload(message="m", type="t"))])
    assert names(sent)[-1] == "error"
    assert not ENDS & set(names(sent)[:-1])


def test_the_endpoint_can_replace_the_error() -> None:
    dialect = HashbrownDialect()
    dialect.failure_payload = lambda response: ErrorPayload(message=response.id, type="t", param="p")
    *_, last = frames(dialect, make_stream(Failure(ErrorPayload(message="m", type="t"))))
    assert last["error"] == {"type": "t", "message": "resp_0", "param": "p"}


@pytest.mark.parametrize(
    ("parts", "end", "status"),
    [
        ([Text("a"), Finish("stop")], "completed", "completed"),
        ([Text("a"), Finish("tool_calls")], "completed", "completed"),
        ([Text("a")], "completed", "completed"),
        ([Text("a"), Finish("length")], "incomplete", "incomplete"),
        ([Text("a"), Finish("content_filter")], "failed", "failed"),
        ([Refusal("no"), Finish("content_filter")], "failed", "failed"),
        ([Refusal("no"), Finish("stop")], "completed", "completed"),
    ],
)
def test_the_last_frame_depends_on_the_status(parts: list[Part], end: str, status: str) -> None:
    last = encode_parts(parts)[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{end}", status)


def test_a_filtered_response_has_a_content_filter_error() -> None:
    failed = encode_parts([Text("a"), Finish("content_filter")])[-1]["response"]
    assert failed["error"]["code"] == "content_filter"
    assert failed["incomplete_details"] is None
    assert failed["output"][0]["status"] == "incomplete"


def test_reasoning_is_sent_without_its_encrypted_content() -> None:
    sent = encode_parts([Reasoning("hm"), Reasoning(summary="s", encrypted_content="sealed"), Text("a")])
    assert {"reasoning.delta", "reasoning.done", "reasoning_summary_text.delta", "reasoning_summary_text.done"} <= set(
        names(sent)
    )
    assert "sealed" not in json.dumps(sent)
    assert not [name for name in names(sent) if "summary_part" in name]


def test_an_extension_event_has_no_frame() -> None:
    sent = encode_parts([Text("a"), Extension("acme:note", {"x": 1}), Text("b")])
    assert "acme:note" not in names(sent)


def test_warnings_are_in_every_response() -> None:
    warning = ResponseWarning(code="unused_parameter", message="m", param="ui")
    sent = encode_parts([Text("a")], warnings=[warning])
    for received in (sent[0], sent[-1]):
        assert received["response"]["antiphon:warnings"] == [to_json(warning)]


def agent_call(answer: bool = True) -> list[Part]:
    """Return a call and its output, both of the agent."""
    call = Whole(FunctionCall(call_id="own", name="search", arguments='{"q":1}'))
    return [call, *([Whole(FunctionCallOutput(call_id="own", output="x"))] if answer else [])]


def test_a_client_call_is_sent_at_once() -> None:
    sent = encode_parts([Text("a"), Call(0, "f", '{"x":', "call_1"), Call(0, arguments="1}")])
    calls = [frame for frame in sent if frame.get("outputIndex") == 1]
    assert names(calls) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert calls[0]["item"]["id"] == calls[0]["item"]["call_id"] == "call_1"
    assert {frame.get("itemId", "call_1") for frame in calls} == {"call_1"}


def test_a_call_that_the_agent_answers_is_not_sent() -> None:
    sent = encode_parts([Text("a"), *agent_call(), Text("b"), Call(0, "f", "{}", "call_1")])
    assert {frame["outputIndex"] for frame in sent if "outputIndex" in frame} == {0, 3}


def test_an_unanswered_call_of_the_agent_is_sent_last() -> None:
    sent = encode_parts([Text("a"), *agent_call(answer=False), Text("b")])
    *_, added, delta, done, closed, end = sent
    assert names([added, delta, done, closed, end]) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert added["item"]["name"] == "search"


def test_a_held_call_is_not_sent_after_a_failure() -> None:
    failure = Failure(ErrorPayload(message="m", type="t"))
    assert "function_call_arguments.done" not in names(encode_parts([*agent_call(answer=False), failure]))


@pytest.mark.parametrize(
    ("parts", "order"),
    [
        ([Text("a"), Reasoning("r"), Call(0, "f", "{}")], ["message", "reasoning", "function_call"]),
        ([Reasoning("r"), Text("a"), Call(0, "f", "{}")], ["reasoning", "message", "function_call"]),
        ([Text(""), Reasoning("r"), Text("a")], ["reasoning", "message"]),
        ([*agent_call(), Text("a")], ["function_call", "function_call_output", "message"]),
        ([Reasoning("r"), Refusal("no")], ["reasoning", "message"]),
        ([Call(0, "f", "{}")], ["message", "function_call"]),
        ([], ["message"]),
    ],
)
def test_the_message_is_ordered_by_its_first_text(parts: list[Part], order: list[str]) -> None:
    dialect = HashbrownDialect()
    events = make_stream(*parts)
    frames(dialect, events)
    assert [item.type for item in dialect.order_items(final_response(events))] == order


def decode_error(payload: ErrorPayload, **options: Any) -> Json:
    """Return an error frame, decoded."""
    return json.loads(error_frame_json(payload, **options))


def test_an_error_has_only_the_fields_of_its_provider() -> None:
    assert decode_error(ERROR) == {"type": "error", "error": {"type": "t", "message": "m", "code": "c", "param": "p"}}
    bare = ErrorPayload(message="m", type="t")
    assert decode_error(bare, number=3, headers={"retry-after": "2"}) == {
        "type": "error",
        "sequenceNumber": 3,
        "error": {"type": "t", "message": "m", "headers": {"retry-after": "2"}},
    }


@pytest.mark.parametrize(
    ("type", "code", "shown_as"),
    [
        ("model_error", "upstream_cut", "stream_error"),
        ("model_error", "timeout", "stream_error"),
        ("model_error", "oops", "model_error"),
        ("rate_limit_error", "timeout", "rate_limit_error"),
    ],
)
def test_a_connection_failure_is_a_stream_error(type: str, code: str, shown_as: str) -> None:
    error = decode_error(ErrorPayload(message="m", type=type, code=code))["error"]
    assert (error["type"], error["code"]) == (shown_as, code)
