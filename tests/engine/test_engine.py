"""Validation of requests, warnings, and what a response echoes."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import UNSET

from antiphon.agents.agent import Turn, agent
from antiphon.agents.demo import demo
from antiphon.engine.engine import Engine
from antiphon.engine.models import Models
from antiphon.engine.validation import check_request
from antiphon.protocol.errors import ErrorPayload, RequestError
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.items import Message
from antiphon.protocol.response import Response, ResponseWarning
from antiphon.protocol.struct import encode
from antiphon.wire.openresponses import decode_request
from tests.engine.recording_sink import RecordingSink
from tests.protocol.builders import counting_ids

pytestmark = pytest.mark.anyio

NOW = 1_700_000_000
PING = {"type": "function", "name": "ping"}


@agent("small", window=50)
async def small(turn: Turn) -> AsyncIterator[str]:
    """Says how much it was given to read."""
    yield " | ".join(item.text for item in turn.items if isinstance(item, Message))


ENGINE = Engine(Models([demo, small]), ids=counting_ids(), clock=lambda: NOW)


async def run_request(**body: object) -> Response:
    """Return the response to a request."""
    run = await ENGINE.create_run(decode_request({"model": "demo", "input": "Hi!", **body}))
    return await run.execute()


async def request_error(**body: object) -> ErrorPayload:
    """Return why a request is refused."""
    with pytest.raises(RequestError) as caught:
        await ENGINE.create_run(decode_request(body))
    return caught.value.payload


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"input": "Hi!"}, "model"),
        ({"model": "", "input": "Hi!"}, "model"),
        ({"model": None, "input": "Hi!"}, "model"),
        ({"model": "demo"}, "input"),
        ({"model": "demo", "input": None}, "input"),
        ({"model": "demo", "input": []}, "input"),
    ],
)
async def test_a_request_needs_a_model_and_an_input(body: dict[str, object], param: str) -> None:
    assert await request_error(**body) == ErrorPayload(
        message="A request needs 'model' and 'input'. GET /v1/models lists the models.",
        type="invalid_request",
        param=param,
        code="missing_required_parameter",
    )


async def test_an_empty_string_is_an_input() -> None:
    assert (await run_request(input="")).status == "completed"


@pytest.mark.parametrize(
    ("model", "meant"),
    [("gpt-9", ""), *((name, " Did you mean 'demo'?") for name in ("demo/", "demo/none", "demoo", "DEMO"))],
)
async def test_an_unknown_model_is_not_found(model: str, meant: str) -> None:
    assert await request_error(model=model, input="Hi!") == ErrorPayload(
        message=f"The model '{model}' does not exist.{meant} GET /v1/models lists those that do.",
        type="not_found",
        param="model",
        code="model_not_found",
    )


async def test_a_model_of_a_provider_that_is_not_configured_says_so() -> None:
    error = await request_error(model="openai/gpt-9", input="Hi!")
    assert error.message == (
        "The model 'openai/gpt-9' does not exist. openai is not configured: 'antiphon models' says what it needs."
    )


async def test_an_unknown_previous_response_is_an_error_with_or_without_input() -> None:
    expected = ErrorPayload(
        message="Previous response with id 'resp_x' not found. Send the whole context in 'input' instead.",
        type="invalid_request",
        param="previous_response_id",
        code="previous_response_not_found",
    )
    assert await request_error(model="demo", input="Hi!", previous_response_id="resp_x") == expected
    assert await request_error(model="demo", previous_response_id="resp_x") == expected


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "unsupported_parameter"),
        ({"background": True, "store": False}, "background", "store_required"),
        ({"conversation": "conv_1", "store": False}, "conversation", "store_required"),
        (
            {"conversation": {"id": "conv_1"}, "previous_response_id": "resp_1"},
            "conversation",
            "mutually_exclusive_parameters",
        ),
    ],
)
async def test_unsupported_parameters_are_rejected_by_name(body: dict[str, object], param: str, code: str) -> None:
    payload = await request_error(model="demo", input="Hi!", **body)
    assert (payload.type, payload.param, payload.code) == ("invalid_request", param, code)


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
async def test_an_unknown_conversation_is_not_found(conversation: object) -> None:
    payload = await request_error(model="demo", input="Hi!", conversation=conversation)
    assert (payload.type, payload.param, payload.code) == ("not_found", "conversation", "conversation_not_found")


@pytest.mark.parametrize(
    "body", [{"background": False}, {"background": None}, {"conversation": None}, {"prompt": None}]
)
async def test_unset_parameters_are_accepted(body: dict[str, object]) -> None:
    response = await run_request(**body)
    assert (response.status, response.warnings) == ("completed", UNSET)


OTHER = {"type": "function", "name": "pong"}


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ([PING], OTHER, "tool_choice names 'pong', which is not offered. Add it to 'tools'."),
        (
            [PING],
            {"type": "allowed_tools", "tools": [PING, OTHER]},
            "tool_choice names 'pong', which is not offered. Add it to 'tools'.",
        ),
        ([PING | {"type": "custom"}], PING, "tool_choice names 'ping', which is not offered. Add it to 'tools'."),
        ([PING], PING | {"type": "custom"}, "tool_choice names 'ping', which is not offered. Add it to 'tools'."),
        (
            [PING],
            {"type": "allowed_tools", "tools": [PING, {"type": "custom"}]},
            "tool_choice names 'openai:custom', which is not offered. Add it to 'tools'.",
        ),
        (
            [PING],
            {"type": "web_search"},
            "tool_choice names 'openai:web_search', which is not offered. Add it to 'tools'.",
        ),
        (
            [PING, {"type": "mcp", "server_label": "x"}],
            {"type": "allowed_tools", "tools": [PING, {"type": "file_search"}]},
            "tool_choice names 'openai:file_search', which is not offered. Add it to 'tools'.",
        ),
        ([], "required", "tool_choice asks for a call, but there are no tools. Add some, or use 'auto'."),
    ],
)
async def test_a_tool_choice_that_the_tools_cannot_satisfy_is_rejected(
    tools: list[object], choice: object, message: str
) -> None:
    assert await request_error(model="demo", input="Hi!", tools=tools, tool_choice=choice) == ErrorPayload(
        message=message, type="invalid_request", param="tool_choice", code="invalid_value"
    )


@pytest.mark.parametrize(
    ("tool", "choice"),
    [
        ({"type": "computer_use_preview"}, {"type": "computer_use"}),
        ({"type": "computer"}, {"type": "computer_use_preview"}),
        ({"type": "web_search"}, {"type": "web_search_preview"}),
        ({"type": "mcp", "server_label": "x"}, {"type": "mcp", "server_label": "x", "name": "f"}),
    ],
)
def test_a_hosted_tool_may_be_chosen_by_an_alias(tool: dict, choice: dict) -> None:
    check_request(decode_request({"model": "m", "input": "Hi!", "tools": [tool], "tool_choice": choice}))


@pytest.mark.parametrize("choice", ["auto", "none", None])
async def test_any_other_tool_choice_needs_no_tools(choice: object) -> None:
    assert (await run_request(tools=[], tool_choice=choice)).status == "completed"


async def test_an_output_without_a_call_is_rejected() -> None:
    output = {"type": "function_call_output", "call_id": "call_7", "output": "x"}
    payload = await request_error(model="demo", input=[output])
    assert (payload.param, payload.code) == ("input[0].call_id", "function_call_not_found")
    assert "'call_7'" in payload.message


async def test_a_reference_to_an_unknown_item_is_rejected() -> None:
    payload = await request_error(model="demo", input=[{"type": "item_reference", "id": "msg_none"}])
    assert (payload.param, payload.code) == ("input[0].id", "item_not_found")


LONG = [{"role": "user", "content": f"message {number} " * 4} for number in range(9)]


async def test_a_conversation_that_exceeds_the_window_is_truncated_on_request() -> None:
    response = await run_request(model="small", input=LONG, truncation="auto")
    assert response.output_text == " | ".join(one["content"] for one in LONG[6:])


async def test_a_conversation_that_exceeds_the_window_is_rejected_without_truncation() -> None:
    payload = await request_error(model="small", input=LONG)
    assert (payload.param, payload.code) == ("input", "context_length_exceeded")


async def test_unused_fields_give_a_warning_with_a_hint() -> None:
    response = await run_request(max_tokens=16, messages=[], instruction="x", seed=None, **{"acme:trace": "on"})
    unused = "The field '{}' is not used by this server."
    assert response.warnings == [
        ResponseWarning(
            code="unused_parameter",
            message=unused.format("max_tokens") + " Did you mean 'max_output_tokens'?",
            param="max_tokens",
        ),
        ResponseWarning(
            code="unused_parameter", message=unused.format("messages") + " Did you mean 'input'?", param="messages"
        ),
        ResponseWarning(
            code="unused_parameter",
            message=unused.format("instruction") + " Did you mean 'instructions'?",
            param="instruction",
        ),
    ]


async def test_unused_nested_fields_give_a_warning() -> None:
    response = await run_request(
        tools=[
            {"type": "acme:search", "depth": 3},
            {"type": "function", "name": "f", "foo": 1, "bar": None, "acme:x": 1},
        ],
        reasoning={"effort": "low", "max_tokens": 3},
        text={"foo": 1, "format": {"type": "text", "foo": 2}},
        stream_options={"foo": 1},
    )
    unused = "The field '{}' is not used by this server."
    expected = {
        "text.foo": "foo",
        "text.format.foo": "foo",
        "reasoning.max_tokens": "max_tokens",
        "stream_options.foo": "foo",
        "tools[1].foo": "foo",
    }
    *found, other = response.warnings or []
    assert found == [
        ResponseWarning(code="unused_parameter", message=unused.format(name), param=param)
        for param, name in expected.items()
    ]
    assert (other.code, other.param) == ("unsupported_tool", "tools[0]")


async def test_an_unused_field_of_content_gives_one_warning() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    shown = {"type": "input_image", "file_id": "file_1", "acme:x": 1}
    content = {"type": "output_text", "text": "Hi.", "parsed": 1, "annotations": []}
    response = await run_request(
        input=[
            {"role": "assistant", "content": [content]},
            {"role": "user", "content": [shown, {"type": "input_text", "text": "a"} | cached]},
            {"role": "user", "content": [{"type": "input_text", "text": "b"} | cached]},
        ]
    )
    (found,) = response.warnings or []
    assert (found.code, found.param) == ("unused_parameter", "input[1].content[1].cache_control")


async def test_a_request_with_known_fields_has_no_warnings() -> None:
    assert (await run_request(temperature=0.5, user="me")).warnings is UNSET


async def test_a_response_echoes_its_request() -> None:
    body: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "prompt_cache_key": "key",
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": "me",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.0,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "none",
        "tools": [PING | {"description": None, "parameters": None, "strict": True}],
        "top_logprobs": 2,
        "top_p": 0.25,
        "truncation": "auto",
        "user": "u",
    }
    response = await run_request(**body)
    echoed = {name: getattr(response, name) for name in body}
    assert echoed == {name: getattr(decode_request(body), name) for name in body}
    assert (response.created_at, response.completed_at) == (NOW, NOW)
    assert re.fullmatch(r"resp_\d+", response.id)


async def deltas(**body: object) -> list[OutputTextDelta]:
    """Return the text deltas of a stream."""
    sink = RecordingSink()
    request = decode_request({"model": "demo", "input": "A b ccc", "stream": True, **body})
    run = await ENGINE.create_run(request, sink)
    await run.execute()
    return [event for event in sink.events if isinstance(event, OutputTextDelta)]


@pytest.mark.parametrize("options", [None, {}, {"include_obfuscation": False}])
async def test_obfuscation_is_off_by_default(options: object) -> None:
    assert {delta.obfuscation for delta in await deltas(stream_options=options)} == {UNSET}


async def test_obfuscation_hides_the_length_of_a_delta() -> None:
    found = await deltas(stream_options={"include_obfuscation": True})
    assert len({len(delta.delta) for delta in found}) > 3
    numbered = [delta for delta in found if delta.sequence_number < 10]
    assert len({len(encode(delta)) for delta in numbered}) == 1
    assert len({delta.obfuscation for delta in found}) == len(found)
