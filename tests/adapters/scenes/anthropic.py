"""Scenes in Anthropic's format: streams of events, and the same messages complete."""

import json

from antiphon.adapters.anthropic.adapter import Anthropic
from tests.adapters.scenes import FORMAT, TIME, TOOL, Scene, Summary

ADAPTER = Anthropic
MODEL = "claude-sonnet-4-6"

Block = dict


def event(data: dict) -> bytes:
    """Return an event."""
    return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def start_block(index: int, block: Block) -> bytes:
    """Return the start of a block."""
    return event({"type": "content_block_start", "index": index, "content_block": block})


def block_delta(index: int, kind: str, **fields: object) -> bytes:
    """Return an increment of a block."""
    delta = {"type": kind, **fields}
    return event({"type": "content_block_delta", "index": index, "delta": delta})


def stop_block(index: int) -> bytes:
    """Return the end of a block."""
    return event({"type": "content_block_stop", "index": index})


def text_deltas(index: int, *pieces: str) -> bytes:
    """Return a block of text."""
    deltas = b"".join(block_delta(index, "text_delta", text=piece) for piece in pieces)
    return start_block(index, {"type": "text", "text": ""}) + deltas + stop_block(index)


def thinking_deltas(index: int, signature: str, *pieces: str) -> bytes:
    """Return a block of thinking with its signature."""
    thought = b"".join(block_delta(index, "thinking_delta", thinking=piece) for piece in pieces)
    block = {"type": "thinking", "thinking": "", "signature": ""}
    signed = block_delta(index, "signature_delta", signature=signature)
    return start_block(index, block) + thought + signed + stop_block(index)


def redacted_thinking(index: int, data: str) -> bytes:
    """Return a block of redacted thinking."""
    return start_block(index, {"type": "redacted_thinking", "data": data}) + stop_block(index)


def call_deltas(index: int, id: str, name: str, *pieces: str) -> bytes:
    """Return a call; Anthropic's first increment is always empty."""
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    given = (block_delta(index, "input_json_delta", partial_json=piece) for piece in ("", *pieces))
    return start_block(index, block) + b"".join(given) + stop_block(index)


def usage(input: int, output: int, **more: object) -> dict:
    """Return token counts."""
    counts = {
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
    }
    return counts | more


def message(content: list[Block], stop: str | None, counts: dict, **more: object) -> dict:
    """Return a complete message."""
    fields = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": counts,
    }
    return fields | more


def stream(blocks: bytes, stop: str, counts: dict, **more: object) -> bytes:
    """Return a complete stream around its blocks."""
    first = event({"type": "message_start", "message": message([], None, counts | {"output_tokens": 1})})
    delta = {"stop_reason": stop, "stop_sequence": None, **more}
    last = event({"type": "message_delta", "delta": delta, "usage": counts})
    return first + event({"type": "ping"}) + blocks + last + event({"type": "message_stop"})


def scene(
    blocks: bytes,
    content: list[Block],
    expected: Summary,
    counts: dict | None = None,
    request: dict | None = None,
    **more: object,
) -> Scene:
    """Return a scene of streamed blocks, complete blocks and the expected summary."""
    counts = counts or usage(expected.input_tokens, expected.output_tokens)
    whole = message(content, expected.stop, counts, **more)
    return Scene(
        stream(blocks, expected.stop, counts, **more),
        json.dumps(whole, ensure_ascii=False).encode(),
        expected,
        request or {},
    )


def text_block(text: str) -> Block:
    """Return a complete block of text."""
    return {"type": "text", "text": text}


def call_block(id: str, name: str, input: dict) -> Block:
    """Return a complete call."""
    return {"type": "tool_use", "id": id, "name": name, "input": input}


OSLO_CALL = ("toolu_01", "weather", {"city": "Oslo"})
ROME_CALL = ("toolu_02", "weather", {"city": "Rome"})
TIME_CALL = ("toolu_03", "time", {})
OSLO_JSON = ('{"ci', 'ty":"Os', 'lo"}')
ROME_JSON = ('{"city":', '"Rome"}')
REPORT = '{"city":"Oslo","degrees":4}'
THOUGHT = "Where is Oslo? In Norway."
SIGNATURE = "EqoBCkgIARAB/+=="
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4a"
EXPLANATION = "This could do harm."

SCENES = {
    "text": scene(
        text_deltas(0, "Hello", ", ", "world 🌍", "!"),
        [text_block("Hello, world 🌍!")],
        Summary("Hello, world 🌍!", input_tokens=12, output_tokens=7, stop="end_turn"),
    ),
    "call": scene(
        call_deltas(0, *OSLO_CALL[:2], *OSLO_JSON),
        [call_block(*OSLO_CALL)],
        Summary(calls=[OSLO_CALL], input_tokens=20, output_tokens=9, stop="tool_use"),
        request={"tools": [TOOL]},
    ),
    "no_arguments": scene(
        call_deltas(0, *TIME_CALL[:2]),
        [call_block(*TIME_CALL)],
        Summary(calls=[TIME_CALL], input_tokens=20, output_tokens=5, stop="tool_use"),
        request={"tools": [TIME]},
    ),
    "parallel_calls": scene(
        call_deltas(0, *OSLO_CALL[:2], *OSLO_JSON) + call_deltas(1, *ROME_CALL[:2], *ROME_JSON),
        [call_block(*OSLO_CALL), call_block(*ROME_CALL)],
        Summary(calls=[OSLO_CALL, ROME_CALL], input_tokens=20, output_tokens=19, stop="tool_use"),
        request={"tools": [TOOL]},
    ),
    "interleaved_calls": scene(
        start_block(0, call_block(*OSLO_CALL[:2], {}))
        + start_block(1, call_block(*ROME_CALL[:2], {}))
        + block_delta(0, "input_json_delta", partial_json=OSLO_JSON[0])
        + block_delta(1, "input_json_delta", partial_json=ROME_JSON[0])
        + block_delta(0, "input_json_delta", partial_json="".join(OSLO_JSON[1:]))
        + block_delta(1, "input_json_delta", partial_json=ROME_JSON[1])
        + stop_block(0)
        + stop_block(1),
        [call_block(*OSLO_CALL), call_block(*ROME_CALL)],
        Summary(calls=[OSLO_CALL, ROME_CALL], input_tokens=20, output_tokens=19, stop="tool_use"),
        request={"tools": [TOOL]},
    ),
    "text_and_call": scene(
        text_deltas(0, "Let me ", "look.") + call_deltas(1, *OSLO_CALL[:2], *OSLO_JSON),
        [text_block("Let me look."), call_block(*OSLO_CALL)],
        Summary("Let me look.", [OSLO_CALL], input_tokens=20, output_tokens=14, stop="tool_use"),
        request={"tools": [TOOL]},
    ),
    "thinking_and_call": scene(
        thinking_deltas(0, SIGNATURE, "Where is Oslo? ", "In Norway.")
        + redacted_thinking(1, REDACTED)
        + text_deltas(2, "One moment.")
        + call_deltas(3, *OSLO_CALL[:2], *OSLO_JSON),
        [
            {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": REDACTED},
            text_block("One moment."),
            call_block(*OSLO_CALL),
        ],
        Summary(
            "One moment.",
            [OSLO_CALL],
            reasoning=THOUGHT,
            input_tokens=20,
            output_tokens=40,
            reasoning_tokens=25,
            stop="tool_use",
        ),
        counts=usage(20, 40, output_tokens_details={"thinking_tokens": 25}),
        request={"tools": [TOOL], "reasoning": {"effort": "high"}},
    ),
    "structured": scene(
        text_deltas(0, REPORT[:9], REPORT[9:]),
        [text_block(REPORT)],
        Summary(REPORT, input_tokens=30, output_tokens=11, stop="end_turn"),
        request={"text": FORMAT},
    ),
    "tools_and_structured": scene(
        text_deltas(0, REPORT[:9], REPORT[9:]),
        [text_block(REPORT)],
        Summary(REPORT, input_tokens=40, output_tokens=11, stop="end_turn"),
        request={"text": FORMAT, "tools": [TOOL]},
    ),
    "refusal": scene(
        text_deltas(0, "Well"),
        [text_block("Well")],
        Summary(
            "Well",
            refusal=EXPLANATION,
            input_tokens=12,
            output_tokens=2,
            status="incomplete",
            reason="content_filter",
            stop="refusal",
        ),
        stop_details={"type": "refusal", "category": "bio", "explanation": EXPLANATION},
    ),
    "length": scene(
        text_deltas(0, "It was a ", "dark and"),
        [text_block("It was a dark and")],
        Summary(
            "It was a dark and",
            input_tokens=12,
            output_tokens=16,
            status="incomplete",
            reason="max_output_tokens",
            stop="max_tokens",
        ),
        request={"max_output_tokens": 16},
    ),
    "cached": scene(
        thinking_deltas(0, SIGNATURE) + text_deltas(1, "Yes."),
        [{"type": "thinking", "thinking": "", "signature": SIGNATURE}, text_block("Yes.")],
        Summary("Yes.", input_tokens=1234, output_tokens=50, cached_tokens=1000, reasoning_tokens=45, stop="end_turn"),
        counts=usage(
            34,
            50,
            cache_creation_input_tokens=200,
            cache_read_input_tokens=1000,
            output_tokens_details={"thinking_tokens": 45},
        ),
        request={"prompt_cache_key": "book", "reasoning": {"effort": "low"}},
    ),
}
