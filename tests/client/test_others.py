"""Servers that are not ours: OpenAI's own words, and a mock of OpenAI that others wrote."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from antiphon.client.client import AsyncClient
from antiphon.client.heard import Listener
from antiphon.core.errors import UpstreamError
from antiphon.core.items import FunctionCall, FunctionCallOutput, Message, Reasoning
from antiphon.core.response import Response
from antiphon.wire import sse
from tests.adapters.scripts import Seen
from tests.adapters.scripts.responses import SCENES
from tests.aimock import KEY, aimock
from tests.upstream import Answer, upstream

pytestmark = pytest.mark.anyio

TEXT = "Good morning, dear reader of streams."
WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def seen(response: Response) -> Seen:
    """Say what a response means."""
    usage = response.usage
    assert usage is not None
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    messages = [item for item in response.output if isinstance(item, Message)]
    thoughts = [item for item in response.output if isinstance(item, Reasoning)]
    refusals = [part for item in messages for part in item.content if part.type == "refusal"]
    details = response.incomplete_details
    return Seen(
        text=response.output_text,
        calls=[(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        reasoning="".join(part.text for item in thoughts for part in item.summary),  # type: ignore[union-attr]
        refusal="".join(part.refusal for part in refusals),  # type: ignore[union-attr]
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        status=response.status,
        reason=details.reason if details else None,
    )


def meant(scene: Seen) -> Seen:
    """Return what a scene means, without the provider's own word for its end."""
    return replace(scene, stop="")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_openais_own_words_are_legal_and_understood(name: str, strict: bool):
    listener = Listener(strict=strict)
    for frame in sse.Decoder().feed(SCENES[name].stream):
        assert len(listener.feed(frame.data)) == 1
    listener.close()
    assert listener.response is not None
    assert seen(listener.response) == meant(SCENES[name].seen)


@pytest.mark.parametrize("name", SCENES)
async def test_openais_whole_answers_are_understood(name: str):
    answer = Answer(SCENES[name].whole, headers={"content-type": "application/json"})
    with upstream(answer) as server:
        async with AsyncClient(server.url) as client:
            assert seen(await client.create(model="m")) == meant(SCENES[name].seen)


# --- a mock that others wrote ---


@pytest.fixture(scope="module")
def mocked() -> Iterator[str]:
    """Give the address of a mock of OpenAI."""
    call = {"name": "get_weather", "arguments": {"city": "Paris"}, "id": "call_1"}
    fixtures: list[dict[str, Any]] = [
        {"match": {"toolCallId": "call_1"}, "response": {"content": "It is sunny."}},
        {"match": {"userMessage": "weather"}, "response": {"toolCalls": [call]}},
        {"match": {"userMessage": "hello"}, "response": {"content": TEXT}},
        {
            "match": {"userMessage": "refuse"},
            "response": {
                "error": {"message": "Slow down.", "type": "rate_limit_error"},
                "status": 429,
            },
        },
    ]
    with aimock(fixtures) as address:
        yield f"{address}/v1"


async def test_a_mock_of_openai_is_streamed(mocked: str):
    async with AsyncClient(mocked, api_key=KEY, retries=0) as client:
        stream = client.stream(model="gpt-4o", input="hello")
        assert "".join([text async for text in stream.text]) == TEXT
        assert (stream.response.status, stream.response.output_text) == ("completed", TEXT)
        assert (await client.create(model="gpt-4o", input="hello")).output_text == TEXT


async def test_a_mock_of_openai_calls_a_tool(mocked: str):
    async with AsyncClient(mocked, api_key=KEY, retries=0) as client:
        asked: Any = {"role": "user", "content": "weather"}
        first = await client.stream(model="gpt-4o", input=[asked], tools=[WEATHER]).final()
        (call,) = first.output
        assert isinstance(call, FunctionCall)
        assert (call.call_id, call.name, json.loads(call.arguments)) == (
            "call_1",
            "get_weather",
            {"city": "Paris"},
        )
        output = FunctionCallOutput(call_id="call_1", output="sunny")
        history = [asked, *first.output, output]
        last = await client.stream(model="gpt-4o", input=history, tools=[WEATHER]).final()
        assert last.output_text == "It is sunny."


async def test_a_mock_of_openai_refuses(mocked: str):
    async with AsyncClient(mocked, api_key=KEY, retries=0) as client:
        with pytest.raises(UpstreamError, match="Slow down") as caught:
            await client.create(model="gpt-4o", input="refuse")
        assert (caught.value.status, caught.value.retryable) == (429, True)
    async with AsyncClient(mocked, api_key="wrong", retries=0) as client:
        with pytest.raises(UpstreamError) as caught:
            await client.models()
        assert caught.value.status == 401
