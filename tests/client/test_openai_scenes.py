"""OpenAI's scenes, read by the client: legal, and with the expected meaning."""

import json
from dataclasses import replace

import pytest

from antiphon.client.async_client import AsyncClient
from antiphon.client.http import EventReader
from antiphon.protocol.items import FunctionCall, Message, Reasoning
from antiphon.protocol.response import Response
from antiphon.wire import sse
from tests.adapters.scenes import Summary
from tests.adapters.scenes.responses import SCENES
from tests.scripted_upstream import ScriptedAnswer, scripted_upstream

pytestmark = pytest.mark.anyio


def summarize(response: Response) -> Summary:
    """Say what a response means."""
    usage = response.usage
    assert usage is not None
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    messages = [item for item in response.output if isinstance(item, Message)]
    reasoning_items = [item for item in response.output if isinstance(item, Reasoning)]
    refusals = [part for item in messages for part in item.content if part.type == "refusal"]
    details = response.incomplete_details
    return Summary(
        text=response.output_text,
        calls=[(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        reasoning="".join(part.text for item in reasoning_items for part in item.summary),  # type: ignore[union-attr]
        refusal="".join(part.refusal for part in refusals),  # type: ignore[union-attr]
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        status=response.status,
        reason=details.reason if details else None,
    )


def expected(scene: Summary) -> Summary:
    """Return the expected summary without the provider's own stop reason."""
    return replace(scene, stop="")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_openais_streams_are_legal_and_read(name: str, strict: bool):
    reader = EventReader(strict=strict)
    for frame in sse.Decoder().feed(SCENES[name].stream):
        assert len(reader.feed_frame(frame.data)) == 1
    reader.close()
    assert reader.response is not None
    assert summarize(reader.response) == expected(SCENES[name].expected)


@pytest.mark.parametrize("name", SCENES)
async def test_openais_whole_responses_are_read(name: str):
    answer = ScriptedAnswer(SCENES[name].whole, headers={"content-type": "application/json"})
    with scripted_upstream(answer) as server:
        async with AsyncClient(server.url) as client:
            assert summarize(await client.create(model="m")) == expected(SCENES[name].expected)
