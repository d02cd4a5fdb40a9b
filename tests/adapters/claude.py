"""Asking Anthropic, and writing what is asked in its own shapes."""

from antiphon.adapters.anthropic import Anthropic
from antiphon.adapters.base import Capabilities
from tests.adapters.hearing import Asked, asked, made
from tests.adapters.scripts import TIME
from tests.adapters.scripts.anthropic import MODEL

ANTHROPIC = made(Anthropic)
NEW, OLD = "2026-10-21", "2023-06-01"


def ask(model: str = MODEL, capabilities: Capabilities | None = None, **fields: object) -> Asked:
    """Ask a model of Anthropic's."""
    return asked(ANTHROPIC, upstream_model=model, capabilities=capabilities, **fields)


def codes(question: Asked) -> list[tuple[str, str | None]]:
    """Return what was warned of."""
    return [(warning.code, warning.param) for warning in question.warnings]


def said(*blocks: object, role: str = "user") -> dict:
    """Write a message for Anthropic."""
    return {"role": role, "content": list(blocks)}


def user(*content: object) -> dict:
    """Write a user's message for us."""
    return {"type": "message", "role": "user", "content": list(content)}


def user_says(words: str) -> dict:
    """Write what a user says."""
    return {"role": "user", "content": words}


ORDERED = {"type": "function_call", "call_id": "toolu_01", "name": "weather"}
LOOP = [
    user_says("Hello"),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Someone else's."}]},
    ORDERED | {"arguments": '{"city":"Oslo"}'},
    {"type": "function_call_output", "call_id": "toolu_01", "output": "4"},
]
"""A tool loop in which somebody else has thought."""

HARD: dict = {"reasoning": {"effort": "high"}}
MUST: dict = {"tools": [TIME], "tool_choice": "required"}
