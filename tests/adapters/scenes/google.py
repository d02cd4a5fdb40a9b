"""Scenes in Gemini's format."""

import json

from antiphon.adapters.google.adapter import Google
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary

ADAPTER = Google


def answer(*parts: dict, finish: str | None = None, usage: dict | None = None, **more: object) -> dict:
    """Return a chunk, or a complete response."""
    candidate: dict = {"content": {"parts": list(parts), "role": "model"}, "index": 0} | more
    if finish:
        candidate["finishReason"] = finish
    value: dict = {"candidates": [candidate], "modelVersion": "gemini-3.5-flash"}
    if usage:
        value["usageMetadata"] = usage
    return value | {"responseId": "oZ8baOWxDs"}


def sse_stream(*chunks: dict) -> bytes:
    """Return chunks as a stream; Google ends lines with CRLF."""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)


def whole(value: dict) -> bytes:
    """Return a complete response, indented as by Google."""
    return json.dumps(value, indent=2).encode()


def usage(prompt: int, candidates: int, thoughts: int = 0, cached: int = 0) -> dict:
    """Return token counts."""
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": candidates,
        "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if thoughts:
        counts["thoughtsTokenCount"] = thoughts
    if cached:
        counts["cachedContentTokenCount"] = cached
    return counts


def call(name: str, args: dict | None = None, id: str | None = None, signature: str | None = None) -> dict:
    """Return a part with a call."""
    value: dict = {"name": name}
    if args is not None:
        value["args"] = args
    if id:
        value["id"] = id
    return {"functionCall": value} | ({"thoughtSignature": signature} if signature else {})


def thought(text: str) -> dict:
    """Return a part with a summary of the thinking."""
    return {"text": text, "thought": True}


USAGE = usage(12, 8)
EXPECTED_USAGE = {"input_tokens": 12, "output_tokens": 8, "stop": "STOP"}
PARIS, ROME = {"city": "Paris"}, {"city": "Rome"}
SIGNATURE = "Q2lRQmpuNXU="
BLOCKED_PROMPT = {
    "promptFeedback": {"blockReason": "SAFETY"},
    "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12},
    "modelVersion": "gemini-3.5-flash",
    "responseId": "oZ8baOWxDs",
}

SCENES: dict[str, Scene] = {
    "text": Scene(
        sse_stream(
            answer({"text": "Good "}, usage={"promptTokenCount": 12, "totalTokenCount": 12}),
            answer({"text": "morning \U0001f305"}, usage=usage(12, 5)),
            answer({"text": ", Paris."}, finish="STOP", usage=USAGE),
        ),
        whole(answer({"text": "Good morning \U0001f305, Paris."}, finish="STOP", usage=USAGE)),
        Summary("Good morning \U0001f305, Paris.", **EXPECTED_USAGE),
    ),
    "call": Scene(
        sse_stream(
            answer(call("weather", PARIS, "fc-1"), usage=USAGE), answer({"text": ""}, finish="STOP", usage=USAGE)
        ),
        whole(answer(call("weather", PARIS, "fc-1"), finish="STOP", usage=USAGE)),
        Summary(calls=[("fc-1", "weather", PARIS)], **EXPECTED_USAGE),
        {"tools": [TOOL]},
    ),
    "no_arguments": Scene(
        sse_stream(answer(call("time"), finish="STOP", usage=USAGE)),
        whole(answer(call("time", {}), finish="STOP", usage=USAGE)),
        Summary(calls=[("", "time", {})], **EXPECTED_USAGE),
        {"tools": [TIME]},
    ),
    "parallel_calls": Scene(
        sse_stream(
            answer(call("weather", PARIS), usage=USAGE),
            answer(call("weather", ROME), usage=USAGE),
            answer(finish="STOP", usage=USAGE),
        ),
        whole(answer(call("weather", PARIS), call("weather", ROME), finish="STOP", usage=USAGE)),
        Summary(calls=[("", "weather", PARIS), ("", "weather", ROME)], **EXPECTED_USAGE),
        {"tools": [TOOL]},
    ),
    # Google never splits arguments, so this scene has two calls in one chunk.
    "interleaved_calls": Scene(
        sse_stream(answer(call("weather", PARIS, "fc-1"), call("weather", ROME, "fc-2"), finish="STOP", usage=USAGE)),
        whole(answer(call("weather", PARIS, "fc-1"), call("weather", ROME, "fc-2"), finish="STOP", usage=USAGE)),
        Summary(calls=[("fc-1", "weather", PARIS), ("fc-2", "weather", ROME)], **EXPECTED_USAGE),
        {"tools": [TOOL]},
    ),
    "text_and_call": Scene(
        sse_stream(
            answer({"text": "Let me "}, usage=USAGE),
            answer({"text": "look."}, usage=USAGE),
            answer(call("weather", PARIS, "fc-1"), finish="STOP", usage=USAGE),
        ),
        whole(answer({"text": "Let me look."}, call("weather", PARIS, "fc-1"), finish="STOP", usage=USAGE)),
        Summary("Let me look.", [("fc-1", "weather", PARIS)], **EXPECTED_USAGE),
        {"tools": [TOOL]},
    ),
    "thinking_and_call": Scene(
        sse_stream(
            answer(thought("**Weighing** the "), usage=usage(12, 0, 20)),
            answer(thought("question."), usage=usage(12, 0, 30)),
            answer(call("weather", PARIS, "fc-1", SIGNATURE), usage=usage(12, 8, 30)),
            answer({"text": ""}, finish="STOP", usage=usage(12, 8, 30)),
        ),
        whole(
            answer(
                thought("**Weighing** the question."),
                call("weather", PARIS, "fc-1", SIGNATURE),
                finish="STOP",
                usage=usage(12, 8, 30),
            )
        ),
        Summary(
            calls=[("fc-1", "weather", PARIS)],
            reasoning="**Weighing** the question.",
            input_tokens=12,
            output_tokens=38,
            reasoning_tokens=30,
            stop="STOP",
        ),
        {"tools": [TOOL], "reasoning": {"effort": "low", "summary": "auto"}},
    ),
    "structured": Scene(
        sse_stream(
            answer({"text": '{"city":"Paris",'}, usage=USAGE),
            answer({"text": '"degrees":21}'}, finish="STOP", usage=USAGE),
        ),
        whole(answer({"text": '{"city":"Paris","degrees":21}'}, finish="STOP", usage=USAGE)),
        Summary('{"city":"Paris","degrees":21}', **EXPECTED_USAGE),
        {"text": FORMAT},
    ),
    "tools_and_structured": Scene(
        sse_stream(
            answer({"text": '{"city":"Paris",'}, usage=USAGE),
            answer({"text": '"degrees":21}'}, finish="STOP", usage=USAGE),
        ),
        whole(answer({"text": '{"city":"Paris","degrees":21}'}, finish="STOP", usage=USAGE)),
        Summary('{"city":"Paris","degrees":21}', **EXPECTED_USAGE),
        {"text": FORMAT, "tools": [TOOL]},
    ),
    "refusal": Scene(
        sse_stream(
            answer({"text": "Well, "}, usage=USAGE),
            {"candidates": [{"finishReason": "SAFETY", "index": 0}], "usageMetadata": USAGE},
        ),
        whole(answer({"text": "Well, "}, finish="SAFETY", usage=USAGE)),
        Summary(
            "Well, ", input_tokens=12, output_tokens=8, status="incomplete", reason="content_filter", stop="SAFETY"
        ),
    ),
    "length": Scene(
        sse_stream(
            answer({"text": "Once upon "}, usage=USAGE), answer({"text": "a"}, finish="MAX_TOKENS", usage=USAGE)
        ),
        whole(answer({"text": "Once upon a"}, finish="MAX_TOKENS", usage=USAGE)),
        Summary(
            "Once upon a",
            input_tokens=12,
            output_tokens=8,
            status="incomplete",
            reason="max_output_tokens",
            stop="MAX_TOKENS",
        ),
        {"max_output_tokens": 16},
    ),
    "cached": Scene(
        sse_stream(
            answer({"text": "Yes."}, usage=usage(900, 1, 5, 800)),
            answer({"text": ""}, finish="STOP", usage=usage(900, 2, 7, 800)),
        ),
        whole(answer({"text": "Yes."}, finish="STOP", usage=usage(900, 2, 7, 800))),
        Summary("Yes.", input_tokens=900, output_tokens=9, cached_tokens=800, reasoning_tokens=7, stop="STOP"),
    ),
}
