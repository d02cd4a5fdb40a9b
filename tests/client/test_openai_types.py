"""OpenAI's dialect by its own client's types: every event and item that openai-python knows."""

import json
from typing import Any, get_args

import pytest
from msgspec import UNSET

from antiphon.client.agent.run import run_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.http import EventReader
from antiphon.protocol.errors import UpstreamError
from antiphon.protocol.events import Event, ExtensionEvent, OutputItemAdded, OutputItemDone
from antiphon.protocol.items import ExtensionItem, Item
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins, type_names
from tests.adapters.scenes.responses import SCENES
from tests.client import openai_types as openai
from tests.client.agent.faulty_server import HTTP
from tests.scripted_upstream import json_answer, scripted_upstream, sse_answer

pytestmark = pytest.mark.anyio

EVENTS, ITEMS = openai.events(), openai.items()
RENAMED = {"response.reasoning_text.delta", "response.reasoning_text.done"}
"""What OpenAI has another name for."""

KNOWN = RENAMED | {name for kind in get_args(Event) for name in type_names(kind)} - {"error"}
OPENAI_ONLY = EVENTS.keys() - KNOWN - {"error"}
ENDS = ("response.completed", "response.failed", "response.incomplete")
ABOUT = {"title": "A page", "url": "https://example.org", "start_index": 0, "end_index": 4}
CITED = {"type": "url_citation", **ABOUT}
FORMS = pytest.mark.parametrize("made", [openai.smallest, openai.complete], ids=["bare", "nulls"])


def lifecycle_event(name: str, **fields: object) -> dict[str, Any]:
    """Write an event of a response's life."""
    status = "in_progress" if name == "created" else name
    return {"type": f"response.{name}", "response": openai.response(status) | fields}


def encode_events(*events: dict[str, Any]) -> list[bytes]:
    """Write the events of a stream, each with its number."""
    return [json.dumps({**e, "sequence_number": n}).encode() for n, e in enumerate(events)]


async def stream_events(*events: dict[str, Any]) -> tuple[list[Event], Response]:
    """Serve a stream and read it to its end."""
    frames = zip((event["type"] for event in events), encode_events(*events), strict=True)
    body = b"".join(f"event: {name}\ndata: ".encode() + data + b"\n\n" for name, data in frames)
    with scripted_upstream(sse_answer(body)) as server:
        async with AsyncClient(server.url) as client:
            stream = client.stream(model="gpt-5", input="Hi!")
            return [event async for event in stream], stream.response


def scalar_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the strings and numbers among an event's fields."""
    kept = {name: value for name, value in fields.items() if isinstance(value, str | int)}
    return {name: value for name, value in kept.items() if name not in ("type", "sequence_number")}


def test_openai_has_the_known_number_of_events_and_items():
    assert len(EVENTS) >= 59
    assert len(ITEMS) >= 28
    assert len(OPENAI_ONLY) >= 34


@FORMS
@pytest.mark.parametrize("name", sorted(EVENTS.keys() & KNOWN - set(ENDS)))
async def test_an_event_of_the_specification_is_typed(name, made):
    fields = {"annotation": CITED} if name.endswith("annotation.added") else {}
    sent = made(EVENTS[name], **fields)
    events, response = await stream_events(lifecycle_event("created"), sent, lifecycle_event("completed"))
    *_, found, last = events
    assert type(found) is not ExtensionEvent
    assert found.type == name.replace("reasoning_text", "reasoning")
    written = to_builtins(found)
    assert isinstance(written, dict)
    assert scalar_fields(written) == scalar_fields(sent)
    assert (last.type, response.status) == ("response.completed", "completed")


@FORMS
@pytest.mark.parametrize("name", sorted(OPENAI_ONLY))
async def test_an_event_of_openais_own_keeps_its_fields(name, made):
    sent = made(EVENTS[name])
    events, response = await stream_events(lifecycle_event("created"), sent, lifecycle_event("completed"))
    rest = {name: value for name, value in sent.items() if name not in ("type", "sequence_number")}
    assert [event.type for event in events] == ["response.created", name, "response.completed"]
    assert events[1] == ExtensionEvent(type=name, sequence_number=1, extra=rest or UNSET)
    assert response.status == "completed"


@FORMS
@pytest.mark.parametrize("name", ENDS)
async def test_a_minimal_final_event_ends_the_stream(name, made):
    events, response = await stream_events(lifecycle_event("created"), made(EVENTS[name]))
    assert [event.type for event in events] == ["response.created", name]
    assert response.status == name.removeprefix("response.")


@FORMS
async def test_an_error_event_is_raised(made):
    fields = {"code": "server_error", "message": "Oh no.", "param": "input"}
    with pytest.raises(UpstreamError, match="Oh no") as caught:
        await stream_events(lifecycle_event("created"), made(EVENTS["error"], **fields))
    assert (caught.value.payload.code, caught.value.payload.param) == ("server_error", "input")


async def test_all_events_come_through_in_one_stream():
    """About one and the same item, which is not even possible."""
    names = [name for name in EVENTS if name not in (*ENDS, "response.created")]
    sent = [openai.smallest(EVENTS[name]) for name in names]
    events, response = await stream_events(lifecycle_event("created"), *sent, lifecycle_event("completed"))
    own = [event.type for event in events if isinstance(event, ExtensionEvent)]
    assert [name for name in own if name in OPENAI_ONLY] == [n for n in names if n in OPENAI_ONLY]
    assert response.status == "completed"


@pytest.mark.parametrize("name", sorted(OPENAI_ONLY))
def test_an_event_of_openais_own_breaks_no_rule(name):
    reader = EventReader(strict=True)
    sent = openai.smallest(EVENTS[name])
    for data in encode_events(
        lifecycle_event("created"), lifecycle_event("in_progress"), sent, lifecycle_event("completed")
    ):
        assert len(reader.feed_frame(data)) == 1
    reader.close()


@FORMS
@pytest.mark.parametrize("name", ITEMS)
async def test_an_item_is_kept_unchanged(name, made):
    item = made(ITEMS[name])
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    added = done | {"type": "response.output_item.added"}
    events, response = await stream_events(
        lifecycle_event("created"), added, done, lifecycle_event("completed", output=[item])
    )
    (kept,) = response.output
    moments = [e for e in events if isinstance(e, OutputItemAdded | OutputItemDone)]
    assert [moment.item.type for moment in moments] == [kept.type] * 2
    if isinstance(kept, ExtensionItem):
        assert kept.type == f"openai:{name}"
    else:
        assert kept.type == name
        assert type(kept) in get_args(Item)
    fields = to_builtins(kept)
    assert isinstance(fields, dict)
    found = {key: value for key, value in item.items() if value is not None and key != "type"}
    assert {key: fields.get(key) for key in found} == found


async def test_a_model_without_reasoning_is_not_asked_for_encrypted_reasoning():
    """OpenAI rejects the request for encrypted reasoning, and it is repeated without."""
    message = "Encrypted content is not supported with this model."
    error = {"message": message, "type": "invalid_request_error", "param": "include", "code": None}
    refusal, answer = json_answer({"error": error}, 400), sse_answer(SCENES["text"].stream)
    with scripted_upstream(refusal, answer) as server:
        async with AsyncClient(server.url) as client:
            result = await run_agent("Hi!", model="gpt-4o", client=client, options=HTTP)
        asked = [request.json.get("include") for request in server.requests]
    assert result.message == SCENES["text"].expected.text
    assert asked == [["reasoning.encrypted_content"], None]
