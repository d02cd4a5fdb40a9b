"""Hashbrown's frames: the shape of each of the 22, and what a stream of them tells and does not."""

import json
from collections.abc import Iterable
from typing import Any, get_args

import pytest
from hypothesis import given, settings

from antiphon.protocol import events as ev
from antiphon.protocol.content import LogProb, OutputText, UrlCitation
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import Event
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Message
from antiphon.protocol.parts import (
    Call,
    Extension,
    Failure,
    Finish,
    Part,
    Reasoning,
    Refusal,
    Text,
    Whole,
)
from antiphon.protocol.response import ResponseWarning
from antiphon.protocol.struct import type_names
from antiphon.wire.hashbrown.frames import (
    FRAMED_EVENTS,
    Decoder,
    HashbrownDialect,
    error_frame_json,
    frame_json,
)
from tests.protocol.builders import (
    final_response,
    make_response,
    synthesize,
    to_json,
)
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
        f"response.output_item.{name}": (
            {"output_index": 1, "item": ITEM},
            {"outputIndex": 1, "item": to_json(ITEM)},
        )
        for name in ("added", "done")
    },
    **{
        f"response.content_part.{name}": (
            IN_TEXT | {"part": PART},
            PLACED_TEXT | {"part": to_json(PART)},
        )
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
    "response.reasoning_summary_text.done": (
        IN_SUMMARY | {"text": "a"},
        PLACED_SUMMARY | {"text": "a"},
    ),
    "response.function_call_arguments.delta": (
        PLACE | {"delta": "a", "obfuscation": "x"},
        PLACED | {"delta": "a", "obfuscation": "x"},
    ),
    "response.function_call_arguments.done": (
        PLACE | {"arguments": "{}"},
        PLACED | {"arguments": "{}"},
    ),
    "error": (
        {"error": ERROR},
        {"error": {"type": "t", "message": "m", "code": "c", "param": "p"}},
    ),
}
"""Of each frame the event's fields, and its own."""


def kinds() -> dict[str, type[Event]]:
    """Return the events that have a frame, by their type."""
    return {type_names(kind)[0]: kind for kind in FRAMED_EVENTS}


def test_there_are_twenty_two_frames() -> None:
    assert kinds().keys() == SHAPES.keys()
    assert len(SHAPES) == 22
    without = {kind.__name__ for kind in get_args(ev.Event)} - {
        kind.__name__ for kind in FRAMED_EVENTS
    }
    assert without == {"ReasoningSummaryPartAdded", "ReasoningSummaryPartDone", "ExtensionEvent"}


@pytest.mark.parametrize("name", SHAPES)
def test_a_frame_has_the_fields_of_its_event_in_camel_case(name: str) -> None:
    given_fields, wanted = SHAPES[name]
    event: Any = kinds()[name](sequence_number=7, **given_fields)
    assert json.loads(frame_json(event)) == {"type": name, "sequenceNumber": 7} | wanted


@pytest.mark.parametrize("name", SHAPES)
def test_every_event_has_its_frame_also_in_the_dialect(name: str) -> None:
    event: Any = kinds()[name](sequence_number=7, **SHAPES[name][0])
    ((type, data),) = HashbrownDialect().encode_event(event)
    assert (type, json.loads(data)) == (name, json.loads(frame_json(event)))


def test_what_is_unknown_in_a_payload_stays_beside_the_rest() -> None:
    item = Message(role="assistant", content=[], extra={"acme_field": 1})
    event = ev.OutputItemAdded(sequence_number=0, output_index=0, item=item)
    assert json.loads(frame_json(event))["item"]["acme_field"] == 1


# --- streams ---------------------------------------------------------------------------------


def told(
    parts: Iterable[Part],
    *,
    offered: Iterable[str] = ("f", "g"),
    warnings: Iterable[ResponseWarning] = (),
) -> list[Json]:
    """Return the frames that some parts become."""
    dialect = HashbrownDialect()
    dialect.client_functions, dialect.warnings = frozenset(offered), tuple(warnings)
    return frames(dialect, made(*parts))


def made(*parts: Part) -> list[Event]:
    """Return the events that some parts become, written for these clients."""
    return synthesize(*parts, keep_empty=True, single_message=True, reuse_call_ids=True)


def frames(dialect: HashbrownDialect, events: Iterable[Event]) -> list[Json]:
    """Return the frames of some events."""
    decoder = Decoder()
    read = [frame for event in events for frame in decoder.feed(dialect.encode_frames(event))]
    decoder.close()
    return read


def names(frames: list[Json]) -> list[str]:
    """Return the types of some frames, without what they all begin with."""
    return [frame["type"].removeprefix("response.") for frame in frames]


def test_a_text_from_its_beginning_to_its_end() -> None:
    heard = told([Text(""), Text("Hel"), Text("lo 🎵"), Text("")])
    assert names(heard) == [
        "created",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 4,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    deltas = [frame for frame in heard if frame["type"] == "response.output_text.delta"]
    assert [delta["delta"] for delta in deltas] == ["", "Hel", "lo 🎵", ""]
    assert {(d["itemId"], d["outputIndex"], d["contentIndex"]) for d in deltas} == {("msg_0", 0, 0)}
    assert [delta["sequenceNumber"] for delta in deltas] == [4, 5, 6, 7]


@settings(deadline=None, max_examples=200)
@given(part_lists())
def test_any_stream_is_told_frame_by_frame_as_it_was_made(parts: list[Part]) -> None:
    """Nothing is changed on the way, and what is left out is what has no place in a stream."""
    events = made(*parts)
    plain = {event.sequence_number: event for event in events if type(event) in FRAMED_EVENTS}
    heard = told(parts, offered=("f", "g", "tool"))
    failed = isinstance(events[-1], ev.ResponseFailed)
    for said in heard:
        event = plain[said["sequenceNumber"]]
        if said["type"] in ("error", "response.failed"):
            assert event is events[-1]
        elif said["type"] not in ("response.created", "response.completed", "response.incomplete"):
            assert said == json.loads(HashbrownDialect().encode_event(event)[0][1])
    ends = [frame["type"] for frame in heard if frame["type"] in ENDS]
    assert ends == [heard[-1]["type"]]
    assert (heard[-1]["type"] == "error") == failed
    assert heard[0]["type"] in ("response.created", "error")


ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}


def test_nothing_is_told_until_something_is_said() -> None:
    dialect = HashbrownDialect()
    created, in_progress, *rest = made(Text("a"))
    assert dialect.encode_frames(created) == dialect.encode_frames(in_progress) == b""
    assert names(frames(dialect, rest))[:2] == ["created", "output_item.added"]


def test_what_fails_before_it_has_begun_is_a_lone_error() -> None:
    error = ErrorPayload(message="m", type="overloaded_error", code="busy")
    assert told([Failure(error)]) == [
        {
            "type": "error",
            "sequenceNumber": 2,
            "error": {"type": "overloaded_error", "message": "m", "code": "busy"},
        }
    ]


def test_what_fails_later_ends_with_the_error() -> None:
    heard = told([Text("a"), Failure(ErrorPayload(message="m", type="t"))])
    assert names(heard)[-1] == "error"
    assert not ENDS & set(names(heard)[:-1])


def test_whoever_knows_the_error_tells_it() -> None:
    dialect = HashbrownDialect()
    dialect.failure_payload = lambda response: ErrorPayload(
        message=response.id, type="t", param="p"
    )
    *_, last = frames(dialect, made(Failure(ErrorPayload(message="m", type="t"))))
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
def test_how_a_response_ends(parts: list[Part], end: str, status: str) -> None:
    last = told(parts)[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{end}", status)


def test_what_a_filter_stopped_says_so() -> None:
    failed = told([Text("a"), Finish("content_filter")])[-1]["response"]
    assert failed["error"]["code"] == "content_filter"
    assert failed["incomplete_details"] is None
    assert failed["output"][0]["status"] == "incomplete"


def test_thinking_is_told_and_its_seal_is_not() -> None:
    heard = told([Reasoning("hm"), Reasoning(summary="s", encrypted_content="sealed"), Text("a")])
    assert {
        "reasoning.delta",
        "reasoning.done",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
    } <= set(names(heard))
    assert "sealed" not in json.dumps(heard)
    assert not [name for name in names(heard) if "summary_part" in name]


def test_an_event_of_an_extension_has_no_frame() -> None:
    heard = told([Text("a"), Extension("acme:note", {"x": 1}), Text("b")])
    assert "acme:note" not in names(heard)


def test_what_was_not_used_is_in_every_response() -> None:
    warning = ResponseWarning(code="unused_parameter", message="m", param="ui")
    heard = told([Text("a")], warnings=[warning])
    for said in (heard[0], heard[-1]):
        assert said["response"]["antiphon:warnings"] == [to_json(warning)]


# --- calls -----------------------------------------------------------------------------------


def own(answer: bool = True) -> list[Part]:
    """Return a call that an agent makes, and answers, itself."""
    call = Whole(FunctionCall(call_id="own", name="search", arguments='{"q":1}'))
    return [call, *([Whole(FunctionCallOutput(call_id="own", output="x"))] if answer else [])]


def test_a_call_that_was_offered_is_told_as_it_comes() -> None:
    heard = told([Text("a"), Call(0, "f", '{"x":', "call_1"), Call(0, arguments="1}")])
    calls = [frame for frame in heard if frame.get("outputIndex") == 1]
    assert names(calls) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert calls[0]["item"]["id"] == calls[0]["item"]["call_id"] == "call_1"
    assert {frame.get("itemId", "call_1") for frame in calls} == {"call_1"}


def test_a_call_that_its_maker_answers_is_never_told() -> None:
    heard = told([Text("a"), *own(), Text("b"), Call(0, "f", "{}", "call_1")])
    assert {frame["outputIndex"] for frame in heard if "outputIndex" in frame} == {0, 3}


def test_a_call_of_what_was_not_offered_is_told_last() -> None:
    heard = told([Text("a"), *own(answer=False), Text("b")])
    *_, added, delta, done, closed, end = heard
    assert names([added, delta, done, closed, end]) == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert added["item"]["name"] == "search"


def test_a_call_that_was_not_offered_is_not_told_of_a_failure() -> None:
    failure = Failure(ErrorPayload(message="m", type="t"))
    assert "function_call_arguments.done" not in names(told([*own(answer=False), failure]))


# --- the order of things ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "order"),
    [
        (
            [Text("a"), Reasoning("r"), Call(0, "f", "{}")],
            ["message", "reasoning", "function_call"],
        ),
        (
            [Reasoning("r"), Text("a"), Call(0, "f", "{}")],
            ["reasoning", "message", "function_call"],
        ),
        ([Text(""), Reasoning("r"), Text("a")], ["reasoning", "message"]),
        ([*own(), Text("a")], ["function_call", "function_call_output", "message"]),
        ([Reasoning("r"), Refusal("no")], ["reasoning", "message"]),
        ([Call(0, "f", "{}")], ["message", "function_call"]),
        ([], ["message"]),
    ],
)
def test_the_message_stands_where_its_first_words_came(parts: list[Part], order: list[str]) -> None:
    dialect = HashbrownDialect()
    events = made(*parts)
    frames(dialect, events)
    assert [item.type for item in dialect.order_items(final_response(events))] == order


# --- errors ----------------------------------------------------------------------------------


def shown(payload: ErrorPayload, **options: Any) -> Json:
    """Return the frame of an error."""
    return json.loads(error_frame_json(payload, **options))


def test_an_error_says_what_its_provider_said_and_no_more() -> None:
    assert shown(ERROR) == {
        "type": "error",
        "error": {"type": "t", "message": "m", "code": "c", "param": "p"},
    }
    bare = ErrorPayload(message="m", type="t")
    assert shown(bare, number=3, headers={"retry-after": "2"}) == {
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
def test_what_no_provider_said_is_an_error_of_the_stream(
    type: str, code: str, shown_as: str
) -> None:
    error = shown(ErrorPayload(message="m", type=type, code=code))["error"]
    assert (error["type"], error["code"]) == (shown_as, code)
