"""The events of a run: text at an even pace, reasoning, calls, and the end."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from msgspec.structs import replace

from antiphon.agents.agent import Turn, agent
from antiphon.client.agent.context_window import ContextStrategy
from antiphon.client.agent.conversation import Conversation
from antiphon.client.agent.run import AgentOptions, run_agent, stream_agent
from antiphon.client.async_client import AsyncClient
from antiphon.client.tools.signature import ToolContext
from antiphon.client.tools.tool import tool
from antiphon.protocol import parts
from antiphon.protocol.errors import RequestError, UpstreamError
from antiphon.protocol.parts import Part
from antiphon.protocol.struct import encode
from antiphon.server.settings import Settings
from tests.client.agent.faulty_server import ALL_TRANSPORTS, CHAT, HTTP, SOCKET, Fault, run_to_end
from tests.run_server import run_server

pytestmark = pytest.mark.anyio


@agent("talker")
async def talker(turn: Turn) -> AsyncIterator[Part]:
    """Sends many words, slowly."""
    yield parts.Reasoning("First. ")
    await asyncio.sleep(0.3)
    yield parts.Reasoning("Second. Third.")
    for word in "one two three four five six seven eight nine ten".split():
        await asyncio.sleep(0.02)
        yield parts.Text(word + " ")


@agent("refuser")
async def refuser(turn: Turn) -> AsyncIterator[Part]:
    """Refuses."""
    yield parts.Refusal("I would ")
    yield parts.Refusal("rather not.")


@agent("short")
async def short(turn: Turn) -> AsyncIterator[Part]:
    """Reaches its token limit."""
    yield parts.Text("As far as I")
    yield parts.Usage(input_tokens=7, output_tokens=3)
    yield parts.Finish("length")


@pytest.fixture(scope="module")
def others():
    with run_server(Settings(agents=[talker, refuser, short])) as url:
        yield f"{url}/v1"


@pytest.fixture
async def speaker(others: str):
    async with AsyncClient(others) as made:
        yield made


@pytest.mark.parametrize("strategy", ["character", "word", "sentence"])
async def test_the_message_grows_to_the_whole_text(speaker, strategy):
    options = AgentOptions(chunking_strategy=strategy, smoothing_delay=5)
    run = stream_agent("hi", model="talker", options=options, client=speaker)
    updates = [event.message.message async for event in run if event.type == "message_update"]
    assert all(later.startswith(earlier) for earlier, later in pairwise(updates))
    assert updates[-1] == "one two three four five six seven eight nine ten "


async def test_the_end_is_emitted_without_delay(client):
    options = AgentOptions(smoothing_delay=10_000)
    async with asyncio.timeout(options.smoothing_delay / 1000):
        result, events = await run_to_end(client, "rounds=2", options)
    updates = [event.message.message for event in events if event.type == "message_update"]
    assert updates[-1] == result.message == "Round 0.\n\nRound 1.\n\nDone: 0, 20."


async def test_without_smoothing_updates_are_throttled_by_the_delay(speaker):
    options = AgentOptions(smoothing_enabled=False, smoothing_delay=100)
    run = stream_agent("hi", model="talker", options=options, client=speaker)
    events = [event async for event in run]
    updates = [event for event in events if event.type == "message_update"]
    assert len([event for event in events if event.type == "token"]) == 10
    assert 2 <= len(updates) <= 5
    assert updates[-1].message.message == "one two three four five six seven eight nine ten "


@pytest.mark.parametrize("options", [CHAT, HTTP, SOCKET], ids=["chat", "http", "socket"])
async def test_reasoning_is_emitted_at_once_and_then_at_intervals(speaker, options):
    result, events = await run_to_end(speaker, "hi", options, model="talker")
    updates = [e for e in events if e.type == "reasoning_update"]
    assert [(u.content, u.is_complete) for u in (updates[0], updates[-1])] == [
        ("First. ", False),
        ("First. Second. Third.", True),
    ]
    assert result.reasoning.content == "First. Second. Third."
    assert events[-1].reasoning.content == "First. Second. Third."


@pytest.mark.parametrize("options", [CHAT, HTTP, SOCKET], ids=["chat", "http", "socket"])
async def test_a_refusal_is_in_message_and_result(speaker, options):
    result, events = await run_to_end(speaker, "hi", options, model="refuser")
    assert result.refusal == "I would rather not."
    assert events[-1].message.refusal == "I would rather not."
    assert [e.message.refusal for e in events if e.type == "message_update"] == ["I would ", "I would rather not."]


@pytest.mark.parametrize("options", [CHAT, HTTP, SOCKET], ids=["chat", "http", "socket"])
async def test_an_incomplete_response_has_a_reason_and_usage(speaker, options):
    result = await run_agent("hi", model="short", options=options, client=speaker)
    assert (result.status, result.reason) == ("incomplete", "max_output_tokens")
    assert result.message == "As far as I"
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (7, 3)


@ALL_TRANSPORTS
async def test_a_call_emits_every_status(client, options):
    _, events = await run_to_end(client, "rounds=1", options)
    updates = [e for e in events if e.type == "tool_update"]
    statuses = [update.status for update in updates]
    assert statuses[0] == "preparing"
    assert statuses[-3:] == ["ready", "executing", "completed"]
    last = updates[-1]
    assert (last.tool_call.id, last.tool_call.name) == ("call_0_0", "double")
    assert json.loads(last.tool_call.arguments) == {"value": 0}
    assert last.result == "0"
    assert last.started_at <= last.completed_at
    assert last.duration_ms >= 0
    low = [e for e in events if e.type.startswith("tool_call_")]
    assert low[0].type == "tool_call_start"
    pieces = "".join(e.argument_delta for e in low if e.type == "tool_call_delta")
    assert json.loads(pieces) == {"value": 0}
    assert json.loads(low[-1].arguments) == {"value": 0}


async def test_a_tool_reports_progress(client):
    @tool
    async def steps(value: int) -> AsyncIterator[str]:
        """Take steps."""
        yield "half"
        yield "whole"

    @tool
    def reports(value: int, context: ToolContext) -> str:
        """Report."""
        context.progress({"done": 50})
        return "ok"

    _, events = await run_to_end(client, "rounds=1", HTTP, tools=[steps])
    seen = [e.progress for e in events if e.type == "tool_update" and e.progress]
    assert seen == ["half", "whole"]
    result, events = await run_to_end(client, "rounds=1", HTTP, tools=[reports])
    assert [e.progress for e in events if e.type == "tool_update" and e.progress] == [{"done": 50}]
    assert result.final == "Done: ok."


@pytest.mark.parametrize("options", [CHAT, HTTP], ids=["chat", "http"])
async def test_the_text_of_a_failed_round_is_withdrawn(client, server, options):
    server.faults[1] = Fault(cut_after=5 if options is HTTP else 2)
    result, events = await run_to_end(client, "rounds=1 slow=20", options)
    updates = [(e.message.message, e.is_streaming) for e in events if e.type == "message_update"]
    assert ("Round 0.", False) in updates
    assert updates[-1][0] == result.message == "Round 0.\n\nDone: 0."


@ALL_TRANSPORTS
async def test_a_long_result_is_truncated_with_an_event(client, server, options):
    @tool
    def long(value: int) -> str:
        """Say a lot."""
        return "line of text number\n" * 400

    strategy = ContextStrategy(tool_result_token_limit=200)
    result, events = await run_to_end(client, "rounds=1", replace(options, context_strategy=strategy), tools=[long])
    (managed,) = [e for e in events if e.type == "context_management"]
    assert managed.action.type == "truncated_tool_result"
    assert managed.action.tool_name == "long"
    assert managed.action.original_tokens == 2000
    assert managed.action.truncated_tokens < 200
    assert "[truncated by long: original ~2000 tokens" in str(server.bodies[1])
    assert result.status == "completed"


@ALL_TRANSPORTS
async def test_old_rounds_are_dropped_when_the_window_is_nearly_full(client, server, options):
    @tool
    def wide(value: int) -> str:
        """Say a lot."""
        return f"{value}:" + "x" * 400

    strategy = ContextStrategy(tool_round_limit=2, rebudget_threshold=0.5)
    windowed = replace(options, context_strategy=strategy, context_window=6000, max_tool_rounds=12)
    _, events = await run_to_end(client, "rounds=50", windowed, tools=[wide])
    managed = [e.action for e in events if e.type == "context_management"]
    assert {action.type for action in managed} == {"windowed_tool_rounds"}
    assert {action.kept_rounds for action in managed} == {2}
    percent = [e.usage.percentage for e in events if e.type == "context_window"]
    assert len(percent) == 12
    assert max(percent) < 100
    assert "earlier tool calling round(s) were removed" in str(server.bodies)


@ALL_TRANSPORTS
async def test_a_failed_run_emits_an_error_and_saves_finished_rounds(client, server, options):
    server.faults[2] = Fault(401, "invalid_api_key")
    conversation, events = Conversation(), []
    with pytest.raises(UpstreamError):
        await run_agent(
            "rounds=2",
            model="worker",
            tools=[lambda_tool()],
            options=options,
            client=client,
            conversation=conversation,
            on_event=events.append,
        )
    assert events[-1].type == "error"
    assert (events[-1].error.code, events[-1].error.recoverable) == ("invalid_api_key", False)
    kinds = [item.type for item in conversation.items]
    assert kinds == ["message", *["message", "function_call", "function_call_output"] * 2]


def lambda_tool():
    """A minimal tool."""

    def plain(value: int) -> int:
        """Return a number."""
        return value

    return plain


async def test_a_rejected_schema_names_the_tool_and_the_path(client, server):
    message = "Invalid schema for function 'double': In context=('properties', 'value'), 'minimum' is not permitted."
    server.faults[0] = Fault(400, "invalid_function_parameters", message)
    with pytest.raises(UpstreamError, match=r"rejected the tool 'double' at properties\.value"):
        await run_to_end(client, "rounds=1", HTTP)


async def test_a_tool_without_strict_schema_is_rejected_before_sending(client, server):
    @tool
    def loose(labels: dict[str, str]) -> str:
        """Take anything."""
        return ""

    with pytest.raises(RequestError, match="'loose' cannot use strict mode"):
        await run_to_end(client, "rounds=1", HTTP, tools=[loose])
    assert server.bodies == []
    await run_to_end(client, "rounds=0", replace(HTTP, strict_tools=False), tools=[loose])
    assert server.bodies[0]["tools"][0]["strict"] is False


async def test_options_are_sent_in_the_request(client, server):
    request = {"temperature": 0.2, "max_output_tokens": 50, "metadata": {"a": "b"}}
    await run_to_end(client, "rounds=0", replace(HTTP, request=request), instructions="Be terse.")
    assert server.bodies[0] == {
        "model": "worker",
        "instructions": "Be terse.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "rounds=0"}]}],
        "tools": [
            {
                "type": "function",
                "name": "double",
                "description": "Double a number.",
                "parameters": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}},
                    "required": ["value"],
                    "additionalProperties": False,
                },
                "strict": True,
            }
        ],
        "temperature": 0.2,
        "max_output_tokens": 50,
        "metadata": {"a": "b"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
    }


@pytest.mark.parametrize("effort", ["high", "none"])
async def test_a_temperature_is_not_sent_with_reasoning(client, server, effort):
    request = {"temperature": 0.2, "reasoning": {"effort": effort}}
    await run_to_end(client, "rounds=0", replace(HTTP, request=request))
    assert server.bodies[0]["reasoning"] == {"effort": effort}
    assert ("temperature" in server.bodies[0]) is (effort == "none")


async def test_a_forced_tool_choice_is_sent_once(client, server):
    request = {"tool_choice": "required"}
    result, _ = await run_to_end(client, "rounds=1", replace(HTTP, request=request))
    assert result.status == "completed"
    assert [body.get("tool_choice") for body in server.bodies] == ["required", None]


async def test_reserved_fields_cannot_be_set():
    with pytest.raises(RequestError, match="the run sets it"):
        AgentOptions(request={"previous_response_id": "resp_1"})


@ALL_TRANSPORTS
async def test_every_event_can_be_encoded_as_json(client, options):
    _, events = await run_to_end(client, "rounds=1 THINK", options)
    for event in events:
        assert json.loads(encode(event))["type"] == event.type


def test_chat_messages_become_a_conversation():
    taken = Conversation.of_messages(
        [
            {"role": "system", "content": "Be terse."},
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I see.",
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        ]
    )
    assert taken.instructions == "Be terse.\n\nBe kind."
    assert json.loads(encode(taken.items)) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I see.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    ]
