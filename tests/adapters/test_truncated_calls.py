"""Truncated calls: dialects end them like complete ones, and only the finish reason shows it."""

import json
from collections.abc import Callable

import pytest
from msgspec import UNSET

from antiphon.adapters.base import Adapter
from antiphon.adapters.openai import OpenAI
from antiphon.protocol.items import CUSTOM_TOOL_CALL, ExtensionItem, FunctionCall
from antiphon.protocol.response import Response
from tests.adapters.anthropic.builders import ANTHROPIC
from tests.adapters.bedrock.builders import BEDROCK
from tests.adapters.run_adapter import decode_response, encode_request, make_adapter
from tests.adapters.scenes import TIME, TOOL, anthropic, bedrock, openai

Told = tuple[str, str, str]
NOW, HERE = ("call_1", "time"), ("call_2", "weather")
CITY = '{"city":"Oslo"}'
CUT = '{"city":"Os'

STREAMS: dict[str, tuple[Adapter, Callable[[str, str], bytes], list[str]]] = {
    "openai": (
        make_adapter(OpenAI),
        lambda given, reason: openai.stream(
            openai.calls(openai.call_start(0, *NOW, "{}")),
            openai.calls(openai.call_start(1, *HERE, given)),
            finish=reason,
        ),
        ["tool_calls", "length", "content_filter"],
    ),
    "anthropic": (
        ANTHROPIC,
        lambda given, reason: anthropic.stream(
            anthropic.call_deltas(0, *NOW) + anthropic.call_deltas(1, *HERE, given), reason, anthropic.usage(1, 1)
        ),
        ["tool_use", "max_tokens", "refusal"],
    ),
    "bedrock": (
        BEDROCK,
        lambda given, reason: bedrock.stream(bedrock.call(0, *NOW), bedrock.call(1, *HERE, given), reason=reason),
        ["tool_use", "max_tokens", "guardrail_intervened"],
    ),
}
"""Two calls, of which the first has no arguments: streamed, and the words that end them."""

WHOLES: dict[str, tuple[Adapter, Callable[[dict, str], bytes], list[str]]] = {
    "anthropic": (
        ANTHROPIC,
        lambda given, reason: json.dumps(
            anthropic.message(
                [anthropic.call_block(*NOW, {}), anthropic.call_block(*HERE, given)], reason, anthropic.usage(1, 1)
            )
        ).encode(),
        ["tool_use", "max_tokens", "refusal"],
    ),
    "bedrock": (
        BEDROCK,
        lambda given, reason: bedrock.whole(bedrock.tool_use(*NOW, {}), bedrock.tool_use(*HERE, given), reason=reason),
        ["tool_use", "max_tokens", "guardrail_intervened"],
    ),
}
"""The same in one piece, where arguments are an object, cut or not."""

FIRST = ("time", "{}", "completed")


def call_summaries(response: Response) -> list[Told]:
    """Return the calls of a response."""
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    return [(call.name, call.arguments, str(call.status)) for call in calls]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("given", [CUT, CITY, ""])
def test_the_last_call_of_a_stream_that_was_cut_is_incomplete(name: str, given: str):
    adapter, stream, (_, *cuts) = STREAMS[name]
    for reason in cuts:
        response = decode_response(encode_request(adapter, stream=True, tools=[TOOL, TIME]), stream(given, reason))
        assert response.status == "incomplete"
        assert call_summaries(response) == [FIRST, ("weather", given, "incomplete")]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("given", "arguments"), [(CITY, CITY), ("", "{}")])
def test_a_stream_that_ends_in_calls_has_whole_ones(name: str, given: str, arguments: str):
    adapter, stream, (reason, *_) = STREAMS[name]
    response = decode_response(encode_request(adapter, stream=True, tools=[TOOL, TIME]), stream(given, reason))
    assert response.status == "completed"
    assert call_summaries(response) == [FIRST, ("weather", arguments, "completed")]


@pytest.mark.parametrize("name", WHOLES)
@pytest.mark.parametrize(("given", "arguments"), [({"city": "Oslo"}, CITY), ({}, "")])
def test_the_last_call_of_a_whole_answer_that_was_cut_is_incomplete(name: str, given: dict, arguments: str):
    adapter, whole, (_, *cuts) = WHOLES[name]
    for reason in cuts:
        asking = encode_request(adapter, tools=[TOOL, TIME])
        response = decode_response(asking, whole(given, reason), stream=False)
        assert response.status == "incomplete"
        assert call_summaries(response) == [FIRST, ("weather", arguments, "incomplete")]


@pytest.mark.parametrize("name", WHOLES)
@pytest.mark.parametrize(("given", "arguments"), [({"city": "Oslo"}, CITY), ({}, "{}")])
def test_a_whole_answer_that_ends_in_calls_has_whole_ones(name: str, given: dict, arguments: str):
    adapter, whole, (reason, *_) = WHOLES[name]
    response = decode_response(encode_request(adapter, tools=[TOOL, TIME]), whole(given, reason), stream=False)
    assert call_summaries(response) == [FIRST, ("weather", arguments, "completed")]


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
def test_text_after_a_call_without_arguments_completes_it(name: str):
    call, words = {
        "anthropic": (anthropic.call_deltas(0, *NOW), anthropic.text_deltas(1, "Once upon")),
        "bedrock": (bedrock.call(0, *NOW), bedrock.text(1, "Once upon")),
    }[name]
    body = {
        "anthropic": anthropic.stream(call + words, "max_tokens", anthropic.usage(1, 1)),
        "bedrock": bedrock.stream(call, words, reason="max_tokens"),
    }[name]
    response = decode_response(encode_request(STREAMS[name][0], stream=True, tools=[TIME]), body)
    assert [(item.type, item.status) for item in response.output] == [  # type: ignore[union-attr]
        ("function_call", "completed"),
        ("message", "incomplete"),
    ]


@pytest.mark.parametrize(
    ("finish", "status"), [("length", "incomplete"), ("content_filter", "incomplete"), ("tool_calls", "completed")]
)
@pytest.mark.parametrize("streamed", [True, False])
def test_of_custom_calls_only_the_last_can_have_been_cut(finish: str, status: str, streamed: bool):
    bits = [
        {"index": index, "id": id, "type": "custom", "custom": {"name": "patch", "input": given}}
        for index, (id, given) in enumerate([("a", "+1"), ("b", "+")])
    ]
    write = openai.stream if streamed else openai.whole
    body = write(openai.calls(*bits), finish=finish)
    response = decode_response(encode_request(make_adapter(OpenAI), stream=streamed), body, stream=streamed)
    calls = [item for item in response.output if isinstance(item, ExtensionItem)]
    assert [(call.type, call.get("input"), call.status) for call in calls] == [
        (CUSTOM_TOOL_CALL, "+1", "completed"),
        (CUSTOM_TOOL_CALL, "+", status),
    ]


AMID: dict[str, Callable[[str, str], bytes]] = {
    "openai": lambda given, reason: openai.stream(
        openai.calls(openai.call_start(0, *HERE, given)), openai.calls(openai.call_start(1, *NOW, "{}")), finish=reason
    ),
    "anthropic": lambda given, reason: anthropic.stream(
        anthropic.call_deltas(0, *HERE, given) + anthropic.call_deltas(1, *NOW, "{}"), reason, anthropic.usage(1, 1)
    ),
    "bedrock": lambda given, reason: bedrock.stream(
        bedrock.call(0, *HERE, given), bedrock.call(1, *NOW, "{}"), reason=reason
    ),
}
"""The same two calls the other way round: what is odd stands amid the answer."""

ODD = [CUT, "Oslo, I think", "[1]", '{"city":"Oslo"}}', '"Oslo"']
"""Arguments that are no JSON object."""


@pytest.mark.parametrize("name", AMID)
@pytest.mark.parametrize("given", ODD)
def test_invalid_arguments_inside_an_answer_are_kept_and_complete(name: str, given: str):
    adapter, _, (reason, *_) = STREAMS[name]
    body = AMID[name](given, reason)
    response = decode_response(encode_request(adapter, stream=True, tools=[TOOL, TIME]), body)
    assert response.status == "completed"
    assert call_summaries(response) == [("weather", given, "completed"), FIRST]
    assert response.warnings is UNSET


@pytest.mark.parametrize("name", AMID)
@pytest.mark.parametrize("given", ODD)
def test_of_an_answer_that_was_cut_only_what_has_ended_is_complete(name: str, given: str):
    adapter, _, (_, *cuts) = STREAMS[name]
    # A chat never says that a call has ended, and more of its arguments may have been to come.
    status = "incomplete" if name == "openai" else "completed"
    for reason in cuts:
        body = AMID[name](given, reason)
        response = decode_response(encode_request(adapter, stream=True, tools=[TOOL, TIME]), body)
        assert response.status == "incomplete"
        assert call_summaries(response)[0] == ("weather", given, status)
