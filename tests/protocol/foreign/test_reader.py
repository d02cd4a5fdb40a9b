"""The reader of foreign streams: legal, illegal, in OpenAI's dialect, resumed, any JSON at all."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.protocol.errors import RemoteProtocolError
from antiphon.protocol.events import (
    Event,
    ExtensionEvent,
    OutputTextDelta,
    ReasoningDelta,
    ResponseCompleted,
    ResponseCreated,
)
from antiphon.protocol.fold import fold
from antiphon.protocol.items import ExtensionItem, Message, OutputText
from antiphon.protocol.struct import encode
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
    make_final_response,
    make_response,
    message_events,
    number_events,
    synthesize,
    to_json,
)
from tests.protocol.foreign.read_stream import make_reader, read_stream
from tests.protocol.strategies import part_lists

LEGAL_STREAMS = [LEGAL, PARALLEL_CALLS, NO_OUTPUT, TRUNCATED, FAILED]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("events", LEGAL_STREAMS)
def test_a_legal_stream_is_read_unchanged(events: list[Event], strict: bool):
    events_read, reader = read_stream(to_raw(events), strict=strict)
    assert events_read == events
    assert (reader.response, reader.ended) == (fold(events), True)
    assert reader.last_number == len(events) - 1


@settings(deadline=None)
@given(part_lists())
def test_every_stream_of_the_synthesizer_is_legal_and_folds_to_the_same_response(parts: Any):
    events = synthesize(*parts)
    for strict in (False, True):
        events_read, reader = read_stream(to_raw(events), strict=strict)
        assert to_json(events_read) == to_json(events)
        assert to_json(reader.response) == to_json(fold(events))


def test_the_response_grows_with_the_stream():
    reader = make_reader()
    assert reader.response is None
    texts: list[str] = []
    for event in number_events(*message_events("msg_0", 0, "Hel", "lo")):
        reader.feed(to_raw([event])[0])
        assert reader.response is not None
        texts.append(reader.response.output_text)
    assert texts == ["", "", "Hel", "Hello", "Hello", "Hello", "Hello"]


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_text", "reasoning_content"])
def test_every_spelling_of_reasoning_events_is_read(spelling: str):
    written = json.loads(json.dumps(to_raw(LEGAL)).replace("response.reasoning.", f"response.{spelling}."))
    events_read, _ = read_stream(written, strict=True)
    assert events_read == LEGAL
    assert any(isinstance(event, ReasoningDelta) for event in events_read)


def test_openais_own_items_get_its_slug():
    found = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"q": "a"}}
    begin = found | {"status": "in_progress"}
    searching = {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 0}
    events = [
        {"type": "response.created", "response": openai.response(status="in_progress", usage=None)},
        {"type": "response.in_progress", "response": openai.response(status="in_progress", usage=None)},
        {"type": "response.output_item.added", "output_index": 0, "item": begin},
        searching,
        {"type": "response.output_item.done", "output_index": 0, "item": found},
        {"type": "response.completed", "response": openai.response(found)},
    ]
    sent = [event | {"sequence_number": number} for number, event in enumerate(events)]
    events_read, reader = read_stream(sent, strict=True)
    item = ExtensionItem(type="openai:web_search_call", id="ws_1", status="completed", extra={"action": {"q": "a"}})
    assert reader.response is not None
    assert reader.response.output == [item]
    assert events_read[3] == ExtensionEvent(
        type="response.web_search_call.searching", sequence_number=3, extra={"item_id": "ws_1", "output_index": 0}
    )


def test_the_stream_id_of_a_websocket_lane_is_removed():
    events = [event | {"stream_id": "a"} for event in to_raw(LEGAL)]
    assert read_stream(events)[0] == LEGAL


EXPECTED_TEXTS = {
    "item-content": "Other",  # the final response says it, and it has the last word
    "error-told": "Hi",
    "reason-told": "Hi",
    "part-done": "",
    "done-in-order": "",
    "a truncated answer that is called completed": "Hi",
    "a failure that is called completed": "Hi",
}


INVALID_STREAMS = RULE_BREAKS | {name: events for name, (events, _) in KNOWN_MISTAKES.items()}


@pytest.mark.parametrize("name", [name for name in INVALID_STREAMS if name != "a stream that just stops"])
def test_a_lenient_reader_passes_every_event_of_an_illegal_stream(name: str):
    events_read, reader = read_stream(INVALID_STREAMS[name])
    sent = [event["type"] for event in INVALID_STREAMS[name]]
    if name in ("nothing-after-end", "two endings"):
        sent.pop()
    remaining = iter(event_types(events_read))
    assert all(type in remaining for type in sent), "an event is lost, or out of order"
    assert reader.response is not None
    assert reader.response.output_text == EXPECTED_TEXTS.get(name, "Hello")
    assert reader.response.status != "in_progress"


def test_missing_numbers_are_counted():
    events = [{k: v for k, v in event.items() if k != "sequence_number"} for event in to_raw(LEGAL)]
    assert read_stream(events)[0] == LEGAL
    with pytest.raises(RemoteProtocolError, match=r"sequence_number: .* required .*\[shape\]"):
        read_stream(events, strict=True)


def test_a_final_response_without_output_gets_the_items_of_the_stream():
    events = to_raw(number_events(*message_events("msg_0", 0, "Hi"), completed_event()))
    _, reader = read_stream([*events[:-2], {"type": "response.completed", "response": {}}])
    assert reader.response is not None
    assert reader.response.output_text == "Hi"
    assert reader.response.output[0] == Message(
        id="msg_0", role="assistant", status="completed", content=[OutputText(text="Hi")]
    )


def test_unknown_words_and_fields_of_a_response_are_kept():
    odd = openai.response(
        status="paused",
        service_tier="warp",
        reasoning={"effort": "ultra", "mode": "deep"},
        instructions=[{"role": "user", "content": "Hi"}],
        created_at=1756315696.5,
        truncation="middle",
        billing={"payer": "us"},
    )
    (event,) = make_reader().feed({"type": "response.created", "response": odd})
    assert isinstance(event, ResponseCreated)
    response = event.response
    assert response.reasoning is not None
    assert (response.status, response.service_tier, response.truncation) == ("paused", "warp", "middle")
    assert (response.reasoning.effort, response.reasoning.get("mode")) == ("ultra", "deep")
    assert response.created_at == 1756315696
    assert response.get("billing") == {"payer": "us"}
    assert response.get("instructions") == [{"role": "user", "content": "Hi"}]


def test_an_error_event_explains_the_failed_response_after_it():
    error = {"type": "error", "error": {"type": "server_error", "message": "Broke."}}
    failed = {"type": "response.failed", "response": {"id": "resp_0"}}
    _, reader = read_stream([error, failed])
    assert reader.response is not None
    assert reader.response.error is not None
    assert (reader.response.status, reader.response.error.message) == ("failed", "Broke.")


@pytest.mark.parametrize("after", [0, 5, len(LEGAL) - 2])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_a_resumed_stream_starts_after_the_known_events(after: int, repeated: bool, strict: bool):
    sent = to_raw(LEGAL) if repeated else to_raw(LEGAL)[after + 1 :]
    events_read, reader = read_stream(sent, strict=strict, after=after)
    assert events_read == LEGAL[after + 1 :]
    assert reader.response == fold(LEGAL)


def test_another_connection_repeats_no_event():
    reader = make_reader(strict=True)
    events_read: list[Event] = []
    for event in to_raw(LEGAL)[:9]:
        events_read += reader.feed(event)
    reader.reconnect()
    for event in to_raw(LEGAL)[9:]:
        events_read += reader.feed(event)
    assert events_read == LEGAL


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


NAMES = sorted({*event_types([*LEGAL, *TRUNCATED, *FAILED]), "error", "acme:tick", "what", "response.queued"})


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
def test_any_json_in_any_order_is_read(sent: list[object]):
    reader = make_reader()
    for one in sent:
        was_over = reader.ended
        events_read = reader.feed(one)
        assert events_read or was_over
        encode(events_read)
        encode(reader.response)


@settings(deadline=None)
@given(st.lists(st.sampled_from(LEGAL), max_size=20))
def test_legal_events_in_any_order_are_read(sent: list[Event]):
    reader = make_reader()
    for event in sent:
        reader.feed(to_raw([event])[0])
    assert (reader.response is None) == (not sent)


def test_the_end_is_read_once():
    (end,) = to_raw([ResponseCompleted(sequence_number=0, response=make_final_response())])
    reader = make_reader()
    assert len(reader.feed(end)) == 1
    assert reader.feed(end) == []
    assert reader.response == make_final_response()
    assert make_response() != make_final_response()


def test_unknown_fields_of_a_delta_are_kept_in_a_long_text():
    events = to_raw(number_events(*message_events("msg_0", 0, "a", "b", "c"), completed_event()))
    deltas = [event | {"probability": 1} if "delta" in event else event for event in events]
    read, reader = read_stream(deltas)
    found = [event for event in read if isinstance(event, OutputTextDelta)]
    assert [(event.delta, event.get("probability")) for event in found] == [("a", 1), ("b", 1), ("c", 1)]
    assert reader.response is not None
    assert reader.response.output_text == "abc"


def test_a_whole_response_ends_the_stream():
    reader = make_reader()
    assert reader.feed_response(make_final_response()) == [
        ResponseCompleted(sequence_number=0, response=make_final_response())
    ]
    assert reader.ended
