"""What a listener makes of streams: legal, illegal, in OpenAI's dialect, and of any JSON at all."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.event_reader import EventReader
from antiphon.protocol.content import OutputText
from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError, UpstreamError
from antiphon.protocol.events import (
    ContentPartAdded,
    ErrorEvent,
    Event,
    ExtensionEvent,
    OutputItemAdded,
    OutputTextDelta,
    ReasoningDelta,
    ResponseCompleted,
    ResponseCreated,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.items import ExtensionItem, FunctionCall, Message
from antiphon.protocol.rules import RULES
from antiphon.protocol.struct import encode
from antiphon.wire import sse
from antiphon.wire.openai import OpenAIDialect
from antiphon.wire.openresponses import Dialect
from tests.adapters.scenes import responses as openai
from tests.protocol.broken_streams import (
    FAILED,
    KNOWN_MISTAKES,
    LEGAL,
    NO_OUTPUT,
    PARALLEL_CALLS,
    RULE_BREAKS,
    TRUNCATED,
    to_raw,
)
from tests.protocol.builders import (
    completed_event,
    event_types,
    item_done,
    make_final_response,
    make_message,
    make_response,
    message_events,
    number_events,
    start_events,
    synthesize,
    text_part_events,
    to_json,
)
from tests.protocol.strategies import part_lists

Json = dict[str, Any]
LEGAL_STREAMS = [LEGAL, PARALLEL_CALLS, NO_OUTPUT, TRUNCATED, FAILED]


def read_stream(events: list[Json], **options: Any) -> tuple[list[Event], EventReader]:
    """Hear a stream of JSON to its end."""
    listener = EventReader(**options)
    heard = [event for one in events for event in listener.feed_frame(json.dumps(one).encode())]
    listener.close()
    return heard, listener


def encode_stream(events: list[Event], dialect: Dialect) -> list[Json]:
    """Return a stream as a door writes it."""
    body = b"".join(dialect.encode_sse(event) for event in events)
    return [json.loads(frame.data) for frame in sse.Decoder().feed(body)]


# --- what is as it should be ---


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("events", LEGAL_STREAMS)
def test_a_legal_stream_is_heard_as_it_is(events: list[Event], strict: bool):
    heard, listener = read_stream(to_raw(events), strict=strict)
    assert heard == events
    assert (listener.response, listener.ended) == (fold(events), True)
    assert listener.last_number == len(events) - 1


@pytest.mark.parametrize("events", LEGAL_STREAMS)
def test_openais_dialect_is_no_illegal_stream(events: list[Event]):
    heard, listener = read_stream(encode_stream(events, OpenAIDialect()), strict=True)
    assert event_types(heard) == event_types(events)
    assert listener.response is not None
    assert listener.response.output == fold(events).output


@settings(deadline=None)
@given(part_lists())
def test_whatever_our_synthesizer_says_is_legal_and_folds_to_the_same(parts: Any):
    events = synthesize(*parts)
    for strict in (False, True):
        heard, listener = read_stream(to_raw(events), strict=strict)
        assert to_json(heard) == to_json(events)
        assert to_json(listener.response) == to_json(fold(events))


def test_the_snapshot_grows_with_the_stream():
    listener = EventReader()
    assert listener.response is None
    texts: list[str] = []
    for event in number_events(*message_events("msg_0", 0, "Hel", "lo")):
        listener.feed_frame(encode(event))
        assert listener.response is not None
        texts.append(listener.response.output_text)
    assert texts == ["", "", "Hel", "Hello", "Hello", "Hello", "Hello"]


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_text", "reasoning_content"])
def test_reasoning_has_one_name_however_it_is_spelt(spelling: str):
    spelt = json.loads(
        json.dumps(to_raw(LEGAL)).replace("response.reasoning.", f"response.{spelling}.")
    )
    heard, _ = read_stream(spelt, strict=True)
    assert heard == LEGAL
    assert any(isinstance(event, ReasoningDelta) for event in heard)


def test_what_only_openai_knows_carries_its_slug():
    found = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"q": "a"}}
    begin = found | {"status": "in_progress"}
    searching = {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 0}
    events = [
        {"type": "response.created", "response": openai.response(status="in_progress", usage=None)},
        {
            "type": "response.in_progress",
            "response": openai.response(status="in_progress", usage=None),
        },
        {"type": "response.output_item.added", "output_index": 0, "item": begin},
        searching,
        {"type": "response.output_item.done", "output_index": 0, "item": found},
        {"type": "response.completed", "response": openai.response(found)},
    ]
    told = [event | {"sequence_number": number} for number, event in enumerate(events)]
    heard, listener = read_stream(told, strict=True)
    item = ExtensionItem(
        type="openai:web_search_call", id="ws_1", status="completed", extra={"action": {"q": "a"}}
    )
    assert listener.response is not None
    assert listener.response.output == [item]
    assert heard[3] == ExtensionEvent(
        type="response.web_search_call.searching",
        sequence_number=3,
        extra={"item_id": "ws_1", "output_index": 0},
    )


def test_a_lanes_name_is_not_the_events():
    events = [event | {"stream_id": "a"} for event in to_raw(LEGAL)]
    assert read_stream(events)[0] == LEGAL


# --- what is not ---


@pytest.mark.parametrize("rule", RULE_BREAKS)
def test_strictly_each_broken_rule_is_raised_by_its_name(rule: str):
    with pytest.raises(RemoteProtocolError) as caught:
        read_stream(RULE_BREAKS[rule], strict=True)
    assert RULES[rule] in str(caught.value)
    assert str(caught.value).endswith(f"[{rule}]")


def test_strictly_a_strange_event_has_a_slug():
    events = to_raw(LEGAL)
    at = event_types(LEGAL).index("acme:tick")
    events[at]["type"] = "response.tick"
    with pytest.raises(RemoteProtocolError, match=r"'response.tick' is neither. \[event-type\]$"):
        read_stream(events, strict=True)
    assert event_types(read_stream(events)[0])[at] == "response.tick"


@pytest.mark.parametrize("pain", KNOWN_MISTAKES)
def test_strictly_what_hurts_elsewhere_is_raised(pain: str):
    spoilt, rules = KNOWN_MISTAKES[pain]
    with pytest.raises(RemoteProtocolError) as caught:
        read_stream(spoilt, strict=True)
    assert str(caught.value).rpartition("[")[2].rstrip("]") in rules


EXPECTED_TEXTS = {
    "item-content": "Other",  # the final response says it, and it has the last word
    "error-told": "Hi",
    "reason-told": "Hi",
    "part-done": "",
    "done-in-order": "",
    "a truncated answer that is called completed": "Hi",
    "a failure that is called completed": "Hi",
}
INVALID_STREAMS = RULE_BREAKS | {pain: spoilt for pain, (spoilt, _) in KNOWN_MISTAKES.items()}


@pytest.mark.parametrize(
    "name", [name for name in INVALID_STREAMS if name != "a stream that just stops"]
)
def test_otherwise_an_illegal_stream_comes_through_whole(name: str):
    heard, listener = read_stream(INVALID_STREAMS[name])
    sent = [event["type"] for event in INVALID_STREAMS[name]]
    if name in ("nothing-after-end", "two endings"):
        sent.pop()
    remaining = iter(event_types(heard))
    assert all(type in remaining for type in sent), "an event is lost, or out of order"
    assert listener.response is not None
    assert listener.response.output_text == EXPECTED_TEXTS.get(name, "Hello")
    assert listener.response.status != "in_progress"


def test_the_snapshot_of_events_under_a_wrong_index_is_right():
    spoilt, _ = KNOWN_MISTAKES["events of two items under one index"]
    listener = EventReader()
    for event in spoilt[:-1]:
        listener.feed_frame(json.dumps(event).encode())
    assert listener.response is not None
    assert listener.response.output == fold(LEGAL).output


def test_a_delta_of_nothing_opens_its_item_and_its_part():
    delta = {
        "type": "response.output_text.delta",
        "sequence_number": 7,
        "item_id": "msg_0",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hi",
    }
    place: Any = {"sequence_number": 7, "item_id": "msg_0", "output_index": 0, "content_index": 0}
    item = Message(id="msg_0", role="assistant", content=[], status="in_progress")
    listener = EventReader()
    assert listener.feed_frame(json.dumps(delta).encode()) == [
        OutputItemAdded(sequence_number=7, output_index=0, item=item),
        ContentPartAdded(**place, part=OutputText(text="")),
        OutputTextDelta(**place, delta="Hi"),
    ]
    assert listener.response is not None
    assert listener.response.output_text == "Hi"


def test_an_item_that_is_only_done_is_announced_first():
    call = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "f", "arguments": "{}"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    added, _ = EventReader().feed_frame(json.dumps(done).encode())
    assert added == OutputItemAdded(
        sequence_number=0,
        output_index=0,
        item=FunctionCall(id="fc_0", call_id="c", name="f", arguments="", status="in_progress"),
    )


def test_numbers_that_are_missing_are_counted():
    events = [{k: v for k, v in event.items() if k != "sequence_number"} for event in to_raw(LEGAL)]
    assert read_stream(events)[0] == LEGAL
    with pytest.raises(RemoteProtocolError, match=r"sequence_number: .* required .*\[shape\]"):
        read_stream(events, strict=True)


def test_an_empty_ending_takes_what_was_told():
    events = to_raw(number_events(*message_events("msg_0", 0, "Hi"), completed_event()))
    _, listener = read_stream([*events[:-2], {"type": "response.completed", "response": {}}])
    assert listener.response is not None
    assert listener.response.output_text == "Hi"
    assert listener.response.output[0] == Message(
        id="msg_0", role="assistant", status="completed", content=[OutputText(text="Hi")]
    )


def test_a_response_in_a_word_we_do_not_know_is_kept():
    odd = openai.response(
        status="paused",
        service_tier="warp",
        reasoning={"effort": "ultra", "mode": "deep"},
        instructions=[{"role": "user", "content": "Hi"}],
        created_at=1756315696.5,
        truncation="middle",
        billing={"payer": "us"},
    )
    (event,) = EventReader().feed_frame(
        json.dumps({"type": "response.created", "response": odd}).encode()
    )
    assert isinstance(event, ResponseCreated)
    response = event.response
    assert response.reasoning is not None
    assert (response.status, response.service_tier, response.truncation) == (
        "paused",
        "warp",
        "middle",
    )
    assert (response.reasoning.effort, response.reasoning.get("mode")) == ("ultra", "deep")
    assert response.created_at == 1756315696
    assert response.get("billing") == {"payer": "us"}
    assert response.get("instructions") == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"type": "too_many_requests", "code": "slow_down", "message": "Later."}},
        {"code": "slow_down", "message": "Later.", "param": None},
    ],
    ids=["nested", "flat"],
)
def test_an_error_and_then_nothing_is_raised(error: Json):
    listener = EventReader()
    (event,) = listener.feed_frame(json.dumps({"type": "error", **error}).encode())
    kind = "too_many_requests" if "error" in error else "server_error"
    payload = ErrorPayload(message="Later.", type=kind, code="slow_down")
    assert event == ErrorEvent(sequence_number=0, error=payload)
    with pytest.raises(UpstreamError) as caught:
        listener.close()
    assert caught.value.payload == payload
    assert caught.value.status == {"too_many_requests": 429, "server_error": 500}[kind]
    assert caught.value.retryable is (kind == "too_many_requests")


def test_an_error_explains_the_failure_that_follows_it():
    error = {"type": "error", "error": {"type": "server_error", "message": "Broke."}}
    failed = {"type": "response.failed", "response": {"id": "resp_0"}}
    _, listener = read_stream([error, failed])
    assert listener.response is not None
    assert listener.response.error is not None
    assert (listener.response.status, listener.response.error.message) == ("failed", "Broke.")


def test_a_stream_that_stops_is_cut():
    spoilt, _ = KNOWN_MISTAKES["a stream that just stops"]
    listener = EventReader()
    for event in spoilt:
        listener.feed_frame(json.dumps(event).encode())
    with pytest.raises(UpstreamError, match="ended before the response did") as caught:
        listener.close()
    assert (caught.value.payload.code, caught.value.retryable) == ("upstream_cut", True)
    assert listener.response is not None
    assert listener.response.output_text == "Hello"


# --- halves of characters ---


@pytest.mark.parametrize("strict", [False, True])
def test_a_character_that_is_cut_in_two_is_joined(strict: bool):
    item = make_message("msg_0", "x🎵yc")
    steps = [*start_events(), *message_events("msg_0", 0, "A", "B", "c")[:-3]]
    ending = [
        *text_part_events("msg_0", 0, 0, "x🎵yc")[-2:],
        item_done(0, item),
        completed_event(item),
    ]
    frames = [encode(event) for event in number_events(*steps, *ending)]
    frames[4] = frames[4].replace(b'"A"', rb'"x\ud83c"')
    frames[5] = frames[5].replace(b'"B"', rb'"\udfb5y"')
    listener = EventReader(strict=strict)
    deltas = [
        event.delta
        for frame in frames
        for event in listener.feed_frame(frame)
        if isinstance(event, OutputTextDelta)
    ]
    assert deltas == ["x", "🎵y", "c"]
    assert listener.response is not None
    assert listener.response.output_text == "x🎵yc"


# --- resumed ---


@pytest.mark.parametrize("after", [0, 5, len(LEGAL) - 2])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_after_a_number_only_the_rest_is_told(after: int, repeated: bool, strict: bool):
    sent = to_raw(LEGAL) if repeated else to_raw(LEGAL)[after + 1 :]
    heard, listener = read_stream(sent, strict=strict, after=after)
    assert heard == LEGAL[after + 1 :]
    assert listener.response == fold(LEGAL)


def test_strictly_the_rest_of_a_stream_has_no_gaps():
    with pytest.raises(RemoteProtocolError, match=r"\[sequence-gapless\]"):
        read_stream(to_raw(LEGAL)[8:], strict=True, after=5)


def test_on_another_connection_nothing_is_told_twice():
    listener = EventReader(strict=True)
    heard: list[Event] = []
    for event in to_raw(LEGAL)[:9]:
        heard += listener.feed_frame(json.dumps(event).encode())
    listener.reconnect()
    for event in to_raw(LEGAL)[9:]:
        heard += listener.feed_frame(json.dumps(event).encode())
    assert heard == LEGAL


# --- anything ---

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PIECES = st.sampled_from(
    [
        {},
        {"type": "message", "id": "a", "role": "assistant", "content": [{"type": "output_text"}]},
        {"type": "message", "id": "b", "role": "alien", "content": "words"},
        {"type": "function_call", "id": "c"},
        {"type": "reasoning", "id": "d", "summary": [{"type": "summary_text", "text": 7}]},
        {"type": "output_text", "text": "x", "annotations": [{"type": "file_path"}, 3]},
        {"type": "refusal"},
        {"type": "url_citation", "start_index": "x"},
        {"id": "resp", "status": "completed", "output": [{}, None, {"type": "message"}]},
        {"id": 3, "output": {}, "usage": {"input_tokens": "many"}, "tools": [{"type": "mcp"}]},
    ]
)
NAMES = sorted(
    {*event_types([*LEGAL, *TRUNCATED, *FAILED]), "error", "acme:tick", "what", "response.queued"}
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(NAMES) | VALUES,
        "sequence_number": st.integers(-1, 30) | VALUES,
        "item_id": st.sampled_from(["a", "b", "c"]) | VALUES,
        "output_index": st.integers(0, 2) | VALUES,
        "content_index": st.integers(0, 1) | VALUES,
        "summary_index": st.integers(0, 1) | VALUES,
        "delta": st.text(max_size=3) | VALUES,
        "text": st.text(max_size=3) | VALUES,
        "refusal": st.text(max_size=3),
        "arguments": st.text(max_size=3),
        "logprobs": st.just([]) | VALUES,
        "response": PIECES | VALUES,
        "item": PIECES | VALUES,
        "part": PIECES | VALUES,
        "annotation": PIECES | VALUES,
        "error": VALUES,
    },
)


@settings(deadline=None)
@given(st.lists(EVENTS | VALUES, max_size=12))
def test_any_json_in_any_order_is_heard(sent: list[object]):
    listener = EventReader()
    for one in sent:
        was_over = listener.ended
        heard = listener.feed_frame(json.dumps(one).encode())
        assert heard or was_over
        encode(heard)
        encode(listener.response)
    if not listener.ended:
        with pytest.raises(UpstreamError):
            listener.close()


@settings(deadline=None)
@given(st.lists(st.sampled_from(LEGAL), max_size=20))
def test_legal_events_in_any_order_are_heard(sent: list[Event]):
    listener = EventReader()
    for event in sent:
        listener.feed_frame(encode(event))
    assert (listener.response is None) == (not sent)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_what_is_no_json_comes_through(data: bytes):
    try:
        json.loads(data)
    except ValueError:
        (event,) = EventReader().feed_frame(data)
        assert event.type == "antiphon:unreadable"
        with pytest.raises(RemoteProtocolError):
            EventReader(strict=True).feed_frame(data)


def test_the_end_is_heard_once():
    end = encode(ResponseCompleted(sequence_number=0, response=make_final_response()))
    listener = EventReader()
    assert len(listener.feed_frame(end)) == 1
    assert listener.feed_frame(end) == []
    assert listener.response == make_final_response()
    assert make_response() != make_final_response()
