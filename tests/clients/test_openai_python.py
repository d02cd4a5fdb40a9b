"""The real openai-python against `demo`, at the OpenAI door and at the specification's."""

import json

import pytest
from openai import AsyncOpenAI, NotFoundError, OpenAI
from openai.types.responses import (
    Response,
    ResponseInputParam,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseReasoningItem,
)
from pydantic import BaseModel

from tests.clients.openai_events import BEGIN_EVENTS, HELLO, WORDS, output_as_input, text_events


class City(BaseModel):
    """A place that many people live in."""

    name: str
    population: int
    capital: bool


def test_create_returns_a_complete_response(client: OpenAI) -> None:
    response = client.responses.create(model="demo", input="Hello!", instructions="Be brief.", metadata={"trace": "1"})
    assert response.output_text == HELLO
    assert response.status == "completed"
    assert (response.model, response.instructions) == ("demo", "Be brief.")
    assert response.metadata == {"trace": "1"}
    assert response.usage
    assert response.usage.output_tokens == len(WORDS)
    assert response.usage.total_tokens == response.usage.input_tokens + len(WORDS)


def test_create_streams_every_event_in_order(client: OpenAI) -> None:
    with client.responses.create(model="demo", input="Hello!", stream=True) as stream:
        events = list(stream)
    assert [event.type for event in events] == [*BEGIN_EVENTS, *text_events(len(WORDS)), "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [e.delta for e in events if e.type == "response.output_text.delta"] == WORDS
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == HELLO


def test_stream_accumulates_the_same_response(client: OpenAI) -> None:
    snapshots: list[str] = []
    with client.responses.stream(model="demo", input="Hello!") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                assert event.snapshot.endswith(event.delta)
                snapshots.append(event.snapshot)
        final = stream.get_final_response()
    assert snapshots == ["".join(WORDS[: n + 1]) for n in range(len(WORDS))]
    assert final.output_text == HELLO
    assert final.status == "completed"


def test_a_conversation_may_be_sent_as_messages(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="My name is Alice.")
    texts: ResponseInputParam = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "My name is Alice."},
        *output_as_input(first),
        {"role": "user", "content": [{"type": "input_text", "text": "Who am I?"}]},
    ]
    answer = client.responses.create(model="demo", input=texts)
    assert answer.output_text.endswith("You said: Who am I? This conversation has 4 messages.")


def test_reasoning_events_have_the_doors_name(openai: OpenAI, spec: OpenAI) -> None:
    for client, name in ((openai, "response.reasoning_text"), (spec, "response.reasoning")):
        with client.responses.create(
            model="demo",
            input="Hello!",
            reasoning={"effort": "low", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            stream=True,
        ) as stream:
            events = list(stream)
        deltas = [getattr(e, "delta", "") for e in events if e.type == f"{name}.delta"]
        done = [getattr(event, "text", "") for event in events if event.type == f"{name}.done"]
        assert done == ["".join(deltas)]
        thinking = completed_response(events[-1]).output[0]
        assert isinstance(thinking, ResponseReasoningItem)
        assert thinking.content is not None
        assert [part.text for part in thinking.content] == done
        assert [part.text for part in thinking.summary] == ["Followed the script."]
        assert thinking.encrypted_content


def completed_response(event: object) -> Response:
    """Return the response that a completed stream ends with."""
    assert getattr(event, "type", "") == "response.completed"
    response = getattr(event, "response", None)
    assert isinstance(response, Response)
    return response


def test_reasoning_can_be_sent_back(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="Hello!", reasoning={"effort": "high"})
    assert [item.type for item in first.output] == ["reasoning", "message"]
    texts: ResponseInputParam = [*output_as_input(first), {"role": "user", "content": "And now?"}]
    assert client.responses.create(model="demo", input=texts).status == "completed"


def test_a_refusal_is_a_part_of_the_message(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input="REFUSE") as stream:
        deltas = [event.delta for event in stream if event.type == "response.refusal.delta"]
        final = stream.get_final_response()
    (message,) = final.output
    assert isinstance(message, ResponseOutputMessage)
    (part,) = message.content
    assert isinstance(part, ResponseOutputRefusal)
    assert part.refusal == "".join(deltas) == "I was asked to refuse, and so I do."
    assert final.output_text == ""


def test_a_token_limit_makes_the_response_incomplete(client: OpenAI) -> None:
    response = client.responses.create(model="demo", input="Tell a story.", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
    assert len(response.output_text.split()) == 16
    (message,) = response.output
    assert isinstance(message, ResponseOutputMessage)
    assert message.status == "incomplete"


def test_stream_shows_an_incomplete_response_only_as_an_event(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input="Tell a story.", max_output_tokens=16) as stream:
        *_, last = stream
        with pytest.raises(RuntimeError, match="Didn't receive a"):
            stream.get_final_response()
    assert last.type == "response.incomplete"
    assert len(last.response.output_text.split()) == 16


def test_parse_returns_a_typed_answer(client: OpenAI) -> None:
    response = client.responses.parse(model="demo", input="A city, please.", text_format=City)
    assert isinstance(response.output_parsed, City)
    assert City.model_validate_json(response.output_text) == response.output_parsed


def test_stream_parses(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input="A city, please.", text_format=City) as stream:
        parsed = [event.parsed for event in stream if event.type == "response.output_text.done"]
        final = stream.get_final_response()
    assert parsed == [final.output_parsed]
    assert isinstance(final.output_parsed, City)


def test_a_json_schema_is_satisfied_and_echoed(openai: OpenAI, spec: OpenAI) -> None:
    schema: dict[str, object] = {**City.model_json_schema(), "additionalProperties": False}
    for client, echoed in ((openai, schema), (spec, None)):
        response = client.responses.create(
            model="demo",
            input="A city, please.",
            text={"format": {"type": "json_schema", "name": "city", "schema": schema, "strict": True}},
        )
        City.model_validate_json(response.output_text)
        assert response.text
        assert response.text.format
        assert response.text.format.type == "json_schema"
        assert response.text.format.schema_ == echoed


def test_json_mode_returns_an_object(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo", input="Anything, as JSON.", text={"format": {"type": "json_object"}}
    )
    assert isinstance(json.loads(response.output_text), dict)


def test_models_are_listed_and_described(client: OpenAI) -> None:
    models = client.models.list()
    assert [model.id for model in models] == ["demo", "echo"]
    assert client.models.retrieve("demo") == models.data[0]


def test_an_unknown_model_cannot_be_described(spec: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="'acme/nothing' does not exist"):
        spec.models.retrieve("acme/nothing")


def test_the_raw_response_has_our_headers(client: OpenAI) -> None:
    raw = client.responses.with_raw_response.create(model="demo", input="Hello!")
    assert raw.headers["content-type"] == "application/json"
    assert raw.request_id == raw.headers["x-request-id"] == raw.parse()._request_id
    with client.responses.with_streaming_response.create(model="demo", input="Hello!", stream=True) as streamed:
        assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert streamed.request_id
        assert streamed.request_id != raw.request_id
        lines = list(streamed.iter_lines())
    assert lines[-2:] == ["data: [DONE]", ""]


@pytest.mark.anyio
async def test_async_create(async_client: AsyncOpenAI) -> None:
    response = await async_client.responses.create(model="demo", input="Hello!")
    assert response.output_text == HELLO
    stream = await async_client.responses.create(model="demo", input="Hello!", stream=True)
    async with stream:
        types = [event.type async for event in stream]
    assert types == [*BEGIN_EVENTS, *text_events(len(WORDS)), "response.completed"]


@pytest.mark.anyio
async def test_async_stream_and_parse(async_client: AsyncOpenAI) -> None:
    async with async_client.responses.stream(model="demo", input="A city, please.", text_format=City) as stream:
        final = await stream.get_final_response()
    parsed = await async_client.responses.parse(model="demo", input="A city, please.", text_format=City)
    assert final.output_parsed == parsed.output_parsed
    assert isinstance(parsed.output_parsed, City)
