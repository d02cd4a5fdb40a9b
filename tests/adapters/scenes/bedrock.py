"""Scenes in Bedrock's format: event-stream messages, padded as by the service."""

import base64
import json

from antiphon.adapters.bedrock.adapter import Bedrock
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary
from tests.wire.eventstream_encoder import encode

ADAPTER = Bedrock
EVENTS = "application/vnd.amazon.eventstream"
REDACTED = base64.b64encode(b"\0 nothing to see \xff").decode()


def event(kind: str, **fields: object) -> bytes:
    """Return an event."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return encode(headers, json.dumps(fields | {"p": "abcdefghijk"}, ensure_ascii=False).encode())


def exception(kind: str, **fields: object) -> bytes:
    """Return an exception."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return encode(headers, json.dumps(fields).encode())


def delta(index: int, **fields: object) -> bytes:
    """Return an increment of a block."""
    return event("contentBlockDelta", contentBlockIndex=index, delta=fields)


def text(index: int, *pieces: str) -> bytes:
    """Return a block of text, which has no start event."""
    deltas = b"".join(delta(index, text=piece) for piece in pieces)
    return deltas + block_stop(index)


def call_start(index: int, id: str, name: str) -> bytes:
    """Return the start of a call."""
    use = {"toolUse": {"toolUseId": id, "name": name}}
    return event("contentBlockStart", contentBlockIndex=index, start=use)


def arguments(index: int, *pieces: str) -> bytes:
    """Return increments of a call's arguments."""
    return b"".join(delta(index, toolUse={"input": piece}) for piece in pieces)


def call(index: int, id: str, name: str, *pieces: str) -> bytes:
    """Return a call."""
    return call_start(index, id, name) + arguments(index, *pieces) + block_stop(index)


def thought(index: int, *pieces: str, signature: str = "") -> bytes:
    """Return a block of reasoning."""
    deltas = b"".join(delta(index, reasoningContent={"text": piece}) for piece in pieces)
    if signature:
        deltas += delta(index, reasoningContent={"signature": signature})
    return deltas + block_stop(index)


def block_stop(index: int) -> bytes:
    """Return the end of a block."""
    return event("contentBlockStop", contentBlockIndex=index)


def usage(read: int = 26, made: int = 5, **cache: int) -> dict:
    """Return token counts."""
    return {"inputTokens": read, "outputTokens": made, "totalTokens": read + made + sum(cache.values()), **cache}


def stream_end(reason: str = "end_turn", **counts: int) -> bytes:
    """Return the end of a stream: first the reason, then the usage."""
    metadata = event("metadata", usage=usage(**counts), metrics={"latencyMs": 551})
    return event("messageStop", stopReason=reason) + metadata


def stream(*blocks: bytes, reason: str = "end_turn", **counts: int) -> bytes:
    """Return a complete stream."""
    start = event("messageStart", role="assistant")
    return start + b"".join(blocks) + stream_end(reason, **counts)


def whole(*content: dict, reason: str = "end_turn", **counts: int) -> bytes:
    """Return a complete response."""
    body = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": reason,
        "usage": usage(**counts),
        "metrics": {"latencyMs": 551},
    }
    return json.dumps(body, ensure_ascii=False).encode()


def tool_use(id: str, name: str, input: dict) -> dict:
    """Return a complete call."""
    return {"toolUse": {"toolUseId": id, "name": name, "input": input}}


PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo"}
REPORT = '{"city":"Paris","degrees":21}'
SORRY = "Sorry, the guardrail blocked this answer."
TWO_CALLS = [("tooluse_1", "weather", PARIS), ("tooluse_2", "weather", OSLO)]
SIGNATURE = "ErUBCkYIBRgCIkDsigned=="


def expect(text: str = "", calls: list | None = None, stop: str = "end_turn", **more: object) -> Summary:
    """Return the expected summary, with default token counts."""
    counts = {"input_tokens": 26, "output_tokens": 5}
    return Summary(text, calls or [], stop=stop, **(counts | more))  # type: ignore[arg-type]


SCENES = {
    "text": Scene(
        stream(text(0, "Hello", ", ", "🎵", "!")),
        whole({"text": "Hello, 🎵!"}),
        expect("Hello, 🎵!"),
        content_type=EVENTS,
    ),
    "call": Scene(
        stream(call(0, "tooluse_1", "weather", '{"city"', ': "Paris"}'), reason="tool_use"),
        whole(tool_use("tooluse_1", "weather", PARIS), reason="tool_use"),
        expect(calls=TWO_CALLS[:1], stop="tool_use"),
        {"tools": [TOOL]},
        EVENTS,
    ),
    "no_arguments": Scene(
        stream(call(0, "tooluse_1", "time", ""), reason="tool_use"),
        whole(tool_use("tooluse_1", "time", {}), reason="tool_use"),
        expect(calls=[("tooluse_1", "time", {})], stop="tool_use"),
        {"tools": [TIME]},
        EVENTS,
    ),
    "parallel_calls": Scene(
        stream(
            call(0, "tooluse_1", "weather", '{"city": "Paris"}'),
            call(1, "tooluse_2", "weather", '{"city": "Oslo"}'),
            reason="tool_use",
        ),
        whole(*(tool_use(*one) for one in TWO_CALLS), reason="tool_use"),
        expect(calls=TWO_CALLS, stop="tool_use"),
        {"tools": [TOOL]},
        EVENTS,
    ),
    "interleaved_calls": Scene(
        stream(
            call_start(0, "tooluse_1", "weather"),
            arguments(0, '{"city": '),
            call_start(1, "tooluse_2", "weather"),
            arguments(1, '{"ci'),
            arguments(0, '"Paris"}'),
            arguments(1, 'ty": "Oslo"}'),
            block_stop(0),
            block_stop(1),
            reason="tool_use",
        ),
        whole(*(tool_use(*one) for one in TWO_CALLS), reason="tool_use"),
        expect(calls=TWO_CALLS, stop="tool_use"),
        {"tools": [TOOL]},
        EVENTS,
    ),
    "text_and_call": Scene(
        stream(text(0, "Let me ", "see."), call(1, "tooluse_1", "weather", '{"city": "Paris"}'), reason="tool_use"),
        whole({"text": "Let me see."}, tool_use("tooluse_1", "weather", PARIS), reason="tool_use"),
        expect("Let me see.", TWO_CALLS[:1], "tool_use"),
        {"tools": [TOOL]},
        EVENTS,
    ),
    "thinking_and_call": Scene(
        stream(
            thought(0, "Paris is ", "a city.", signature=SIGNATURE),
            delta(1, reasoningContent={"redactedContent": REDACTED}) + block_stop(1),
            call(2, "tooluse_1", "weather", '{"city": "Paris"}'),
            reason="tool_use",
        ),
        whole(
            {"reasoningContent": {"reasoningText": {"text": "Paris is a city.", "signature": SIGNATURE}}},
            {"reasoningContent": {"redactedContent": REDACTED}},
            tool_use("tooluse_1", "weather", PARIS),
            reason="tool_use",
        ),
        expect(calls=TWO_CALLS[:1], stop="tool_use", reasoning="Paris is a city."),
        {"tools": [TOOL], "reasoning": {"effort": "high"}},
        EVENTS,
    ),
    "structured": Scene(
        stream(text(0, REPORT[:10], REPORT[10:])), whole({"text": REPORT}), expect(REPORT), {"text": FORMAT}, EVENTS
    ),
    "tools_and_structured": Scene(
        stream(text(0, REPORT[:20], REPORT[20:])),
        whole({"text": REPORT}),
        expect(REPORT),
        {"text": FORMAT, "tools": [TOOL]},
        EVENTS,
    ),
    "refusal": Scene(
        stream(text(0, SORRY), reason="guardrail_intervened"),
        whole({"text": SORRY}, reason="guardrail_intervened"),
        expect(SORRY, stop="guardrail_intervened", status="incomplete", reason="content_filter"),
        content_type=EVENTS,
    ),
    "length": Scene(
        stream(text(0, "Once upon", " a"), reason="max_tokens", made=16),
        whole({"text": "Once upon a"}, reason="max_tokens", made=16),
        expect("Once upon a", stop="max_tokens", output_tokens=16, status="incomplete", reason="max_output_tokens"),
        {"max_output_tokens": 16},
        EVENTS,
    ),
    "cached": Scene(
        stream(text(0, "Hello"), read=6, cacheReadInputTokens=1000, cacheWriteInputTokens=20),
        whole({"text": "Hello"}, read=6, cacheReadInputTokens=1000, cacheWriteInputTokens=20),
        expect("Hello", input_tokens=1026, cached_tokens=1000),
        content_type=EVENTS,
    ),
}
