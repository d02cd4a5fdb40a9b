"""Providers' own streams become block events: adapter, synthesizer, translation."""

import json

import pytest

from antiphon.bridges.blocks.events import BlockEvent, Status, TextBlock, ToolUseBlock, Usage
from antiphon.bridges.blocks.from_responses import EventTranslator
from antiphon.bridges.blocks.timeline import collect_blocks
from antiphon.protocol.items import FunctionCall
from tests.adapters.provider_servers import SCENE_MODULES
from tests.adapters.test_scenes import stream_scene

PROVIDERS = ["anthropic", "openai", "google", "ollama"]


def translate_scene(provider: str, scene: str) -> list[BlockEvent]:
    """Return the block events of a provider's stream."""
    translator = EventTranslator()
    return [back for event in stream_scene(provider, scene, 7)[0] for back in translator.feed(event)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_text_of_a_provider_becomes_a_text_block(provider: str):
    run = translate_scene(provider, "text")
    _, response = stream_scene(provider, "text")
    assert [one.text for one in collect_blocks(run) if isinstance(one.block, TextBlock)] == [response.output_text]
    assert response.output_text == SCENE_MODULES[provider].SCENES["text"].expected.text
    assert response.usage
    usage = next(event for event in run if isinstance(event, Usage))
    assert (usage.input_tokens, usage.output_tokens) == (response.usage.input_tokens, response.usage.output_tokens)
    assert (run[0], run[-1]) == (Status("Started"), Status("Completed"))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_call_of_a_provider_becomes_a_tool_use_block(provider: str):
    blocks = [one for one in collect_blocks(translate_scene(provider, "call")) if isinstance(one.block, ToolUseBlock)]
    calls = [item for item in stream_scene(provider, "call")[1].output if isinstance(item, FunctionCall)]
    assert [(one.block, json.loads(one.text)) for one in blocks] == [
        (ToolUseBlock(call.call_id, call.name), json.loads(call.arguments)) for call in calls
    ]
    assert [one.stop_reason for one in blocks][-1] == "ToolUse"
