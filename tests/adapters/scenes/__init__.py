"""The answers of providers as bytes: one module per provider, each with the same scenes.

A module holds `ADAPTER`, its adapter class, and `SCENES`: for each scene's name the bytes that the
provider streams, the bytes of the same answer in one piece, and what both mean. Every provider's
official SDK reads the same bytes in the tests beside, and must see the same.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Summary:
    """The content of an answer, whatever program decodes it."""

    text: str = ""
    calls: list[tuple[str, str, dict]] = field(default_factory=list)
    """Each call's id (empty if the provider gives none), name and arguments."""
    reasoning: str = ""
    refusal: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    status: str = "completed"
    reason: str | None = None
    """Of an incomplete response."""
    stop: str = ""
    """The provider's own word for why it stopped."""


@dataclass(frozen=True)
class Scene:
    """One answer of a provider."""

    stream: bytes
    whole: bytes
    expected: Summary
    request: dict = field(default_factory=dict)
    """The fields of the Responses request that leads to it, beside `model`."""
    content_type: str = "text/event-stream"
    """Of the stream; a whole answer is `application/json`."""


TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
TIME = {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "report", "schema": SCHEMA, "strict": True}}

NAMES = [
    "text",  # several deltas, one with an emoji, usage
    "call",  # one call of `weather`
    "no_arguments",  # a call of `time` without arguments
    "parallel_calls",  # two calls, one after the other
    "interleaved_calls",  # two calls whose arguments interleave, or arrive in one chunk
    "text_and_call",
    "thinking_and_call",  # with whatever the provider wants back when the tool has answered
    "structured",  # text.format, the answer is JSON
    "tools_and_structured",  # both offered, the answer is JSON
    "refusal",  # a refusal or a safety stop
    "length",  # the budget is exhausted in mid-text
    "cached",  # usage with cached and, if the provider counts them, reasoning tokens
]
"""The scenes of every provider. Where a dialect lacks one, its module says why."""
