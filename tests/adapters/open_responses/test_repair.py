"""Open Responses servers that send invalid streams, fail, or have no endpoint."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.adapters.open_responses.adapter import OpenResponses
from antiphon.protocol import parts
from tests.adapters.open_responses.builders import (
    ADAPTER,
    CITED_MESSAGE,
    EXPECTED_ITEMS,
    FLAT_ERROR,
    NESTED_ERROR,
    SEARCH,
    TWO_EVENTS,
    TWO_ITEMS,
    decode_stream,
    items_without_ids,
    warning_message,
)
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request, make_adapter
from tests.adapters.scenes.responses import (
    SAID,
    SCENES,
    call,
    event,
    events_of,
    item_added,
    message,
    reasoning,
    response,
    sse_bytes,
    stream,
    usage,
)


def without_fields(*names: str) -> list[dict]:
    """Return the events without some fields."""
    return [{k: v for k, v in fields.items() if k not in names} for fields in TWO_EVENTS]


def only_events(*names: str) -> list[dict]:
    """Return some of the events."""
    return [fields for fields in TWO_EVENTS if fields["type"].removeprefix("response.") in names]


def all_events_but(*names: str) -> list[dict]:
    """Return all but some of the events."""
    return [fields for fields in TWO_EVENTS if fields["type"].removeprefix("response.") not in names]


def with_random_ids() -> list[dict]:
    """Return deltas that each name another item."""
    return [
        fields | {"item_id": f"odd_{number}"} if "item_id" in fields else fields
        for number, fields in enumerate(TWO_EVENTS)
    ]


def items_added_late() -> list[dict]:
    """Return events in which each item's first delta comes before the item."""
    events = list(TWO_EVENTS)
    for number in range(len(events) - 1, 0, -1):
        if events[number]["type"].endswith(".delta") and "added" in events[number - 1]["type"]:
            events[number - 1], events[number] = events[number], events[number - 1]
    return events


INVALID_STREAMS = {
    "no output_index": without_fields("output_index"),
    "no item_id": without_fields("item_id"),
    "no content_index": without_fields("content_index"),
    "no index and no id": without_fields("output_index", "content_index", "item_id"),
    "nothing announced": all_events_but("output_item.added", "content_part.added"),
    "nothing ended": all_events_but(
        "output_item.done", "content_part.done", "output_text.done", "function_call_arguments.done"
    ),
    "no deltas": all_events_but("output_text.delta", "function_call_arguments.delta"),
    "only finished items": only_events("output_item.done"),
    "only texts": only_events("output_text.done", "output_item.added", "function_call_arguments.done"),
    "nothing but the end": [],
    "another id in every event": with_random_ids(),
    "deltas before their item": items_added_late(),
    "one index for all": [
        fields | {"output_index": 0} if "output_index" in fields else fields for fields in TWO_EVENTS
    ],
    "everything twice but deltas": [
        copy for fields in TWO_EVENTS for copy in ([fields] if fields["type"].endswith(".delta") else [fields, fields])
    ],
}


@pytest.mark.parametrize("name", INVALID_STREAMS)
def test_an_invalid_stream_is_repaired_and_emitted_once_with_a_warning(name: str):
    result = decode_stream(stream(INVALID_STREAMS[name], response(*TWO_ITEMS)))
    assert items_without_ids(result) == EXPECTED_ITEMS
    assert result.status == "completed"
    assert warning_message(result).startswith("responses broke rules of the protocol. Its answer was repaired: event ")


@pytest.mark.parametrize("name", INVALID_STREAMS)
def test_a_strict_decoder_rejects_an_invalid_stream(name: str):
    result = decode_stream(stream(INVALID_STREAMS[name], response(*TWO_ITEMS)), strict=True)
    assert result.status == "failed"
    assert result.error
    assert result.error.code == "upstream_protocol"


@pytest.mark.parametrize("name", [name for name in INVALID_STREAMS if "but the end" not in name])
def test_an_invalid_stream_may_end_with_an_empty_output(name: str):
    assert items_without_ids(decode_stream(stream(INVALID_STREAMS[name], response()))) == EXPECTED_ITEMS


def test_deltas_may_have_another_id_than_the_item_that_is_added_later():
    first, *rest = [
        fields | {"item_id": "early"} if fields["type"].endswith(".delta") else fields
        for fields in events_of(TWO_ITEMS[0], 0, ["On", "e."])
    ]
    events = [*rest[1:2], first, *rest[2:], *TWO_EVENTS[7:]]
    assert items_without_ids(decode_stream(stream(events, response(*TWO_ITEMS)))) == EXPECTED_ITEMS


def test_other_ids_in_the_final_response_add_no_items():
    final = [item | {"id": f"final_{number}"} for number, item in enumerate(TWO_ITEMS)]
    assert items_without_ids(decode_stream(stream(TWO_EVENTS, response(*final)))) == EXPECTED_ITEMS


def test_numbers_may_be_missing():
    body = stream(TWO_EVENTS, response(*TWO_ITEMS)).replace(b'"sequence_number"', b'"number"')
    result = decode_stream(body)
    assert items_without_ids(result) == EXPECTED_ITEMS
    assert warning_message(result).endswith("sequence_number: this field is required [shape]")


def test_a_strict_decoder_stops_at_a_delta_with_a_wrong_number():
    body = stream(TWO_EVENTS, response(*TWO_ITEMS)).replace(b'"sequence_number": 4', b'"sequence_number": 9')
    result = decode_stream(body, strict=True)
    assert result.error
    assert "[sequence-gapless]" in result.error.message


def test_names_of_events_may_be_missing():
    body = b"".join(
        line
        for line in stream(TWO_EVENTS, response(*TWO_ITEMS)).splitlines(keepends=True)
        if not line.startswith(b"event:")
    )
    assert items_without_ids(decode_stream(body)) == EXPECTED_ITEMS


def test_two_calls_with_one_index_stay_two():
    second = call("weather", '{"city":"Oslo"}', "2")
    events = [
        item_added(SAID, 0),
        item_added(second, 0),
        event("function_call_arguments.delta", item_id="fc_1", output_index=0, delta='{"city"'),
        event("function_call_arguments.delta", item_id="fc_2", output_index=0, delta='{"city"'),
        event("function_call_arguments.delta", item_id="fc_1", output_index=0, delta=':"Paris"}'),
        event("function_call_arguments.delta", item_id="fc_2", output_index=0, delta=':"Oslo"}'),
    ]
    result = decode_stream(stream(events, response(SAID, second)))
    assert [item["arguments"] for item in items_without_ids(result)] == ['{"city":"Paris"}', '{"city":"Oslo"}']


TWO_CALLS = [call("weather", '{"city":"Paris"}', "1"), call("time", '{"city":"Oslo"}', "2")]
TWO_CALLS_EXPECTED = [("weather", '{"city":"Paris"}'), ("time", '{"city":"Oslo"}')]


def interleave(first: list[dict], second: list[dict]) -> list[dict]:
    """Return the events of two items, in turns."""
    return [fields for pair in zip(first, second, strict=True) for fields in pair]


@pytest.mark.parametrize("id", ["", "same", None])
@pytest.mark.parametrize("kept", ["", "delta", "done", "output_item.done"])
@pytest.mark.parametrize("in_turns", [True, False])
@pytest.mark.parametrize("final", [True, False])
def test_calls_that_share_an_id_are_identified_by_their_index(id: str | None, kept: str, in_turns: bool, final: bool):
    calls: list[dict] = [item | {"id": id} for item in TWO_CALLS]
    first, second = (
        [
            fields
            for fields in events_of(item, place, [item["arguments"][:5], item["arguments"][5:]])
            if fields["type"].endswith((kept, "item.added" if kept != "output_item.done" else kept))
        ]
        for place, item in enumerate(calls)
    )
    events = interleave(first, second) if in_turns else [*first, *second]
    result = decode_stream(stream(events, response(*calls if final else [])))
    assert [(item["name"], item["arguments"]) for item in items_without_ids(result)] == TWO_CALLS_EXPECTED


@pytest.mark.parametrize("id", ["", "same", None])
@pytest.mark.parametrize("announced", [True, False])
def test_messages_that_share_an_id_are_identified_by_their_index(id: str | None, announced: bool):
    both = [message(text, id="x") | {"id": id} for text in ("One. ", "Two.")]
    events = [
        fields
        for place, item in enumerate(both)
        for fields in events_of(item, place)
        if announced or not fields["type"].endswith(".added")
    ]
    for end in (response(*both), response()):
        result = decode_stream(stream(events, end))
        assert [item["content"][0]["text"] for item in items_without_ids(result)] == ["One. ", "Two."]


def test_a_unique_id_takes_precedence_over_an_index():
    events = [
        fields | {"output_index": 0} if fields["type"].endswith(".delta") else fields
        for fields in interleave(*(events_of(item, place) for place, item in enumerate(TWO_CALLS)))
    ]
    result = decode_stream(stream(events, response(*TWO_CALLS)))
    assert [(item["name"], item["arguments"]) for item in items_without_ids(result)] == TWO_CALLS_EXPECTED


TRUNCATED = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize("arguments", ['{"city', '{"city":"Par', ""])
@pytest.mark.parametrize("before", [0, 1])
def test_a_truncated_call_is_incomplete_whatever_status_its_server_sends(arguments: str, before: int):
    calls = [*TWO_CALLS[:before], call("time", arguments, "3")]
    final = response(*calls, **TRUNCATED)
    sent = [fields for place, item in enumerate(calls) for fields in events_of(item, place)]
    streams = [sent[:-1], [], *([sent] if arguments else [])]
    results = [decode_stream(stream(events, final)) for events in streams]
    results.append(decode_response(encode_request(ADAPTER), json.dumps(final).encode(), stream=False))
    for result in results:
        assert result.status == "incomplete"
        *first, last = items_without_ids(result)
        assert [item["status"] for item in first] == ["completed"] * before
        assert (last["status"], last["arguments"]) == ("incomplete", arguments)


@pytest.mark.parametrize("arguments", ['{"city":"Oslo"}', "{}"])
def test_a_whole_call_of_a_truncated_response_is_completed(arguments: str):
    item = call("time", arguments, "3")
    final = response(item, **TRUNCATED)
    whole = decode_response(encode_request(ADAPTER), json.dumps(final).encode(), stream=False)
    for result in (whole, decode_stream(stream(events_of(item), final))):
        assert [(i["status"], i["arguments"]) for i in items_without_ids(result)] == [("completed", arguments)]


def test_arguments_of_a_completed_response_need_not_be_json():
    item = call("time", "Oslo", "3")
    for events in (events_of(item), []):
        (decoded,) = items_without_ids(decode_stream(stream(events, response(item))))
        assert (decoded["status"], decoded["arguments"]) == ("completed", "Oslo")


def test_a_text_that_contradicts_its_deltas_is_dropped():
    item = message("Another text.")
    events = events_of(item, deltas=["One ", "text."])
    result = decode_stream(stream(events, response(item)))
    assert result.output_text == "One text."
    assert "[deltas-add-up]" in warning_message(result)


def test_a_warning_names_three_broken_rules_at_most():
    strays = [fields | {"item_id": "x", "output_index": 7} for fields in TWO_EVENTS[1:4]]
    events = [item_added(message(), 3) | {"item": message()}, *strays]
    text = warning_message(decode_stream(stream(events, response(status="in_progress"), "completed")))
    assert text.count("[") == 3
    assert text.endswith("more.")


def test_a_surrogate_pair_in_two_deltas_is_joined():
    events = events_of(message("🎵"), deltas=["\ud83c", "\udfb5"])
    frames = [
        f"data: {json.dumps(fields | {'sequence_number': number})}\n\n"
        for number, fields in enumerate(
            [
                event("created", response=response(status="in_progress", usage=None)),
                event("in_progress", response=response(status="in_progress", usage=None)),
                *events,
                event("completed", response=response(message("🎵"))),
            ]
        )
    ]
    result = decode_stream("".join(frames).encode())
    assert result.output_text == "🎵"
    assert not warning_message(result)


def test_any_line_ending_and_a_byte_order_mark_are_accepted():
    body = SCENES["text"].stream
    for other in (body.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + body, body + b"data: [DONE]\n\n"):
        assert decode_stream(other).output_text == "Hello, 🎵!"


@pytest.mark.parametrize("error", [FLAT_ERROR, NESTED_ERROR])
@pytest.mark.parametrize("before", [0, 4])
def test_an_error_in_the_stream_is_a_failure(error: dict, before: int):
    events = events_of(message("Hello"), deltas=["Hel", "lo"])[:before]
    body = stream([*events, error], response())
    body = body[: body.index(b"event: response.completed")]
    for end in (b"", b"data: [DONE]\n\n"):
        result = decode_stream(body + end)
        assert (result.status, result.output_text) == ("failed", "Hello" if before else "")
        assert result.error
        assert result.error.message == "responses: It broke."


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"message": "Slow.", "type": "requests", "code": "rate_limit_exceeded"},
            (429, "responses: Slow.", "requests", "rate_limit_exceeded"),
        ),
        ({"message": "Busy.", "code": 503}, (503, "responses: Busy.", "model_error", "503")),
        ("It broke.", (502, "responses: It broke.", "model_error", None)),
    ],
)
def test_an_error_without_a_type_keeps_its_message_and_code(error: object, expected: tuple, end: bytes, strict: bool):
    there = make_adapter(OpenResponses, strict=strict)
    body = b"data: " + json.dumps({"error": error}).encode() + b"\n\n" + end
    (last,) = decode_parts(encode_request(there, stream=True), body)
    assert isinstance(last, parts.Failure)
    assert (last.status, last.error.message, last.error.type, last.error.code) == expected


def test_an_error_before_a_failed_response_is_one_failure_with_its_usage():
    failure = {"code": "rate_limit_exceeded", "message": "Too fast."}
    end = response(status="failed", error=failure, usage=usage(3, 4))
    parts_heard = decode_parts(encode_request(ADAPTER, stream=True), stream([FLAT_ERROR], end))
    assert parts_heard[:2] == [parts.Progress("in_progress"), parts.Usage(3, 4, 0, 0)]
    (last,) = parts_heard[2:]
    assert isinstance(last, parts.Failure)
    assert (last.status, last.error.code, last.error.type) == (429, "rate_limit_exceeded", "too_many_requests")


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_the_decoder_is_done_at_the_end_of_the_response(status: str):
    decoder = encode_request(ADAPTER, stream=True).decoder
    decoded = decoder.feed(stream(TWO_EVENTS, response(*TWO_ITEMS, status=status)))
    assert isinstance(decoded[-1], parts.Finish | parts.Failure)
    assert parts.Usage(26, 5, 0, 0) in decoded
    assert decoder.done
    assert decoder.feed(stream([FLAT_ERROR], response(*TWO_ITEMS, status="failed"))) == []
    assert decoder.close() == []


def test_an_error_event_waits_for_the_failed_response():
    decoder = encode_request(ADAPTER, stream=True).decoder
    assert decoder.feed(sse_bytes([FLAT_ERROR])) == []
    assert not decoder.done
    failed = response(status="failed", error={"code": "c", "message": "Oh."})
    (*_, last) = decoder.feed(sse_bytes([event("failed", response=failed)]))
    assert isinstance(last, parts.Failure)
    assert (last.error.code, decoder.done) == ("c", True)


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n", b"event: response.comp"])
def test_a_stream_without_an_end_was_cut(end: bytes):
    body = SCENES["text"].stream
    result = decode_stream(body[: body.index(b"event: response.completed")] + end)
    assert result.status == "failed"
    assert result.error
    assert result.error.code == "upstream_cut"
    assert result.output_text == "Hello, 🎵!"


@pytest.mark.parametrize("body", [b"data: <html>\n\n", b"data: [1]\n\n", b'data: {"type":3}\n\n'])
def test_unreadable_bytes_are_a_failure(body: bytes):
    result = decode_stream(body)
    assert (result.status, result.error.code) == ("failed", "upstream_invalid")  # type: ignore[union-attr]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"object":"response"}'])
def test_a_body_without_a_response_is_a_failure(body: bytes):
    result = decode_response(encode_request(ADAPTER), body, stream=False)
    assert result.status == ("completed" if b"response" in body else "failed")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"type": "server_error", "message": "Oh."}}, "server_error"),
        (response(status="failed", error={"code": "c", "message": "Oh."}), "c"),
        (response(status="in_progress"), "model_error"),
    ],
)
def test_a_failed_or_unfinished_whole_response_is_a_failure(body: dict, code: str):
    result = decode_response(encode_request(ADAPTER), json.dumps(body).encode(), stream=False)
    assert result.status == "failed"
    assert result.error
    assert result.error.code == code


FIELD_NAMES = """annotations arguments call_id content delta encrypted_content error id item
item_id logprob logprobs message name output output_index part refusal status summary text token
type usage""".split()
JUNK = st.recursive(
    st.none() | st.integers(-3, 2**70) | st.sampled_from(["", "message", "compaction", "\x00"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, max_size=4),
    max_leaves=8,
)
SAMPLE_EVENTS = [
    *TWO_EVENTS,
    *events_of(reasoning("a"), 2),
    *events_of(SEARCH, 3),
    *events_of(message(content=[CITED_MESSAGE], id="msg_5"), 5),
    FLAT_ERROR,
    NESTED_ERROR,
    event("completed", response=response(*TWO_ITEMS)),
    event("incomplete", response=response(message("x", id="msg_6"), status="incomplete")),
]


@st.composite
def corrupted_events(draw: st.DrawFn) -> list[dict]:
    """Draw events in any order, with some of their fields missing or nonsense."""
    corrupted = []
    for drawn in draw(st.lists(st.sampled_from(SAMPLE_EVENTS), max_size=10)):
        fields = json.loads(json.dumps(drawn))
        inner = [fields, fields.get("item"), fields.get("response"), fields.get("part")]
        for spoiled in filter(None, inner):
            if draw(st.booleans()):
                spoiled[draw(st.sampled_from(sorted(spoiled)))] = draw(JUNK)
        corrupted.append(fields | {"type": drawn["type"]})
    return corrupted


@given(events=corrupted_events(), strict=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_corrupted_events_never_raise(events: list[dict], strict: bool):
    result = decode_stream(sse_bytes(events), strict=strict)  # which checks its own stream
    assert result.status in ("completed", "incomplete", "failed")


@given(body=JUNK, output=st.lists(JUNK, max_size=3))
@settings(deadline=None)
def test_any_json_as_a_whole_response_never_raises(body: object, output: list[object]):
    for value in (body, response() | {"output": output}):
        decode_response(encode_request(ADAPTER), json.dumps(value).encode(), stream=False)


def test_events_of_the_wrong_shape_are_skipped():
    odd = [
        event("output_text.delta", item_id=3, output_index=[1], content_index="x", delta={"a": 1}),
        event("output_item.added", item=None, output_index=None),
        event("output_item.done", item="x"),
        event("output_text.done", text=None),
        event("content_part.done", part=[]),
        event("output_text.annotation.added", annotation=None),
        event("function_call_arguments.done", arguments=3),
    ]
    end = response(*TWO_ITEMS, usage={"input_tokens": "x"}, incomplete_details=3)
    result = decode_stream(stream(odd, end | {"antiphon:warnings": [3]}))
    assert items_without_ids(result)[-2:] == EXPECTED_ITEMS
