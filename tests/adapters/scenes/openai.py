"""Answers of OpenAI's Chat Completions; the reasoning is that of DeepSeek, in the same dialect."""

import json
from collections.abc import Callable
from typing import Any

from antiphon.adapters.openai import OpenAI
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary

ADAPTER = OpenAI

HEAD = {"id": "chatcmpl-1", "created": 1700000000, "model": "gpt-5-mini"}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
COUNTED: dict[str, Any] = {"input_tokens": 11, "output_tokens": 7}


def frame(value: object) -> bytes:
    """Write one event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: dict | None, finish: str | None = None, **more: object) -> dict:
    """Make one chunk; without a delta it has no choices."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    choices = [] if delta is None else [choice]
    return HEAD | {"object": "chat.completion.chunk", "choices": choices, "usage": None} | more


def stream(*deltas: dict, finish: str = "stop", usage: dict = USAGE) -> bytes:
    """Write a stream, from the role to `[DONE]`."""
    told = [{"role": "assistant", "content": "", "refusal": None}, *deltas]
    body = b"".join(frame(chunk(delta)) for delta in told)
    body += frame(chunk({}, finish)) + frame(chunk(None, usage=usage))
    return body + b"data: [DONE]\n\n"


def whole(message: dict, finish: str = "stop", usage: dict = USAGE) -> bytes:
    """Write a whole answer."""
    message = {"role": "assistant", "content": None, "refusal": None} | message
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    answer = HEAD | {"object": "chat.completion", "choices": [choice], "usage": usage}
    return json.dumps(answer).encode()


def call_start(index: int, id: str, name: str, arguments: str = "") -> dict:
    """Make the first bit of a call."""
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id, "type": "function", "function": function}


def call_arguments(index: int, arguments: str) -> dict:
    """Make another bit of a call."""
    return {"index": index, "function": {"arguments": arguments}}


def call(id: str, name: str, arguments: str) -> dict:
    """Make a whole call."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*bits: dict) -> dict:
    """Make a delta, or a message, of calls."""
    return {"tool_calls": list(bits)}


BERLIN, PARIS = '{"city":"Berlin"}', '{"city":"Paris"}'
REPORT = '{"city":"Berlin","degrees":21}'
ASKED = {"tools": [TOOL]}
BOTH = {"tools": [TOOL, TIME]}


def scenes(stream: Callable[..., bytes], whole: Callable[..., bytes]) -> dict[str, Scene]:
    """Make the scenes that every server of this dialect has."""
    called: dict[str, Any] = {"finish": "tool_calls"}
    made: dict[str, Any] = {"stop": "tool_calls"} | COUNTED
    long = "Once upon a time 🎭 there was"
    return {
        "text": Scene(
            stream({"content": "Hello"}, {"content": ", 🎭"}, {"content": " world!"}),
            whole({"content": "Hello, 🎭 world!"}),
            Summary(text="Hello, 🎭 world!", stop="stop", **COUNTED),
        ),
        "call": Scene(
            stream(
                calls(call_start(0, "call_a", "weather")),
                calls(call_arguments(0, '{"city":')),
                calls(call_arguments(0, '"Berlin"}')),
                **called,
            ),
            whole(calls(call("call_a", "weather", BERLIN)), **called),
            Summary(calls=[("call_a", "weather", {"city": "Berlin"})], **made),
            ASKED,
        ),
        "no_arguments": Scene(
            stream(calls(call_start(0, "call_t", "time")), **called),
            whole(calls(call("call_t", "time", "")), **called),
            Summary(calls=[("call_t", "time", {})], **made),
            BOTH,
        ),
        "parallel_calls": Scene(
            stream(
                calls(call_start(0, "call_a", "weather")),
                calls(call_arguments(0, BERLIN)),
                calls(call_start(1, "call_b", "weather")),
                calls(call_arguments(1, PARIS)),
                **called,
            ),
            whole(calls(call("call_a", "weather", BERLIN), call("call_b", "weather", PARIS)), **called),
            Summary(
                calls=[("call_a", "weather", {"city": "Berlin"}), ("call_b", "weather", {"city": "Paris"})], **made
            ),
            ASKED,
        ),
        "interleaved_calls": Scene(
            stream(
                calls(call_start(0, "call_a", "weather"), call_start(1, "call_b", "weather")),
                calls(call_arguments(0, '{"city":')),
                calls(call_arguments(1, '{"city":')),
                calls(call_arguments(1, '"Paris"}'), call_arguments(0, '"Berlin"}')),
                **called,
            ),
            whole(calls(call("call_a", "weather", BERLIN), call("call_b", "weather", PARIS)), **called),
            Summary(
                calls=[("call_a", "weather", {"city": "Berlin"}), ("call_b", "weather", {"city": "Paris"})], **made
            ),
            ASKED,
        ),
        "text_and_call": Scene(
            stream(
                {"content": "Let me "}, {"content": "see."}, calls(call_start(0, "call_a", "weather", BERLIN)), **called
            ),
            whole({"content": "Let me see."} | calls(call("call_a", "weather", BERLIN)), **called),
            Summary(text="Let me see.", calls=[("call_a", "weather", {"city": "Berlin"})], **made),
            ASKED,
        ),
        "structured": Scene(
            stream({"content": '{"city":"Berlin",'}, {"content": '"degrees":21}'}),
            whole({"content": REPORT}),
            Summary(text=REPORT, stop="stop", **COUNTED),
            {"text": FORMAT},
        ),
        "tools_and_structured": Scene(
            stream({"content": '{"city":"Berlin",'}, {"content": '"degrees":21}'}),
            whole({"content": REPORT}),
            Summary(text=REPORT, stop="stop", **COUNTED),
            {"text": FORMAT, "tools": [TOOL]},
        ),
        "refusal": Scene(
            stream({"refusal": "I cannot "}, {"refusal": "do that."}),
            whole({"refusal": "I cannot do that."}),
            Summary(refusal="I cannot do that.", stop="stop", **COUNTED),
        ),
        "length": Scene(
            stream({"content": "Once upon a time"}, {"content": " 🎭 there was"}, finish="length"),
            whole({"content": long}, "length"),
            Summary(text=long, status="incomplete", reason="max_output_tokens", stop="length", **COUNTED),
            {"max_output_tokens": 16},
        ),
        "cached": Scene(
            stream({"content": "Again."}, usage=DETAILED),
            whole({"content": "Again."}, usage=DETAILED),
            Summary("Again.", [], "", "", 2000, 70, 1920, 64, stop="stop"),
        ),
    }


DETAILED = {
    "prompt_tokens": 2000,
    "completion_tokens": 70,
    "total_tokens": 2070,
    "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 64, "accepted_prediction_tokens": 0},
}


def thinking_scenes(stream: Callable[..., bytes], whole: Callable[..., bytes]) -> dict[str, Scene]:
    """Make the scene of a model that thinks aloud, as DeepSeek's and vLLM's do."""
    said = calls(call("call_a", "weather", BERLIN))
    return {
        "thinking_and_call": Scene(
            stream(
                {"content": None, "reasoning_content": "The user "},
                {"content": None, "reasoning_content": "wants weather."},
                {"content": "One moment.", "reasoning_content": None},
                calls(call_start(0, "call_a", "weather", BERLIN)),
                finish="tool_calls",
            ),
            whole({"content": "One moment.", "reasoning_content": "The user wants weather."} | said, "tool_calls"),
            Summary(
                text="One moment.",
                reasoning="The user wants weather.",
                calls=[("call_a", "weather", {"city": "Berlin"})],
                stop="tool_calls",
                **COUNTED,
            ),
            ASKED,
        )
    }


SCENES = scenes(stream, whole) | thinking_scenes(stream, whole)
