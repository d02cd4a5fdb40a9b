"""The client's reader: frames that are not JSON, split surrogate pairs, streams without an end."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.http import EventReader, parse_response
from antiphon.protocol.errors import ErrorPayload, RemoteProtocolError, UpstreamError
from antiphon.protocol.events import ErrorEvent, OutputTextDelta
from antiphon.protocol.struct import encode
from tests.protocol.broken_streams import KNOWN_MISTAKES
from tests.protocol.builders import (
    completed_event,
    item_done,
    make_message,
    message_events,
    number_events,
    start_events,
    text_part_events,
)

Json = dict[str, Any]


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"type": "too_many_requests", "code": "slow_down", "message": "Later."}},
        {"code": "slow_down", "message": "Later.", "param": None},
    ],
    ids=["nested", "flat"],
)
def test_an_error_event_without_an_end_is_raised(error: Json):
    reader = EventReader()
    (event,) = reader.feed_frame(json.dumps({"type": "error", **error}).encode())
    kind = "too_many_requests" if "error" in error else "server_error"
    payload = ErrorPayload(message="Later.", type=kind, code="slow_down")
    assert event == ErrorEvent(sequence_number=0, error=payload)
    with pytest.raises(UpstreamError) as caught:
        reader.close()
    assert caught.value.payload == payload
    assert caught.value.status == {"too_many_requests": 429, "server_error": 500}[kind]
    assert caught.value.retryable is (kind == "too_many_requests")


def test_a_stream_without_an_end_is_cut():
    events, _ = KNOWN_MISTAKES["a stream that just stops"]
    reader = EventReader()
    for event in events:
        reader.feed_frame(json.dumps(event).encode())
    with pytest.raises(UpstreamError, match="ended before the response did") as caught:
        reader.close()
    assert (caught.value.payload.code, caught.value.retryable) == ("upstream_cut", True)
    assert reader.response is not None
    assert reader.response.output_text == "Hello"


@pytest.mark.parametrize("strict", [False, True])
def test_a_surrogate_pair_in_two_deltas_is_joined(strict: bool):
    item = make_message("msg_0", "x🎵yc")
    steps = [*start_events(), *message_events("msg_0", 0, "A", "B", "c")[:-3]]
    ending = [*text_part_events("msg_0", 0, 0, "x🎵yc")[-2:], item_done(0, item), completed_event(item)]
    frames = [encode(event) for event in number_events(*steps, *ending)]
    frames[4] = frames[4].replace(b'"A"', rb'"x\ud83c"')
    frames[5] = frames[5].replace(b'"B"', rb'"\udfb5y"')
    reader = EventReader(strict=strict)
    deltas = [
        event.delta for frame in frames for event in reader.feed_frame(frame) if isinstance(event, OutputTextDelta)
    ]
    assert deltas == ["x", "🎵y", "c"]
    assert reader.response is not None
    assert reader.response.output_text == "x🎵yc"


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_a_frame_that_is_not_json_comes_as_an_unreadable_event(data: bytes):
    try:
        json.loads(data)
    except ValueError:
        (event,) = EventReader().feed_frame(data)
        assert event.type == "antiphon:unreadable"
        with pytest.raises(RemoteProtocolError):
            EventReader(strict=True).feed_frame(data)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "something else instead of a response"),
        (b"", "nothing instead of a response"),
        (b'{"error":{"message":"Oh."}}', "Oh."),
    ],
)
def test_a_body_without_a_response_is_an_error(body: bytes, message: str):
    with pytest.raises(UpstreamError, match=message):
        parse_response(body, "there")
