"""Summaries of chat answers, decoded by us and by the official SDKs."""

import json
from collections.abc import Iterable
from typing import Any

from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, Message, Reasoning, RefusalContent
from antiphon.protocol.parts import Part
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.run_adapter import EncodedRequest, decode_parts, synthesize
from tests.adapters.scenes import Summary
from tests.scripted_upstream import ScriptedAnswer, ScriptedUpstream, json_answer

HELLO = {"role": "user", "content": "Hello"}


def summarize_bytes(asked: EncodedRequest, body: bytes, *, pieces: int = 0, stream: bool = True) -> Summary:
    """Return the summary of an answer's bytes."""
    said = decode_parts(asked, body, pieces=pieces, stream=stream)
    finish = next((part for part in said if isinstance(part, parts.Finish)), None)
    return summarize(synthesize(asked, said)[1], finish.raw if finish else "")


def summarize(response: Response, stop: str | None) -> Summary:
    """Return the summary of a response."""
    usage, details = response.usage, response.incomplete_details
    assert usage
    calls = [item for item in response.output if isinstance(item, FunctionCall)]
    messages = [item for item in response.output if isinstance(item, Message)]
    thoughts = [item for item in response.output if isinstance(item, Reasoning)]
    return Summary(
        text=response.output_text,
        calls=[(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
        reasoning="".join(part.text for item in thoughts for part in item.content or []),  # type: ignore[union-attr]
        refusal="".join(part.refusal for item in messages for part in item.content if isinstance(part, RefusalContent)),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        status=response.status,
        reason=details.reason if details else None,
        stop=stop or "",
    )


def items_without_ids(response: Response) -> list[object]:
    """Return the output without our ids."""
    return [{k: v for k, v in to_builtins(item).items() if k != "id"} for item in response.output]  # type: ignore[union-attr]


def join_text(said: Iterable[Part]) -> str:
    """Return the text of all text parts."""
    return "".join(part.text for part in said if isinstance(part, parts.Text))


def summarize_sdk(chunks: Iterable[Any], status: str = "completed", reason: str | None = None) -> Summary:
    """Return the summary of an official SDK's chunks, or of its whole answer as the only one.

    How a response ends is our word, not the SDK's.
    """
    text = reasoning = refusal = stop = ""
    calls: dict[int, list[str]] = {}
    usage: Any = None
    for chunk in chunks:
        usage = getattr(chunk, "usage", None) or usage
        for choice in chunk.choices:
            delta = getattr(choice, "delta", None) or choice.message
            text += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", None) or ""
            refusal += delta.refusal or ""
            stop = choice.finish_reason or stop
            for position, bit in enumerate(delta.tool_calls or []):
                index = getattr(bit, "index", None)
                call = calls.setdefault(position if index is None else index, ["", "", ""])
                call[0] += bit.id or ""
                call[1] += bit.function.name or ""
                call[2] += bit.function.arguments or ""
    assert usage
    read = getattr(usage, "prompt_tokens_details", None) or getattr(usage, "prompt_token_details", None)
    written = usage.completion_tokens_details
    return Summary(
        text=text,
        calls=[(id, name, json.loads(said or "{}")) for id, name, said in calls.values()],
        reasoning=reasoning,
        refusal=refusal,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=(read and read.cached_tokens) or 0,
        reasoning_tokens=(written and written.reasoning_tokens) or 0,
        status=status,
        reason=reason,
        stop=stop,
    )


def whole_answer(body: bytes) -> ScriptedAnswer:
    """Play a whole answer."""
    return json_answer(json.loads(body))


def sdk_options(provider: ScriptedUpstream) -> dict[str, Any]:
    """Return how an SDK of this family is pointed at a scripted upstream."""
    return {"base_url": provider.url, "api_key": "sk-test", "max_retries": 0}
