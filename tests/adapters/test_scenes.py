"""Every scene of every provider through its decoder and the synthesizer, in every chunking.

Here the decoders meet the protocol's rules and schemas. `test_scenes_over_http.py` plays a few of
the scenes through the whole server.
"""

import json
from itertools import count
from typing import Any

import pytest

from antiphon.protocol.events import (
    TERMINAL_EVENTS,
    Event,
    FunctionCallArgumentsDelta,
    FunctionCallArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ResponseCreated,
)
from antiphon.protocol.items import FunctionCall, Message
from antiphon.protocol.response import Response
from antiphon.protocol.synth import Synth
from antiphon.protocol.synth_items import SynthOptions
from antiphon.wire.openresponses import Dialect
from tests.adapters.provider_servers import ALL_SCENES, NAMES, SCENE_MODULES, configure_provider, summarize
from tests.adapters.run_adapter import EncodedRequest, decode_parts, decode_response, encode_request, synthesize
from tests.spec.schema_checks import check_event


def encode_scene(name: str, scene: str, *, stream: bool) -> EncodedRequest:
    """Encode the request that leads to a scene."""
    adapter = SCENE_MODULES[name].ADAPTER(configure_provider(name, "http://there"))
    request = SCENE_MODULES[name].SCENES[scene].request
    return encode_request(adapter, **request | {"stream": stream})


def stream_scene(name: str, scene: str, chunk_size: int = 0) -> tuple[list[Event], Response]:
    """Decode a scene as a stream; return its events and the final response."""
    request = encode_scene(name, scene, stream=True)
    body = SCENE_MODULES[name].SCENES[scene].stream
    return synthesize(request, decode_parts(request, body, pieces=chunk_size))


def events_of(name: str, scene: str) -> list[Event]:
    """Return the events of a scene."""
    return stream_scene(name, scene)[0]


@pytest.mark.parametrize("chunk_size", [0, 1, 7])
@pytest.mark.parametrize(("name", "scene"), ALL_SCENES)
def test_a_stream_has_the_expected_content_in_every_chunking(name: str, scene: str, chunk_size: int) -> None:
    expected = SCENE_MODULES[name].SCENES[scene].expected
    _, response = stream_scene(name, scene, chunk_size)
    assert summarize(to_object(response), expected) == expected
    assert not response.warnings


@pytest.mark.parametrize(("name", "scene"), ALL_SCENES)
def test_every_event_of_a_stream_satisfies_the_specification(name: str, scene: str) -> None:
    for event in events_of(name, scene):
        for _, data in Dialect().encode_event(event):
            check_event(json.loads(data))


@pytest.mark.parametrize(("name", "scene"), ALL_SCENES)
def test_a_whole_answer_is_the_same_response_as_its_stream(name: str, scene: str) -> None:
    played = SCENE_MODULES[name].SCENES[scene]
    request = encode_scene(name, scene, stream=False)
    response = decode_response(request, played.whole, stream=False)
    assert summarize(to_object(response), played.expected) == played.expected
    assert comparable_items(response) == comparable_items(stream_scene(name, scene)[1])


def comparable_items(response: Response) -> list[dict[str, Any]]:
    """Return the output without ids, with parsed arguments: Bedrock streams them with spaces."""
    items = [{**item, "id": None} for item in to_object(response)["output"]]
    return [{**item, "arguments": json.loads(item["arguments"])} if "arguments" in item else item for item in items]


def to_object(response: Response) -> dict[str, Any]:
    """Return a response as a JSON object."""
    return json.loads(Dialect().encode(response))


@pytest.mark.parametrize("name", NAMES)
def test_a_text_begins_grows_ends_and_has_one_last_event(name: str) -> None:
    events = events_of(name, "text")
    deltas = [event for event in events if isinstance(event, OutputTextDelta)]
    (done,) = [event for event in events if isinstance(event, OutputTextDone)]
    assert isinstance(events[0], ResponseCreated)
    assert "".join(delta.delta for delta in deltas) == done.text
    assert {(e.item_id, e.output_index, e.content_index) for e in (*deltas, done)} == {(done.item_id, 0, 0)}
    assert [isinstance(event, TERMINAL_EVENTS) for event in events].count(True) == 1
    assert isinstance(events[-1], TERMINAL_EVENTS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scene", ["call", "parallel_calls", "interleaved_calls", "text_and_call"])
def test_a_call_is_added_grows_and_is_done_under_one_id(name: str, scene: str) -> None:
    events = events_of(name, scene)
    added = [e for e in events if isinstance(e, OutputItemAdded) and _is_call(e.item)]
    assert len(added) == len(SCENE_MODULES[name].SCENES[scene].expected.calls)
    for begun in added:
        own = [e for e in events if getattr(e, "output_index", None) == begun.output_index]
        deltas = [e for e in own if isinstance(e, FunctionCallArgumentsDelta)]
        *_, done, last = own
        assert isinstance(done, FunctionCallArgumentsDone)
        assert isinstance(last, OutputItemDone)
        assert own == [begun, *deltas, done, last]
        assert all(delta.delta for delta in deltas)
        assert "".join(delta.delta for delta in deltas) == done.arguments
        assert isinstance(json.loads(done.arguments), dict)
        assert {e.item_id for e in (*deltas, done)} == {begun.item.id} == {last.item.id}


def _is_call(item: object) -> bool:
    return isinstance(item, FunctionCall)


@pytest.mark.parametrize("name", NAMES)
def test_items_are_numbered_in_the_order_they_begin(name: str) -> None:
    added = [e for e in events_of(name, "text_and_call") if isinstance(e, OutputItemAdded)]
    assert [event.output_index for event in added] == [0, 1]
    assert isinstance(added[0].item, Message)
    assert isinstance(added[1].item, FunctionCall)


@pytest.mark.parametrize("name", ["openai", "azure", "writer"])
def test_every_chunk_of_a_chat_is_a_delta_for_those_who_want_them_all(name: str) -> None:
    played = SCENE_MODULES[name].SCENES["text"]
    adapter = SCENE_MODULES[name].ADAPTER(configure_provider(name, "http://there"))
    asking = encode_request(adapter, stream=True)
    numbers = count()
    begun = Response.new(asking.prompt.request, id="resp_1", created_at=1)
    synth = Synth(
        begun, ids=lambda prefix: f"{prefix}_{next(numbers)}", clock=lambda: 2.0, options=SynthOptions(keep_empty=True)
    )
    events = synth.start()
    for part in decode_parts(asking, played.stream):
        events += synth.feed(part)
    lines = [line for line in played.stream.split(b"\n") if line.startswith(b"data: {")]
    chunks = [chunk for line in lines if (chunk := json.loads(line[6:]))["choices"]]
    assert len([e for e in events if isinstance(e, OutputTextDelta)]) == len(chunks)
