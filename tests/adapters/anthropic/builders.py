"""Requests, messages and the SDK's client for the tests of the Anthropic adapter."""

import anthropic

from antiphon.adapters.anthropic.adapter import Anthropic
from antiphon.adapters.base import Capabilities
from tests.adapters.run_adapter import EncodedRequest, encode_request, make_adapter
from tests.adapters.scenes import TIME, TOOL
from tests.adapters.scenes.anthropic import MODEL

ANTHROPIC = make_adapter(Anthropic)
NEW_API_VERSION, OLD_API_VERSION = "2026-10-21", "2023-06-01"


def ask(model: str = MODEL, capabilities: Capabilities | None = None, **fields: object) -> EncodedRequest:
    """Encode a request for a model."""
    return encode_request(ANTHROPIC, upstream_model=model, capabilities=capabilities, **fields)


def sdk_client(url: str) -> anthropic.Anthropic:
    """Return the client of Anthropic's SDK."""
    return anthropic.Anthropic(base_url=url, api_key="key", max_retries=0)


def warning_codes(request: EncodedRequest) -> list[tuple[str, str | None]]:
    """Return the code and the param of each warning."""
    return [(warning.code, warning.param) for warning in request.warnings]


def anthropic_message(*blocks: object, role: str = "user") -> dict:
    """Return a message in Anthropic's format."""
    return {"role": role, "content": list(blocks)}


def user_message(*content: object) -> dict:
    """Return a user's message in the protocol's format."""
    return {"type": "message", "role": "user", "content": list(content)}


def user_text(text: str) -> dict:
    """Return a user's text in the protocol's format."""
    return {"role": "user", "content": text}


def error_body(type: str, message: str = "No.") -> dict:
    """Return an error in Anthropic's format."""
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


WEATHER = {"name": "weather", "description": "Tell the weather.", "input_schema": TOOL["parameters"], "strict": True}
CALL = {"type": "function_call", "call_id": "toolu_01", "name": "weather"}
TOOL_LOOP = [
    user_text("Hello"),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Someone else's."}]},
    CALL | {"arguments": '{"city":"Oslo"}'},
    {"type": "function_call_output", "call_id": "toolu_01", "output": "4"},
]
"""A tool loop with another provider's reasoning."""

HIGH_EFFORT: dict = {"reasoning": {"effort": "high"}}
REQUIRED_TOOL: dict = {"tools": [TIME], "tool_choice": "required"}
