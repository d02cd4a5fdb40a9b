"""Asking Anthropic, and writing what is asked in its own shapes."""

from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.adapters.base import Capabilities
from tests.adapters.run_adapter import EncodedRequest, encode_request, make_adapter
from tests.adapters.scenes import TIME
from tests.adapters.scenes.anthropic import MODEL

ANTHROPIC = make_adapter(Anthropic)
NEW_API_VERSION, OLD_API_VERSION = "2026-10-21", "2023-06-01"


def ask(
    model: str = MODEL, capabilities: Capabilities | None = None, **fields: object
) -> EncodedRequest:
    """Ask a model of Anthropic's."""
    return encode_request(ANTHROPIC, upstream_model=model, capabilities=capabilities, **fields)


def warning_codes(question: EncodedRequest) -> list[tuple[str, str | None]]:
    """Return what was warned of."""
    return [(warning.code, warning.param) for warning in question.warnings]


def anthropic_message(*blocks: object, role: str = "user") -> dict:
    """Write a message for Anthropic."""
    return {"role": role, "content": list(blocks)}


def user_message(*content: object) -> dict:
    """Write a user's message for us."""
    return {"type": "message", "role": "user", "content": list(content)}


def user_text(words: str) -> dict:
    """Write what a user says."""
    return {"role": "user", "content": words}


CALL = {"type": "function_call", "call_id": "toolu_01", "name": "weather"}
TOOL_LOOP = [
    user_text("Hello"),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Someone else's."}]},
    CALL | {"arguments": '{"city":"Oslo"}'},
    {"type": "function_call_output", "call_id": "toolu_01", "output": "4"},
]
"""A tool loop in which somebody else has thought."""

HIGH_EFFORT: dict = {"reasoning": {"effort": "high"}}
REQUIRED_TOOL: dict = {"tools": [TIME], "tool_choice": "required"}
