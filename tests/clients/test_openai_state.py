"""The real openai-python and stored, continued and background responses of `demo`."""

import time

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, UnprocessableEntityError
from openai.types.responses import (
    Response,
    ResponseInputMessageItem,
    ResponseInputParam,
    ResponseInputText,
    ResponseItem,
    ResponseStreamEvent,
)

from tests.clients.openai_events import BEGIN_EVENTS, HELLO, WORDS, text_events

ID = "resp_" + "0" * 48
ANSWER = [BEGIN_EVENTS[0], "response.queued", BEGIN_EVENTS[1], *text_events(len(WORDS)), "response.completed"]
SEVEN: ResponseInputParam = [{"role": "user", "content": f"Number {n}."} for n in range(7)]


def poll_until_ended(client: OpenAI, id: str) -> Response:
    """Poll a background response until it has ended, as OpenAI's guide does."""
    deadline = time.monotonic() + 20
    response = client.responses.retrieve(id)
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        response = client.responses.retrieve(id)
    return response


def text_of(item: ResponseItem) -> str:
    """Return the text of a message of one part."""
    assert isinstance(item, ResponseInputMessageItem)
    (part,) = item.content
    assert isinstance(part, ResponseInputText)
    return part.text


def test_retrieve_returns_the_same_as_create(client: OpenAI) -> None:
    created = client.responses.create(model="demo", input="Hello!", metadata={"trace": "1"})
    assert client.responses.retrieve(created.id) == created
    included = client.responses.retrieve(
        created.id, include=["reasoning.encrypted_content", "message.output_text.logprobs"]
    )
    assert included == created


def test_a_deleted_response_is_gone(client: OpenAI) -> None:
    created = client.responses.create(model="demo", input="Hello!")
    client.responses.delete(created.id)
    with pytest.raises(NotFoundError) as caught:
        client.responses.retrieve(created.id)
    assert (caught.value.code, caught.value.param) == ("response_not_found", "response_id")
    for again in (client.responses.delete, client.responses.cancel):
        with pytest.raises(NotFoundError):
            again(created.id)
    with pytest.raises(NotFoundError):
        client.responses.input_items.list(created.id)


def test_input_items_are_paginated_in_both_orders(client: OpenAI) -> None:
    created = client.responses.create(model="demo", input=SEVEN)
    wanted = [f"Number {n}." for n in range(7)]
    down: list[ResponseItem] = []
    for limit in (1, 3, 7, 100):
        up = list(client.responses.input_items.list(created.id, limit=limit, order="asc"))
        assert [text_of(item) for item in up] == wanted
        down = list(client.responses.input_items.list(created.id, limit=limit, order="desc"))
        assert down == up[::-1]
        assert len({item.id for item in up}) == 7
    assert list(client.responses.input_items.list(created.id)) == down
    first = client.responses.input_items.list(created.id, limit=2)
    assert first.has_more
    assert first.get_next_page().data == down[2:4]


@pytest.mark.parametrize("store", [True, False])
def test_a_chain_has_its_history_and_can_be_forked(client: OpenAI, store: bool) -> None:
    first = client.responses.create(model="demo", input="I am Alice.", store=store)
    second = client.responses.create(model="demo", input="Who am I?", previous_response_id=first.id, store=store)
    assert second.previous_response_id == first.id
    assert second.output_text.endswith("This conversation has 3 messages.")
    for _ in range(2):
        fork = client.responses.create(model="demo", input="And now?", previous_response_id=second.id, store=store)
        assert fork.output_text.endswith("You said: And now? This conversation has 5 messages.")
    if not store:
        with pytest.raises(NotFoundError):
            client.responses.retrieve(first.id)


def test_a_deleted_response_cannot_be_continued(client: OpenAI) -> None:
    gone = client.responses.create(model="demo", input="Hello!").id
    client.responses.delete(gone)
    for id in (gone, ID, "nonsense"):
        for stream in (False, True):
            with pytest.raises(BadRequestError, match=id) as caught:
                client.responses.create(model="demo", input="Hello!", previous_response_id=id, stream=stream)
            error = caught.value
            assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")


def test_a_background_response_is_polled_and_replayed(client: OpenAI) -> None:
    begun = client.responses.create(model="demo", input="Hello!", background=True)
    assert (begun.status, begun.background, begun.output) == ("queued", True, [])
    events_seen = poll_until_ended(client, begun.id)
    assert (events_seen.status, events_seen.output_text) == ("completed", HELLO)
    with client.responses.retrieve(begun.id, stream=True) as stream:
        events = list(stream)
    assert [event.type for event in events] == ANSWER
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response == events_seen
    for after in (0, 5, len(events) - 2, len(events) - 1):
        with client.responses.retrieve(begun.id, stream=True, starting_after=after) as stream:
            assert list(stream) == events[after + 1 :]


def test_stream_resumes_a_response_by_id(client: OpenAI) -> None:
    begun = client.responses.create(model="demo", input="Hello!", background=True)
    with client.responses.stream(response_id=begun.id) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types == ANSWER
    assert (final.id, final.output_text) == (begun.id, HELLO)
    with client.responses.stream(response_id=begun.id, starting_after=5) as stream:
        assert [event.type for event in stream] == ANSWER[6:]
        assert stream.get_final_response().output_text == HELLO


def test_an_interrupted_stream_resumes(client: OpenAI) -> None:
    events: list[ResponseStreamEvent] = []
    with client.responses.create(model="demo", input="Hello!", background=True, stream=True) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
    assert events[0].type == "response.created"
    id, last = events[0].response.id, events[-1].sequence_number
    with client.responses.retrieve(id, stream=True, starting_after=last) as stream:
        events += stream
    assert [event.type for event in events] == ANSWER
    assert [event.sequence_number for event in events] == list(range(len(ANSWER)))


def test_cancel_stops_a_background_response(client: OpenAI) -> None:
    begun = client.responses.create(model="demo", input="SLOW", background=True)
    cancelled = client.responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(begun.id) == cancelled == client.responses.cancel(begun.id)
    done = client.responses.create(model="demo", input="Hello!", background=True)
    events_seen = poll_until_ended(client, done.id)
    assert client.responses.cancel(done.id) == events_seen
    foreground = client.responses.create(model="demo", input="Hello!")
    with pytest.raises(BadRequestError, match="Only background responses"):
        client.responses.cancel(foreground.id)
    # It has no log to go on in; as a whole it can be streamed again.
    with pytest.raises(BadRequestError, match="starting_after"):
        client.responses.retrieve(foreground.id, stream=True, starting_after=1)
    *_, last = client.responses.retrieve(foreground.id, stream=True)
    assert last.type == "response.completed"


def test_an_idempotency_key_makes_a_request_repeatable(client: OpenAI) -> None:
    key = {"Idempotency-Key": f"key at {client.base_url}"}
    first = client.responses.create(model="demo", input="Hello!", extra_headers=key)
    assert client.responses.create(model="demo", input="Hello!", extra_headers=key) == first
    with pytest.raises(UnprocessableEntityError, match="another body") as caught:
        client.responses.create(model="demo", input="Something else.", extra_headers=key)
    assert (caught.value.code, caught.value.param) == ("idempotency_key_reused", "Idempotency-Key")


@pytest.mark.anyio
async def test_async_state(async_client: AsyncOpenAI) -> None:
    responses = async_client.responses
    begun = await responses.create(model="demo", input=SEVEN, background=True)
    async with responses.stream(response_id=begun.id) as stream:
        final = await stream.get_final_response()
    events_seen = await responses.retrieve(begun.id)
    assert (events_seen.id, events_seen.output_text) == (final.id, final.output_text)
    async with await responses.retrieve(begun.id, stream=True, starting_after=2) as resumed:
        numbers = [event.sequence_number async for event in resumed]
    assert numbers[0] == 3
    items = [item async for item in responses.input_items.list(begun.id, limit=2, order="asc")]
    assert [text_of(item) for item in items] == [f"Number {n}." for n in range(7)]
    await responses.delete(begun.id)
    with pytest.raises(NotFoundError):
        await responses.cancel(begun.id)
